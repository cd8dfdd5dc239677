"""A time-boxed slice of random cases on Spark; `tests/lake_algebra/campaign.py` runs more."""

from __future__ import annotations

import os
import time

from tests.lake_algebra.campaign import LAKE, Report, random_lake

FEWEST = 3
SECONDS = float(os.environ.get("HEADRACE_LAKE_ALGEBRA_SECONDS", "60"))
# The same slice every time, so that a failure here is a change's fault; campaigns look for new ones.
SEED = int(os.environ.get("HEADRACE_LAKE_ALGEBRA_SEED", "1000"))


def test_a_slice_of_random_cases_has_no_divergence() -> None:
    print(f"seed {SEED}")
    report, began = Report(), time.monotonic()
    with random_lake(SEED, report) as lake:
        while report.cases < FEWEST or (report.cases < LAKE and time.monotonic() - began < SECONDS / 2):
            lake.add(depth=3)
        while not report.refreshes or time.monotonic() - began < SECONDS:
            lake.change()
            lake.refresh()
        lake.verify()
    print(report)
    assert not report.failures, "\n".join(report.failures)
