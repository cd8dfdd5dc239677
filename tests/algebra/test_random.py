"""A time-boxed slice of random cases; `tests/algebra/campaign.py` runs more."""

from __future__ import annotations

import os
import time
from random import Random

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.algebra.campaign import Report, check_case, run_case

SECONDS = float(os.environ.get("HEADRACE_ALGEBRA_SECONDS", "20"))


def test_a_slice_of_random_cases_has_no_divergence() -> None:
    seed = int(os.environ.get("HEADRACE_ALGEBRA_SEED", time.time_ns() % 1_000_000))
    report, end, case = Report(), time.monotonic() + SECONDS, 0
    while time.monotonic() < end:
        number = seed * 1_000_000 + case
        try:
            check_case(number, report)
        except Exception as failure:
            raise AssertionError(f"case {number}: {failure}") from failure
        case += 1
    print(f"seed {seed}: {report}")
    assert report.cases > 0
    assert report.opaque == 0, "a generated query was kept as text"


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck), database=None)
@given(st.randoms(use_true_random=False))
def test_cases_that_shrink(random: Random) -> None:
    """The same generator driven by Hypothesis, which shrinks what it finds."""
    run_case(random, Report(), depth=2, rounds=2)
