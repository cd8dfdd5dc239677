"""Measure refreshes of the 22 queries of TPC-H while all eight tables change.

Stream tables of one query in every mode read the same changes, refreshed in turn; every result is compared
with its query. `python benchmarks/tpch.py --help` lists the options.
"""

from __future__ import annotations

import argparse
import logging
import tempfile
from contextlib import closing
from pathlib import Path

import headrace
from headrace.bench.matrix import MODES, Matrix
from headrace.bench.measure import DRIVER_MEMORY, as_table, geometric_mean, write_results
from headrace.bench.tpch import QUERIES, Tpch
from headrace.bench.workload import SOURCES, Cell


def main() -> None:
    options = _options()
    results: list[dict[str, object]] = []
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder,
        closing(headrace.connect(warehouse=folder, driver_memory=DRIVER_MEMORY)) as hr,
    ):
        tpch = Tpch(hr.spark, SOURCES[options.source])
        tpch.load(options.sf)
        matrix = Matrix(hr, tpch, options.queries, options.modes)
        matrix.create()
        for share in options.changes:
            print(f"scale {options.sf}, {share:.1%} changed", flush=True)
            found = list(matrix.measure(Cell(tpch.rows, share, "uniform"), options.rounds))
            results += found
            print(as_table(results), flush=True)
            if "speed-up" in found[0]:
                mean = geometric_mean(row["speed-up"] for row in found)
                print(f"geometric mean of the speed-ups at {share:.1%}: {mean:.2f}", flush=True)
            if options.write:
                write_results(options.write, vars(options), results)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sf", default="1", help="scale factor: 1 is about a gigabyte of text")
    parser.add_argument("--changes", type=float, nargs="+", default=[0.001, 0.01])
    parser.add_argument("--queries", nargs="+", choices=QUERIES, default=QUERIES)
    parser.add_argument("--modes", nargs="+", choices=MODES, default=MODES)
    parser.add_argument("--source", choices=SOURCES, default="feed", help="properties of the source tables")
    parser.add_argument("--rounds", type=int, default=3, help="measured rounds after one to warm up")
    parser.add_argument("--write", type=Path, help="file for the results, as JSON")
    logging.getLogger("headrace").setLevel(logging.WARNING)
    return parser.parse_args()


if __name__ == "__main__":
    main()
