"""Measure how the cost of a refresh grows: a fixed change on growing tables, growing changes on a fixed one.

`python benchmarks/growth.py --help` lists the options.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import headrace
from headrace.bench.matrix import Matrix
from headrace.bench.measure import DRIVER_MEMORY, as_table, write_results
from headrace.bench.workload import PATTERNS, QUERIES, Cell, Workload

MODES = ("FULL", "DIFFERENTIAL")


def main() -> None:
    options = _options()
    results: list[dict[str, object]] = []
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        for rows in options.bases:
            changes = options.changes if rows == options.fixed_base else [options.fixed_change]
            for row in measure(Path(folder), rows, sorted({*changes, options.fixed_change}), options):
                results.append(row)
            print(as_table(results), flush=True)
            if options.write:
                write_results(options.write, vars(options), results)


def measure(
    folder: Path, rows: int, changes: list[int], options: argparse.Namespace
) -> Iterator[dict[str, object]]:
    """Measure one size of table with changes of several sizes."""
    with closing(headrace.connect(warehouse=folder / f"lake{rows}", driver_memory=DRIVER_MEMORY)) as hr:
        workload = Workload(hr.spark, f"g{rows}", rows)
        workload.load()
        matrix = Matrix(hr, workload, options.queries, MODES)
        matrix.create()
        for count in changes:
            for pattern in options.patterns:
                print(f"{rows:,} rows, {count:,} changed, {pattern}", flush=True)
                for row in matrix.measure(Cell(rows, count / rows, pattern), options.rounds):
                    yield row | {"change": count}


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bases", type=int, nargs="+", default=[1_000_000, 3_000_000, 10_000_000])
    parser.add_argument("--fixed-change", type=int, default=10_000)
    parser.add_argument("--fixed-base", type=int, default=1_000_000)
    parser.add_argument("--changes", type=int, nargs="+", default=[100, 1_000, 10_000, 100_000])
    parser.add_argument("--patterns", nargs="+", choices=PATTERNS, default=PATTERNS)
    parser.add_argument("--queries", nargs="+", choices=QUERIES, default=["scan", "join", "aggregate"])
    parser.add_argument("--rounds", type=int, default=3, help="measured rounds after one to warm up")
    parser.add_argument("--write", type=Path, help="file for the results, as JSON")
    return parser.parse_args()


if __name__ == "__main__":
    main()
