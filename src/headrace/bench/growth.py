"""One size of change on tables of several sizes, which change and are refreshed in turn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from headrace.bench.matrix import APPEND, Matrix
from headrace.bench.measure import Timings, in_turn
from headrace.bench.workload import Cell, Pattern

MODES = ("FULL", "AUTO", "DIFFERENTIAL")


def measure_bases(
    matrices: Sequence[Matrix],
    change: int,
    pattern: Pattern,
    rounds: int,
    report: Callable[[str], None] = print,
) -> list[dict[str, object]]:
    """Measure one size of change on tables of several sizes, and compare each with the smallest one.

    A full refresh of a large table keeps the disk busy for a while after it, so all of them come last.
    """
    timings = {(matrix.workload.schema, query): Timings() for matrix in matrices for query in matrix.queries}
    appends = Timings()
    for number in range(rounds + 1):
        for matrix in matrices:
            rows = matrix.workload.rows
            matrix.workload.change(Cell(rows, change / rows, pattern))
        for mode in reversed(MODES):
            for matrix in in_turn(matrices, number):
                if mode == "DIFFERENTIAL":
                    appends.time(APPEND, partial(matrix.workload.append, change))
                for query in matrix.queries:
                    timings[matrix.workload.schema, query].add(mode, matrix.refresh(query, mode))
        report(f"  round {number} of {rounds} done")
    return _compared(matrices, timings, appends.median(APPEND), change, pattern)


def _compared(
    matrices: Sequence[Matrix],
    timings: dict[tuple[str, str], Timings],
    append: float,
    change: int,
    pattern: Pattern,
) -> list[dict[str, object]]:
    """Give the medians, held to the query itself, beside those of the first table."""
    results: list[dict[str, object]] = []
    smallest: dict[str, float] = {}
    for matrix in matrices:
        for query in matrix.queries:
            matrix.verify(query)
            taken = timings[matrix.workload.schema, query]
            full, auto, by_change = (taken.median(mode) for mode in MODES)
            base = smallest.setdefault(query, by_change)
            results.append(
                {
                    "rows": matrix.workload.rows,
                    "change": change,
                    "pattern": pattern,
                    "query": query,
                    "FULL": round(full, 3),
                    "DIFFERENTIAL": round(by_change, 3),
                    "AUTO": round(auto, 3),
                    APPEND: round(append, 3),
                    "speed-up": round(full / by_change, 2),
                    "AUTO of best": round(auto / min(full, by_change), 2),
                    f"of {matrices[0].workload.rows:,} rows": round(by_change / base, 2),
                }
            )
    return results
