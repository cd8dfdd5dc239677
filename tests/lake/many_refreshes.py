"""A program that refreshes some tables hundreds of times and prints what it cost, as JSON.

It is a process of its own: in a JVM that thousands of tests have used, what these left behind comes and goes
by more than a leak of the refreshes would add.
"""

from __future__ import annotations

import json
import resource
import statistics
import sys
import threading
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

import headrace
from headrace import Headrace
from headrace.refresh.result import RefreshResult
from tests.conftest import SMALL, holds, rows

ROUNDS = 150
WARM = 50
# What Spark computes is refreshed more rarely, since it takes a second each time.
RARELY = 5
TABLES = {
    "paid": "SELECT id, shop, amount FROM sales WHERE amount > 10",
    "totals": "SELECT shop, COUNT(*) AS n, SUM(amount) AS s FROM sales GROUP BY shop",
    # A table over a table, which Spark computes and which is changed by key.
    "highest": "SELECT shop % 5 AS g, MAX(s) AS m FROM totals GROUP BY shop % 5",
}


@dataclass(frozen=True)
class Held:
    """What is held at one moment."""

    jvm: int
    python: int
    threads: int
    frames: int


@dataclass(frozen=True)
class Kept:
    """How one table fared."""

    refreshes: int
    actions: list[str]
    early_ms: float
    late_ms: float
    holds: bool
    files: int


def write(location: Path, number: int) -> None:
    """Add some rows, and take others away by turns."""
    count = 20
    ids = range(number * count, (number + 1) * count)
    columns = {"id": list(ids), "shop": [i % 17 for i in ids], "amount": [i * 7919 % 101 for i in ids]}
    schema = pa.schema([("id", pa.int64()), ("shop", pa.int32()), ("amount", pa.int64())])
    write_deltalake(location, pa.table(columns, schema=schema), mode="append")
    if number % 2:
        DeltaTable(location).delete(f"id % 3 = 0 AND id < {number * count} AND id >= {(number - 1) * count}")


def held_memory(hr: Headrace) -> int:
    """Bytes that the JVM holds after it has thrown away what it can.

    Of four collections one packs the heap; the others may leave dead room in it, up to a twentieth, that
    counts as held.
    """
    jvm = hr.spark._jvm
    assert jvm is not None
    runtime = jvm.java.lang.Runtime.getRuntime()
    sizes = []
    for _ in range(4):
        jvm.java.lang.System.gc()
        sizes.append(int(runtime.totalMemory() - runtime.freeMemory()))
    return min(sizes)


def largest_so_far() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def held(hr: Headrace) -> Held:
    frames = int(hr.spark.sparkContext._jsc.getPersistentRDDs().size())  # type: ignore[union-attr]  # a JVM is there
    return Held(held_memory(hr), largest_so_far(), threading.active_count(), frames)


def milliseconds(results: Sequence[RefreshResult]) -> float:
    return statistics.median(result.duration_ms for result in results)


def kept(hr: Headrace, name: str, results: Sequence[RefreshResult]) -> Kept:
    part = len(results) // 4
    return Kept(
        refreshes=len(results),
        actions=sorted({str(result.action) for result in results}),
        early_ms=milliseconds(results[part : 2 * part]),
        late_ms=milliseconds(results[-part:]),
        holds=holds(hr, name),
        files=sum(1 for _ in Path(hr.catalog.find(hr.qualify(name)).location).rglob("*")),
    )


def run(hr: Headrace) -> dict[str, object]:
    """Refresh the tables in rounds, and tell what is held early and at the end."""
    hr.sql("CREATE TABLE sales (id BIGINT, shop INT, amount BIGINT) USING delta")
    (location,) = hr.sql("DESCRIBE DETAIL sales").select("location").first()
    sales = Path(location.removeprefix("file:"))
    write(sales, 0)
    for name, query in TABLES.items():
        hr.sql(f"CREATE STREAM TABLE {name} REFRESH MODE DIFFERENTIAL AS {query}")
    done: dict[str, list[RefreshResult]] = {name: [] for name in TABLES}
    marks: list[Held] = []
    for number in range(1, ROUNDS + 1):
        write(sales, number)
        for name in TABLES:
            if name != "highest" or number % RARELY == 0:
                done[name].append(hr.refresh_stream_table(name))
        if number in (WARM, ROUNDS):
            marks.append(held(hr))
    return {
        "tables": {name: asdict(kept(hr, name, results)) for name, results in done.items()},
        "held": [asdict(mark) for mark in marks],
        "counted": rows(hr, "SELECT SUM(n) FROM totals"),
        "in_source": rows(hr, "SELECT COUNT(*) FROM sales"),
        "views": hr.sql("SHOW VIEWS IN global_temp").count(),
    }


if __name__ == "__main__":
    with headrace.connect(warehouse=sys.argv[1], spark_conf=SMALL) as hr:
        print(json.dumps(run(hr)))
