"""Many random cases of what a refresh does on the driver: `python -m tests.refresh.campaign --cases 5000`."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter

import duckdb

from tests.algebra.queries import INT
from tests.refresh import test_needed, test_on_driver
from tests.refresh.cases import NUMBERS, random_case

DEPTHS = (0, 1, 1, 2, 2, 3)


def run_case(seed: int, met: Counter[str]) -> None:
    """Check a case over integers by both ways, and one over numbers of all types by what it needs."""
    case = random_case(seed, DEPTHS)
    met["fewer rows needed"] += bool(test_needed.check(case.subject, case.changed)[0])
    change, state = test_on_driver.check(case.subject, case.changed)
    met["changes in Arrow"] += change
    met["states in Arrow"] += state
    typed = random_case(seed, DEPTHS, numbers=(INT, *NUMBERS))
    try:
        met["fewer typed rows needed"] += bool(test_needed.check(typed.subject, typed.changed)[0])
    except (duckdb.BinderException, duckdb.ConversionException, duckdb.ParserException):
        met["typed, not for DuckDB"] += 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    met: Counter[str] = Counter()
    failures, began = 0, time.monotonic()
    for number in range(arguments.cases):
        seed = arguments.seed * 1_000_000 + number
        try:
            run_case(seed, met)
        except Exception as failure:  # noqa: BLE001  (a campaign reports every failure and goes on)
            failures += 1
            print(f"case {seed}: {type(failure).__name__}: {str(failure)[:3000]}\n", flush=True)
    seconds = time.monotonic() - began
    print(f"{arguments.cases} cases, {failures} failures, {dict(met)}, {seconds:.0f} s")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
