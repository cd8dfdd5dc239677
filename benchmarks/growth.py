"""Measure how the cost of a refresh grows: a fixed change on growing tables, growing changes on a fixed one.

Tables of all sizes change and are refreshed in turn, round by round, so that a machine that is slower for
a while is so for all of them. `python benchmarks/growth.py --help` lists the options.
"""

from __future__ import annotations

import argparse
import tempfile
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import headrace
from headrace.bench.matrix import APPEND, Matrix
from headrace.bench.measure import DRIVER_MEMORY, Timings, as_table, in_turn, write_results
from headrace.bench.workload import PATTERNS, QUERIES, Cell, Pattern, Workload

MODES = ("FULL", "DIFFERENTIAL")


def main() -> None:
    options = _options()
    results: list[dict[str, object]] = []
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder, ExitStack() as lakes:
        matrices = [
            _opened(lakes, (options.lake or Path(folder)) / f"lake{rows}-feed", rows, options.queries)
            for rows in options.bases
        ]
        for pattern in options.patterns:
            print(f"{options.fixed_change:,} rows changed, {pattern}", flush=True)
            results += measure_bases(matrices, options.bases, options.fixed_change, pattern, options.rounds)
            _report(results, options)
        for matrix, rows in zip(matrices, options.bases, strict=True):
            for count in options.changes if rows == options.fixed_base else ():
                for pattern in options.patterns:
                    print(f"{rows:,} rows, {count:,} changed, {pattern}", flush=True)
                    cell = Cell(rows, count / rows, pattern)
                    results += [row | {"change": count} for row in matrix.measure(cell, options.rounds)]
                    _report(results, options)


def _report(results: list[dict[str, object]], options: argparse.Namespace) -> None:
    print(as_table(results), flush=True)
    if options.write:
        write_results(options.write, vars(options), results)


def _opened(lakes: ExitStack, lake: Path, rows: int, queries: list[str]) -> Matrix:
    hr = lakes.enter_context(headrace.connect(warehouse=lake, driver_memory=DRIVER_MEMORY))
    workload = Workload(hr.spark, f"b{rows}", rows)
    workload.load()
    matrix = Matrix(hr, workload, queries, MODES)
    matrix.create()
    return matrix


def measure_bases(
    matrices: list[Matrix], bases: list[int], change: int, pattern: Pattern, rounds: int
) -> list[dict[str, object]]:
    """Measure one size of change on tables of several sizes, and compare each with the smallest one.

    A full refresh of a large table keeps the disk busy for a while after it, so all of them come last.
    """
    timings = {(matrix.workload.schema, query): Timings() for matrix in matrices for query in matrix.queries}
    appends = Timings()
    for number in range(rounds + 1):
        for matrix, rows in zip(matrices, bases, strict=True):
            matrix.workload.change(Cell(rows, change / rows, pattern))
        for mode in reversed(MODES):
            for matrix in in_turn(matrices, number):
                if mode == "DIFFERENTIAL":
                    appends.time(APPEND, partial(matrix.workload.append, change))
                for query in matrix.queries:
                    timings[matrix.workload.schema, query].add(mode, matrix.refresh(query, mode))
        print(f"  round {number} of {rounds} done", flush=True)
    results: list[dict[str, object]] = []
    smallest: dict[str, float] = {}
    for matrix, rows in zip(matrices, bases, strict=True):
        for query in matrix.queries:
            matrix.verify(query)
            full, by_change = (timings[matrix.workload.schema, query].median(mode) for mode in MODES)
            base = smallest.setdefault(query, by_change)
            results.append(
                {
                    "rows": rows,
                    "change": change,
                    "pattern": pattern,
                    "query": query,
                    "FULL": round(full, 3),
                    "DIFFERENTIAL": round(by_change, 3),
                    APPEND: round(appends.median(APPEND), 3),
                    "speed-up": round(full / by_change, 2),
                    f"of {bases[0]:,} rows": round(by_change / base, 2),
                }
            )
    return results


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bases", type=int, nargs="+", default=[1_000_000, 3_000_000, 10_000_000])
    parser.add_argument("--fixed-change", type=int, default=10_000)
    parser.add_argument("--fixed-base", type=int, default=1_000_000)
    parser.add_argument("--changes", type=int, nargs="*", default=[100, 1_000, 10_000, 100_000])
    parser.add_argument("--patterns", nargs="+", choices=PATTERNS, default=PATTERNS)
    parser.add_argument("--queries", nargs="+", choices=QUERIES, default=["scan", "join", "aggregate"])
    parser.add_argument("--rounds", type=int, default=3, help="measured rounds after one to warm up")
    parser.add_argument(
        "--lake", type=Path, help="folder whose tables are kept for a later run, and taken up if there"
    )
    parser.add_argument("--write", type=Path, help="file for the results, as JSON")
    return parser.parse_args()


if __name__ == "__main__":
    main()
