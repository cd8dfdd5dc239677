"""Measure one tick over independent tables, carried by one service or shared by two.

Refreshes on the driver take turns in one Python interpreter, however many a service runs at once; two
services have an interpreter each. `python benchmarks/services.py --help` lists the options.
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
import pyarrow as pa
from deltalake import write_deltalake

import headrace
from headrace.bench.measure import Timings, as_table, in_turn, write_results

TABLES = 16
MODE = "DIFFERENTIAL"
# The shortest one allowed.
LAG = 3
# How many refreshes each service of a way may run at once.
WAYS: Mapping[str, Sequence[int]] = {
    "1 worker": (1,),
    "2 workers": (2,),
    "4 workers": (4,),
    "2 services of 1 worker": (1, 1),
    "2 services of 2 workers": (2, 2),
}
QUERIES = {
    "small": (
        "SELECT id, shop, amount + {n} AS amount FROM {source}",
        "SELECT shop, COUNT(*) AS n, SUM(amount + {n}) AS s FROM {source} GROUP BY shop",
    ),
    # All of a source is computed anew, as each of its partitions changes.
    "windows": (
        "SELECT id, shop, amount, ROW_NUMBER() OVER (PARTITION BY shop ORDER BY amount + {n}, id) AS place "
        "FROM {source}",
    ),
}


def main() -> None:
    options = _options()
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        lake = Path(folder) / "lake"
        with closing(headrace.connect(warehouse=lake)) as hr:
            _create(hr, lake, options.rows, QUERIES[options.queries])
        pipes = []
        for _ in range(max(map(len, WAYS.values()))):
            ours, theirs = context.Pipe()
            context.Process(target=serve, args=(lake, theirs), daemon=True).start()
            pipes.append(ours)
        for pipe in pipes:
            pipe.recv()
        timings = _measure(lake, pipes, options)
        for pipe in pipes:
            pipe.send(None)
        with closing(headrace.connect(warehouse=lake)) as hr:
            for table in hr.catalog.all():
                if not hr.verify(table.name.sql).ok:
                    raise SystemExit(f"{table.name} differs from its query")
    median = {way: statistics.median(timings.seconds[way][options.warm_up :]) for way in WAYS}
    results = [
        {"way": way, "seconds": round(seconds, 3), "speed-up": round(median["1 worker"] / seconds, 2)}
        for way, seconds in median.items()
    ]
    print(as_table(results))
    if options.write:
        write_results(options.write, vars(options), results)


def serve(lake: Path, pipe: Connection) -> None:
    """Carry the ticks that are asked for, as a service does, until there is nothing more to do."""
    with headrace.connect(warehouse=lake, driver_memory="1g") as hr:
        pipe.send("ready")
        while (order := pipe.recv()) is not None:
            moment, hr.scheduler.workers.limit = order
            report = hr.run_once(at=moment)
            done = [one for one in report if one.action == MODE]
            pipe.send((report.ok or str(report), len(done)))


def _measure(lake: Path, pipes: Sequence[Connection], options: argparse.Namespace) -> Timings:
    """Time ticks by all ways in turn, each after a change of one per cent of every source."""
    timings, rows = Timings(), options.rows
    for number in range(options.warm_up + options.rounds):
        for way in in_turn(list(WAYS), number):
            for source in range(TABLES):
                write_deltalake(
                    lake / f"sales{source}", _rows(rows, rows + options.rows // 100), mode="append"
                )
            rows += options.rows // 100
            # All tables are due, and the moment has passed, so that both services plan the same tick.
            time.sleep(2 * LAG)
            moment = datetime.now(UTC)
            began = time.perf_counter()
            for pipe, workers in zip(pipes, WAYS[way], strict=False):
                pipe.send((moment, workers))
            answers = [pipe.recv() for pipe, _ in zip(pipes, WAYS[way], strict=False)]
            timings.add(way, time.perf_counter() - began)
            if not all(ok is True for ok, _ in answers) or sum(done for _, done in answers) != TABLES:
                raise SystemExit(f"{way}: {answers}")
        print(f"  round {number + 1} of {options.warm_up + options.rounds} done", flush=True)
    return timings


def _create(hr: headrace.Headrace, lake: Path, rows: int, queries: Sequence[str]) -> None:
    for number in range(TABLES):
        source = f"sales{number}"
        hr.sql(f"CREATE TABLE {source} (id BIGINT, shop INT, amount BIGINT) USING delta")
        write_deltalake(lake / source, _rows(0, rows), mode="append")
        query = queries[number % len(queries)].format(n=number, source=source)
        hr.create_stream_table(f"t{number}", query, refresh_mode=MODE, schedule=f"{LAG} seconds")


def _rows(first: int, end: int) -> pa.Table:
    ids = np.arange(first, end)
    return pa.table({"id": ids, "shop": (ids % 1000).astype(np.int32), "amount": ids % 97})


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=500_000, help="rows of each source")
    parser.add_argument("--queries", choices=QUERIES, default="small", help="what the tables are")
    parser.add_argument("--rounds", type=int, default=5, help="measured rounds after those to warm up")
    parser.add_argument("--warm-up", type=int, default=2, help="rounds that do not count")
    parser.add_argument("--write", type=Path, help="file for the results, as JSON")
    return parser.parse_args()


if __name__ == "__main__":
    main()
