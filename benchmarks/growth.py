"""Measure how the cost of a refresh grows: a fixed change on growing tables, growing changes on a fixed one.

Tables of all sizes change and are refreshed in turn, round by round, so that a machine that is slower for
a while is so for all of them. `python benchmarks/growth.py --help` lists the options.
"""

from __future__ import annotations

import argparse
import tempfile
from contextlib import ExitStack
from pathlib import Path

import headrace
from headrace.bench.growth import MODES, measure_bases
from headrace.bench.matrix import Matrix
from headrace.bench.measure import DRIVER_MEMORY, as_table, write_results
from headrace.bench.workload import PATTERNS, QUERIES, Cell, Workload


def main() -> None:
    options = _options()
    results: list[dict[str, object]] = []
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder, ExitStack() as lakes:
        matrices = [
            _opened(lakes, (options.lake or Path(folder)) / f"lake{rows}-feed", rows, options)
            for rows in options.bases
        ]
        for pattern in options.patterns:
            print(f"{options.fixed_change:,} rows changed, {pattern}", flush=True)
            results += measure_bases(matrices, options.fixed_change, pattern, options.rounds)
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


def _opened(lakes: ExitStack, lake: Path, rows: int, options: argparse.Namespace) -> Matrix:
    hr = lakes.enter_context(headrace.connect(warehouse=lake, driver_memory=DRIVER_MEMORY))
    workload = Workload(hr.spark, f"b{rows}", rows, both_sides=options.both_sides)
    workload.load()
    matrix = Matrix(hr, workload, options.queries, MODES)
    matrix.create()
    return matrix


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bases", type=int, nargs="+", default=[1_000_000, 3_000_000, 10_000_000])
    parser.add_argument("--fixed-change", type=int, default=10_000)
    parser.add_argument("--fixed-base", type=int, default=1_000_000)
    parser.add_argument("--changes", type=int, nargs="*", default=[100, 1_000, 10_000, 100_000])
    parser.add_argument("--patterns", nargs="+", choices=PATTERNS, default=PATTERNS)
    parser.add_argument("--queries", nargs="+", choices=QUERIES, default=["scan", "join", "aggregate"])
    parser.add_argument("--both-sides", action="store_true", help="change customers too, for the joins")
    parser.add_argument("--rounds", type=int, default=3, help="measured rounds after one to warm up")
    parser.add_argument(
        "--lake", type=Path, help="folder whose tables are kept for a later run, and taken up if there"
    )
    parser.add_argument("--write", type=Path, help="file for the results, as JSON")
    return parser.parse_args()


if __name__ == "__main__":
    main()
