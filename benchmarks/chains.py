"""Measure a stream table and the next one of its chain, with rows hidden by deletion vectors and with copies.

Two chains of a scan and an aggregate over it follow the same changes of one source, all over it; of one the
files are copied, of the other rows are hidden. Rounds are interleaved, the first ones do not count, and
medians are shown. `python benchmarks/chains.py --help` lists the options.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import headrace
from headrace.bench.measure import DRIVER_MEMORY, Timings, as_table, in_turn, write_results

WAYS = {"copied": False, "hidden": True}
WARM_UP = 2


def main() -> None:
    options = _options()
    results: list[dict[str, object]] = []
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        lake = headrace.connect(warehouse=Path(folder) / "lake", driver_memory=DRIVER_MEMORY)
        for rows in options.rows:
            source = _create(lake, rows)
            for share in options.shares:
                results.append(
                    {"rows": rows, "changed": share} | measure(lake, source, share, options.rounds)
                )
                print(as_table(results), flush=True)
                if options.write:
                    write_results(options.write, vars(options), results)


def measure(lake: headrace.Headrace, source: str, share: float, rounds: int) -> dict[str, object]:
    """Time the first and the second table of both chains, in milliseconds."""
    timings = Timings()
    for number in range(WARM_UP + rounds):
        step = round(1 / share)
        lake.spark.sql(f"UPDATE {source} SET x = x + 1 WHERE id % {step} = {number % step}")
        # The change of the source is read once for all tables that need it, by neither of the two.
        _refreshed(lake, f"{source}_few")
        for way in in_turn(list(WAYS), number):
            settings = lake.settings.model_copy(update={"deletion_vectors": WAYS[way]})
            lake._refresher.use(settings)
            first, second = _refreshed(lake, f"{source}_{way}"), _refreshed(lake, f"{source}_{way}_kinds")
            if number >= WARM_UP - 1:
                timings.add(f"first, {way}", first)
                timings.add(f"second, {way}", second)
    for way in WAYS:
        assert lake.verify(f"{source}_{way}").ok, way
        assert lake.verify(f"{source}_{way}_kinds").ok, way
    return {part: round(timings.median(part)) for part in sorted(timings.seconds)}


def _refreshed(lake: headrace.Headrace, name: str) -> float:
    result = lake.refresh_stream_table(name)
    if result.action != "DIFFERENTIAL":
        raise SystemExit(f"not what is measured: {result.reason}")
    return result.duration_ms


def _create(lake: headrace.Headrace, rows: int) -> str:
    source = f"sales{rows}"
    lake.sql(
        f"CREATE TABLE {source} USING delta AS SELECT id, CAST(id % 1000 AS INT) AS kind,"
        f" CAST(rand(7) * 10000 AS INT) AS x FROM range({rows})"
    )
    queries = {"few": f"SELECT id, kind, x FROM {source} WHERE kind < 10"}
    for way in WAYS:
        queries[way] = f"SELECT id, kind, x FROM {source}"
        queries[f"{way}_kinds"] = f"SELECT kind, COUNT(*) AS n, SUM(x) AS x FROM {source}_{way} GROUP BY kind"
    for name, query in queries.items():
        lake.create_stream_table(f"{source}_{name}", query, refresh_mode="DIFFERENTIAL")
    return source


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=[200_000, 1_000_000, 3_000_000])
    parser.add_argument("--shares", type=float, nargs="+", default=[0.001, 0.01])
    parser.add_argument("--rounds", type=int, default=5, help="rounds that count, after two to warm up")
    parser.add_argument("--write", type=Path, help="where the figures are kept as JSON")
    return parser.parse_args()


if __name__ == "__main__":
    main()
