"""Ticks on real Spark and Delta: order, one moment for all, failures that hold up only readers."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import headrace
from headrace import Headrace, HeadraceError
from headrace.catalog import RefreshState
from headrace.scheduler.report import TickReport
from headrace.scheduler.snapshot import Snapshot
from headrace.scheduler.workers import Workers
from headrace.sources import shared
from tests.conftest import SMALL, holds, rows

TABLES = ("base", "sums", "shares", "tip")


@pytest.fixture(scope="module")
def hr(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Headrace]:
    """A source and a diamond over it, shared by the tests of this file."""
    folder: Path = tmp_path_factory.mktemp("ticks")
    with headrace.connect(warehouse=folder / "lake", spark_conf=SMALL) as hr:
        hr.sql("CREATE TABLE sales (id INT, shop INT, amount INT) USING delta")
        hr.sql("INSERT INTO sales VALUES (1, 1, 10), (2, 1, 20), (3, 2, 30)")
        mode = "REFRESH MODE DIFFERENTIAL"
        hr.sql(f"CREATE STREAM TABLE base SCHEDULE DOWNSTREAM {mode} AS SELECT id, shop, amount FROM sales")
        hr.sql(f"CREATE STREAM TABLE sums {mode} AS SELECT shop, SUM(amount) AS s FROM base GROUP BY shop")
        hr.sql(
            f"CREATE STREAM TABLE shares {mode} AS SELECT shop, SUM(600 DIV amount) AS q "
            "FROM base GROUP BY shop"
        )
        hr.sql(
            f"CREATE STREAM TABLE tip {mode} AS SELECT a.shop, s, q FROM sums a JOIN shares b USING (shop)"
        )
        yield hr


def ran(hr: Headrace) -> TickReport:
    """Run what is due within the hour, and hold every table to the invariant."""
    report = hr.run_once(at=datetime.now(UTC) + timedelta(hours=1))
    for table in TABLES:
        assert holds(hr, table), table
    return report


def stamps(hr: Headrace) -> dict[str, datetime | None]:
    return {table.name.table: table.data_timestamp for table in hr.catalog.all()}


def test_a_change_reaches_all_tables_in_one_run_of_one_moment(hr: Headrace) -> None:
    before = rows(hr, "SELECT * FROM tip")
    hr.sql("INSERT INTO sales VALUES (4, 2, 60)")
    report = ran(hr)
    assert {one.action for one in report} == {"DIFFERENTIAL"}, str(report)
    order = [one.stream_table for one in report]
    assert (order[0], order[-1]) == ("default.base", "default.tip")
    assert set(stamps(hr).values()) == {report.data_timestamp}
    assert report.ok
    assert rows(hr, "SELECT * FROM tip") != before
    assert rows(hr, "SELECT * FROM tip") == rows(
        hr, "SELECT shop, SUM(amount) AS s, SUM(600 DIV amount) AS q FROM sales GROUP BY shop"
    )


def test_a_run_without_changes_moves_all_tables_without_a_spark_job(hr: Headrace) -> None:
    ran(hr)
    tracker = hr.spark.sparkContext.statusTracker()
    hr.spark.sparkContext.setJobGroup("quiet", "a quiet run")
    report = hr.run_once(at=datetime.now(UTC) + timedelta(hours=1))
    assert {one.action for one in report} == {"NO_DATA"}
    assert len(report) == len(TABLES)
    assert set(stamps(hr).values()) == {report.data_timestamp}
    assert not tracker.getJobIdsForGroup("quiet")
    assert not tracker.getActiveJobsIds()


def test_a_source_is_read_once_for_tables_that_use_other_columns(
    hr: Headrace, monkeypatch: pytest.MonkeyPatch
) -> None:
    queries = {
        "visitors": "SELECT DISTINCT who FROM visits",
        "stays": "SELECT place, SUM(minutes) AS minutes FROM visits GROUP BY place",
        "places": "SELECT id, place FROM visits WHERE place <> 'x'",
    }
    hr.sql("CREATE TABLE visits (id INT, who STRING, place STRING, minutes INT) USING delta")
    hr.sql("INSERT INTO visits VALUES (1, 'a', 'x', 5), (2, NULL, 'y', 7), (3, 'b', 'y', 9)")
    for name, query in queries.items():
        hr.create_stream_table(name, query, refresh_mode="DIFFERENTIAL")
    ran(hr)
    reads, read = [], shared.held_changes

    def counted(*given: Any, **limits: Any) -> Any:
        reads.append(given)
        return read(*given, **limits)

    monkeypatch.setattr(shared, "held_changes", counted)
    for write, changed in (
        ("INSERT INTO visits VALUES (4, 'c', 'z', 1), (5, 'a', NULL, NULL)", {"visitors", "stays", "places"}),
        ("UPDATE visits SET minutes = minutes + 1 WHERE id < 3", {"stays"}),
        ("DELETE FROM visits WHERE id IN (2, 3)", {"visitors", "stays", "places"}),
    ):
        before = {name: rows(hr, f"SELECT * FROM {name}") for name in queries}
        del reads[:]
        hr.sql(write)
        report = ran(hr)
        assert {report[name].action for name in queries} == {"DIFFERENTIAL"}
        assert len(reads) == 1
        assert {name for name in queries if rows(hr, f"SELECT * FROM {name}") != before[name]} == changed
        assert all(holds(hr, name) for name in queries)
    for name in queries:
        hr.drop_stream_table(name)


def test_nothing_is_due_twice_in_one_period(hr: Headrace) -> None:
    ran(hr)
    assert hr.run_once(at=datetime.now(UTC) - timedelta(hours=1)).data_timestamp is None


def test_a_branch_that_fails_leaves_the_diamond_as_it_was(hr: Headrace) -> None:
    ran(hr)
    before = {table: rows(hr, f"SELECT * FROM {table}") for table in TABLES}
    at = stamps(hr)
    hr.sql("INSERT INTO sales VALUES (5, 2, 0)")
    report = ran(hr)
    assert report["shares"].error is not None
    assert "DIVIDE_BY_ZERO" in report["shares"].error.message
    assert (
        "The expression is 600 DIV amount; a row of default.base that it fails on is "
        "`id` = 5, `shop` = 2, `amount` = 0." in report["shares"].error.message
    )
    assert "default.shares, which is read together with it, failed" in report["sums"].reason
    assert "default.shares, which it reads, failed" in report["tip"].reason
    assert not report.ok
    for table in ("sums", "shares", "tip"):
        assert rows(hr, f"SELECT * FROM {table}") == before[table]
        assert stamps(hr)[table] == at[table]
    newest = {record.stream_table.table: record for record in reversed(hr.catalog.history())}
    assert {table: newest[table].state for table in ("sums", "shares", "tip")} == {
        "sums": "SKIPPED",
        "shares": "FAILED",
        "tip": "SKIPPED",
    }

    with_failure = hr.snapshot(tables=["base", "tip"])
    assert with_failure.data_timestamp == at["tip"]
    assert rows_of(with_failure, "SELECT COUNT(*) FROM base") == [(len(before["base"]),)]

    hr.sql("DELETE FROM sales WHERE id = 5")
    assert ran(hr).ok
    assert hr.catalog.find(hr.qualify("shares")).consecutive_errors == 0


def rows_of(snapshot: Snapshot, query: str) -> list[tuple[object, ...]]:
    return [tuple(row) for row in snapshot.sql(query).collect()]


def test_all_tables_of_a_tick_are_one_snapshot_while_writers_run(hr: Headrace) -> None:
    stop = threading.Event()

    def write() -> None:
        number = 100
        while not stop.is_set():
            hr.spark.sql(f"INSERT INTO sales VALUES ({number}, 3, 2)")
            number += 1

    hr.sql("INSERT INTO sales VALUES (99, 3, 2)")
    writer = threading.Thread(target=write)
    writer.start()
    try:
        moments = set()
        for _ in range(3):
            time.sleep(0.5)
            report = hr.run_once(at=datetime.now(UTC) + timedelta(hours=1))
            assert report.ok, str(report)
            moments.add(report.data_timestamp)
            count = "SELECT COUNT(*) AS n FROM {} WHERE shop = 3"
            snapshot = hr.snapshot(report.data_timestamp)
            [(of_source,)] = rows_of(snapshot, count.format("sales"))
            assert rows_of(snapshot, count.format("base")) == [(of_source,)]
            assert rows_of(snapshot, "SELECT s FROM tip WHERE shop = 3") == [(2 * int(str(of_source)),)]
    finally:
        stop.set()
        writer.join()
    assert len(moments) == 3
    assert ran(hr).ok


def test_a_commit_that_shows_up_late_breaks_no_snapshot(hr: Headrace) -> None:
    """A busy writer's commit gets its time before others can see it."""
    hr.sql("INSERT INTO sales VALUES (150, 3, 2)")
    moment = ran(hr).data_timestamp
    assert moment is not None
    count = "SELECT COUNT(*) AS n FROM sales WHERE shop = 3"
    before = rows_of(hr.snapshot(moment), count)
    hr.spark.sql("INSERT INTO sales VALUES (151, 3, 2)")
    log = hr._refresher.sources.find(hr.qualify("sales")).log
    late = Path(log.location, "_delta_log", f"{log.newest_version():020}.json")
    os.utime(late, (moment.timestamp() - 0.001, moment.timestamp() - 0.001))
    assert rows_of(hr.snapshot(moment), count) == before
    assert rows(hr, count) != before
    assert {one.action for one in ran(hr)} == {"DIFFERENTIAL"}
    assert rows_of(hr.snapshot(), count) == rows(hr, count)


def test_a_snapshot_of_no_common_moment_is_refused(hr: Headrace) -> None:
    assert ran(hr).ok
    hr.sql("INSERT INTO sales VALUES (200, 4, 8)")
    hr.refresh_stream_table("base")
    assert holds(hr, "base")
    with pytest.raises(HeadraceError, match="newest common moment") as refused:
        hr.snapshot(datetime.now(UTC), tables=["base", "tip"])
    assert refused.value.code == "no_snapshot"
    assert hr.snapshot().version("base") < hr.snapshot(tables=["base"]).version("base")
    assert ran(hr).ok
    assert hr.snapshot().data_timestamp == stamps(hr)["tip"]


def test_refresh_with_upstream_brings_all_to_one_moment(hr: Headrace) -> None:
    hr.sql("INSERT INTO sales VALUES (300, 5, 6)")
    [row] = hr.sql("REFRESH STREAM TABLE tip WITH UPSTREAM").collect()
    assert row.action == "DIFFERENTIAL"
    assert all(holds(hr, table) for table in TABLES)
    assert (5,) in rows(hr, "SELECT shop FROM tip")
    assert len(set(stamps(hr).values())) == 1


def test_suspended_tables_block_their_readers_until_resumed(hr: Headrace) -> None:
    hr.sql("ALTER STREAM TABLE base SUSPEND")
    for _ in range(2):
        report = ran(hr)
        assert {one.reason for one in report} == {"it reads default.base, which is suspended"}
    skipped = [one for one in hr.catalog.history(hr.qualify("tip")) if one.state == "SKIPPED"]
    assert len([one for one in skipped if "suspended" in one.reason]) == 1, "the same again prolongs a row"
    result = hr.refresh_stream_table("tip", upstream=True)
    assert (result.action, result.reason) == ("SKIPPED", "it reads default.base, which is suspended")

    assert hr.sql("ALTER STREAM TABLES SUSPEND").collect()[0].result.startswith("suspended default.shares")
    assert hr.run_once(at=datetime.now(UTC) + timedelta(hours=1)).data_timestamp is None
    assert "default.base" in hr.sql("ALTER STREAM TABLES RESUME").collect()[0].result
    assert {one.status for one in hr.catalog.all()} == {"ACTIVE"}
    assert ran(hr).ok


def test_a_moment_without_a_zone_is_refused(hr: Headrace) -> None:
    with pytest.raises(HeadraceError) as refused:
        hr.run_once(at=datetime(2026, 1, 1))
    assert refused.value.code == "invalid_moment"


def test_a_snapshot_is_of_a_moment_that_was(hr: Headrace) -> None:
    now = datetime.now(UTC)
    for at, why in (
        (now.replace(tzinfo=None), "no time zone"),
        (now + timedelta(minutes=5), "still to come"),
        (now.date(), "not a moment"),
    ):
        for tables in (None, ["tip"]):
            with pytest.raises(HeadraceError, match=why) as refused:
                hr.snapshot(at, tables=tables)
            assert refused.value.code == "invalid_moment"


def test_each_worker_runs_its_jobs_in_a_pool_of_its_own(hr: Headrace) -> None:
    workers, together, found = Workers(hr.spark, 2), threading.Barrier(2, timeout=60), list[str]()

    def work() -> str:
        together.wait()
        assert hr.spark.range(3).count() == 3
        return str(hr.spark.sparkContext.getLocalProperty("spark.scheduler.pool"))

    for _ in range(2):
        assert workers.start(work, found.append)
    workers.close()
    context = hr.spark.sparkContext._jsc.sc()
    assert str(context.getSchedulingMode()) == "FAIR"
    assert len(set(found)) == 2
    for pool in found:
        assert pool.startswith("headrace-")
        assert context.getPoolForName(pool).isDefined(), "Spark made the pool for the job"


def test_a_run_from_cron_prunes_the_history(hr: Headrace) -> None:
    hr.run_once()
    base, old = hr.qualify("base"), datetime.now(UTC) - timedelta(days=40)
    state = RefreshState.FAILED
    forgotten = hr.catalog.record_refresh(base, state=state, started_at=old, error="of last month").id
    hr.catalog.record_refresh(base, state=RefreshState.COMPLETED, started_at=datetime.now(UTC))
    hr.run_once()
    assert forgotten in {record.id for record in hr.catalog.history(base)}, "a process prunes rarely"
    known = hr.settings
    with headrace.connect(
        warehouse=known.warehouse, catalog_url=known.catalog_url, spark_conf=SMALL
    ) as another:
        another.run_once()
    assert forgotten not in {record.id for record in hr.catalog.history(base)}
