"""Measure refreshes over sizes of tables, sizes and patterns of change, and kinds of query.

FULL, DIFFERENTIAL and AUTO tables of the same query read the same changes, refreshed in turn; every result is
compared with its query. `python benchmarks/matrix.py --help` lists the options.
"""

from __future__ import annotations

import argparse
import logging
import tempfile
from contextlib import closing
from pathlib import Path

import headrace
from headrace.bench.matrix import MODES, Matrix
from headrace.bench.measure import DRIVER_MEMORY, as_table, write_results
from headrace.bench.workload import PATTERNS, QUERIES, SOURCES, Cell, Workload


def main() -> None:
    options = _options()
    results: list[dict[str, object]] = []
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        for rows in options.rows:
            lake = (options.lake or Path(folder)) / f"lake{rows}-{options.source}"
            with closing(headrace.connect(warehouse=lake, driver_memory=DRIVER_MEMORY)) as hr:
                workload = Workload(
                    hr.spark, f"b{rows}", rows, SOURCES[options.source], both_sides=options.both_sides
                )
                workload.load()
                matrix = Matrix(hr, workload, options.queries, options.modes)
                matrix.create()
                for share in options.changes:
                    for pattern in options.patterns:
                        cell = Cell(rows, share, pattern, "adds" if options.adds else "mixed")
                        print(f"{rows:,} rows, {share:.1%} changed, {cell.pattern}", flush=True)
                        results += matrix.measure(cell, options.rounds)
                        print(as_table(results), flush=True)
                        if options.write:
                            write_results(options.write, vars(options), results)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=[10_000, 100_000, 1_000_000, 10_000_000])
    parser.add_argument("--changes", type=float, nargs="+", default=[0.001, 0.01, 0.1, 0.5])
    parser.add_argument("--patterns", nargs="+", choices=PATTERNS, default=PATTERNS)
    parser.add_argument("--queries", nargs="+", choices=QUERIES, default=list(QUERIES))
    parser.add_argument("--modes", nargs="+", choices=MODES, default=MODES)
    parser.add_argument("--source", choices=SOURCES, default="feed", help="properties of the source tables")
    parser.add_argument("--adds", action="store_true", help="changes that only add")
    parser.add_argument("--both-sides", action="store_true", help="change customers too, for the joins")
    parser.add_argument("--rounds", type=int, default=3, help="measured rounds after one to warm up")
    parser.add_argument(
        "--lake", type=Path, help="folder whose tables are kept for a later run, and taken up if there"
    )
    parser.add_argument("--write", type=Path, help="file for the results, as JSON")
    logging.getLogger("headrace").setLevel(logging.WARNING)
    return parser.parse_args()


if __name__ == "__main__":
    main()
