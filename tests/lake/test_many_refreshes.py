"""Hundreds of refreshes: as quick at the end as at the beginning, and nothing left behind."""

from __future__ import annotations

import resource
import statistics
import threading
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from headrace import Headrace
from headrace.refresh.result import RefreshResult
from tests.conftest import holds, rows

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
    held = []
    for _ in range(4):
        jvm.java.lang.System.gc()
        held.append(int(runtime.totalMemory() - runtime.freeMemory()))
    return min(held)


def largest_so_far() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def cached(hr: Headrace) -> int:
    """How many frames the whole session keeps, those of other tests among them."""
    return int(hr.spark.sparkContext._jsc.getPersistentRDDs().size())  # type: ignore[union-attr]  # a JVM is there


def milliseconds(results: Sequence[RefreshResult]) -> float:
    return statistics.median(result.duration_ms for result in results)


def test_hundreds_of_refreshes_stay_quick_and_leave_nothing(lake: Headrace) -> None:
    lake.sql("CREATE TABLE sales (id BIGINT, shop INT, amount BIGINT) USING delta")
    (location,) = lake.sql("DESCRIBE DETAIL sales").select("location").first()
    sales = Path(location.removeprefix("file:"))
    write(sales, 0)
    for name, query in TABLES.items():
        lake.sql(f"CREATE STREAM TABLE {name} REFRESH MODE DIFFERENTIAL AS {query}")
    done: dict[str, list[RefreshResult]] = {name: [] for name in TABLES}
    marks: list[tuple[int, int, int, int]] = []
    for number in range(1, ROUNDS + 1):
        write(sales, number)
        for name in TABLES:
            if name != "highest" or number % RARELY == 0:
                done[name].append(lake.refresh_stream_table(name))
        if number in (WARM, ROUNDS):
            marks.append((held_memory(lake), largest_so_far(), threading.active_count(), cached(lake)))
    assert sum(map(len, done.values())) >= 300
    for name, results in done.items():
        assert {str(result.action) for result in results} == {"DIFFERENTIAL"}, name
        part = len(results) // 4
        early, late = milliseconds(results[part : 2 * part]), milliseconds(results[-part:])
        assert late < 2 * early + 50, f"{name} took {early:.0f} ms and now takes {late:.0f} ms"
        assert holds(lake, name)
        files = list(Path(lake.catalog.find(lake.qualify(name)).location).rglob("*"))
        assert len(files) < 6 * ROUNDS, f"{name} has {len(files)} files"
    assert rows(lake, "SELECT SUM(n) FROM totals") == rows(lake, "SELECT COUNT(*) FROM sales")
    (jvm_then, ours_then, threads_then, kept_then), (jvm_now, ours_now, threads_now, kept_now) = marks
    assert jvm_now - jvm_then < 64 << 20, "the JVM holds more and more"
    assert ours_now - ours_then < 128 << 20, "Python holds more and more"
    assert threads_now <= threads_then + 2
    views = lake.sql("SHOW VIEWS IN global_temp").collect()
    assert len(views) <= 70, "views of old versions are dropped"
    assert kept_now <= kept_then + 5, "Delta keeps the states of a few tables, and nothing of ours is cached"
