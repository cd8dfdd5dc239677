"""A time-boxed slice of random cases on Spark; `tests/lake_algebra/campaign.py` runs more."""

from __future__ import annotations

import os
import time

from tests.lake_algebra.campaign import LAKE, Report, random_lake

FEWEST = 3
SECONDS = float(os.environ.get("HEADRACE_LAKE_ALGEBRA_SECONDS", "60"))


def test_a_slice_of_random_cases_has_no_divergence() -> None:
    seed = int(os.environ.get("HEADRACE_ALGEBRA_SEED", time.time_ns() % 1_000_000))
    report, began = Report(), time.monotonic()
    with random_lake(seed, report) as lake:
        while report.cases < FEWEST or (report.cases < LAKE and time.monotonic() - began < SECONDS / 2):
            lake.add(depth=3)
        while not report.refreshes or time.monotonic() - began < SECONDS:
            lake.change()
            lake.refresh()
        lake.verify()
    print(f"seed {seed}: {report}")
    assert not report.failures, "\n".join(report.failures)
