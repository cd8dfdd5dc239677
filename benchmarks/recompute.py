"""Measure full refreshes of a table that others read: the whole written anew against what differs.

Two tables of the same query, each with an aggregate over it, follow the same changes of one source: of one
the whole is written, of the other what differs. Rounds are interleaved, the first does not count, and medians
are shown. `python benchmarks/recompute.py --help` lists the options.
"""

from __future__ import annotations

import argparse
import math
import tempfile
from pathlib import Path

import headrace
import headrace.refresh.recompute as recomputing
from headrace.bench.measure import DRIVER_MEMORY, Timings, as_table, in_turn, write_results
from headrace.refresh.recompute import Recomputation

QUERIES = {
    "scan": "SELECT id, kind, x FROM sales",
    "aggregate": "SELECT id % 50000 AS kind, COUNT(*) AS n, SUM(x) AS x FROM sales GROUP BY id % 50000",
}
READER = "SELECT kind, COUNT(*) AS n, SUM(x) AS x FROM {} GROUP BY kind"
WAYS = ("whole", "difference")
# The difference is measured however large it is.
recomputing._MOST = math.inf


def main() -> None:
    options = _options()
    results: list[dict[str, object]] = []
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        lake = headrace.connect(warehouse=Path(folder) / "lake", driver_memory=DRIVER_MEMORY)
        for name in options.queries:
            _create(lake, name, options.rows)
            for share in options.shares:
                timings = measure(lake, name, share, options)
                results.append({"query": name, "changed": share} | timings)
                print(as_table(results), flush=True)
                if options.write:
                    write_results(options.write, vars(options), results)


def measure(
    lake: headrace.Headrace, name: str, share: float, options: argparse.Namespace
) -> dict[str, object]:
    """Time both ways for changes of one size, in seconds."""
    timings = Timings()
    for number in range(options.rounds + 1):
        _change(lake, share, options.rows, number)
        for way in in_turn(WAYS, number):
            table, reader = _refreshed(lake, name, way)
            timings.add(f"{way}, table", table)
            timings.add(f"{way}, reader", reader)
    for way in WAYS:
        assert lake.verify(f"{name}_{way}").ok, way
        assert lake.verify(f"{name}_{way}_kinds").ok, way
    return {part: round(timings.median(part), 3) for part in sorted(timings.seconds, reverse=True)}


def _create(lake: headrace.Headrace, name: str, rows: int) -> None:
    lake.sql(
        "CREATE OR REPLACE TABLE sales USING delta AS SELECT id, id % 1000 AS kind,"
        f" CAST(rand(7) * 10000 AS INT) AS x FROM range({rows})"
    )
    for way in WAYS:
        whole = f"{name}_{way}"
        lake.create_stream_table(whole, QUERIES[name], refresh_mode="FULL")
        lake.create_stream_table(f"{whole}_kinds", READER.format(whole), refresh_mode="DIFFERENTIAL")


def _change(lake: headrace.Headrace, share: float, rows: int, number: int) -> None:
    """Change so large a share of the rows, spread over the table, or move a row that is out again."""
    if share:
        step = round(1 / share)
        lake.spark.sql(f"UPDATE sales SET x = x + 1 WHERE id % {step} = {number % step}")
    else:
        lake.spark.sql(f"INSERT INTO sales VALUES ({rows + number}, NULL, NULL)")
        lake.spark.sql(f"DELETE FROM sales WHERE id = {rows + number}")


def _refreshed(lake: headrace.Headrace, name: str, way: str) -> tuple[float, float]:
    hands_on = Recomputation._hands_on
    Recomputation._hands_on = lambda *_: way == "difference"  # type: ignore[method-assign]  # whatever is stored
    try:
        table = lake.refresh_stream_table(f"{name}_{way}", full=True)
    finally:
        Recomputation._hands_on = hands_on  # type: ignore[method-assign]  # as it was
    reader = lake.refresh_stream_table(f"{name}_{way}_kinds")
    if table.action != "FULL" or reader.action not in {"DIFFERENTIAL", "NO_DATA"}:
        raise SystemExit(f"not what is measured: {table.reason}; {reader.reason}")
    return table.duration_ms / 1000, reader.duration_ms / 1000


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows of the table")
    parser.add_argument("--queries", nargs="+", choices=QUERIES, default=list(QUERIES))
    parser.add_argument("--shares", type=float, nargs="+", default=[0, 0.001, 0.01, 0.05, 0.1])
    parser.add_argument("--rounds", type=int, default=3, help="rounds that count, after one to warm up")
    parser.add_argument("--write", type=Path, help="where the figures are kept as JSON")
    return parser.parse_args()


if __name__ == "__main__":
    main()
