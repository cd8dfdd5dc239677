"""The service on real Spark: by the clock and by new versions, through failures, until it is stopped."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import headrace
from headrace import Headrace
from headrace.catalog import Alert, sqlite_url
from headrace.config import Settings
from headrace.errors import HeadraceError
from headrace.scheduler.clock import canonical_period, tick_at
from headrace.scheduler.report import Outcome
from headrace.scheduler.service import Service
from headrace.scheduler.tick import Tick
from headrace.sql.names import TableName
from tests.conftest import SMALL, holds, rows
from tests.postgres import PostgresServer, postgres_server

__all__ = ["postgres_server"]

PATIENCE = 180


def until(condition: Callable[[], bool], what: str) -> None:
    """Wait until something holds, and fail when it never does."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.1)


@contextmanager
def running(hr: Headrace, **options: Any) -> Iterator[Service]:
    """Run the service in a thread; it must end when it is told to."""
    service = hr.service(**options)
    thread = threading.Thread(target=service.run)
    thread.start()
    try:
        yield service
    finally:
        service.stop()
        thread.join(PATIENCE)
        assert not thread.is_alive(), "the service must stop"


@pytest.fixture(scope="module")
def hr(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Headrace]:
    folder: Path = tmp_path_factory.mktemp("service")
    with headrace.connect(warehouse=folder / "lake", max_consecutive_errors=2, spark_conf=SMALL) as hr:
        hr.sql("CREATE TABLE sales (id INT, amount INT) USING delta")
        hr.sql("INSERT INTO sales VALUES (1, 10)")
        hr.sql("CREATE TABLE doomed (id INT) USING delta")
        hr.sql("CREATE STREAM TABLE base SCHEDULE DOWNSTREAM AS SELECT id, amount FROM sales")
        hr.sql("CREATE STREAM TABLE total SCHEDULE '3 seconds' AS SELECT SUM(amount) AS s FROM base")
        hr.sql("CREATE STREAM TABLE risky SCHEDULE '3 seconds' AS SELECT id, 100 DIV amount AS q FROM sales")
        hr.sql("CREATE STREAM TABLE at_once REFRESH MODE IMMEDIATE AS SELECT id FROM sales")
        hr.sql("CREATE STREAM TABLE orphan SCHEDULE '3 seconds' AS SELECT id FROM doomed")
        yield hr


def verified(hr: Headrace, *names: str) -> bool:
    return all(holds(hr, name) for name in names)


def alerts(hr: Headrace) -> list[tuple[str, str]]:
    return [(alert.kind, str(alert.stream_table)) for alert in hr.catalog.alerts()]


def test_tables_follow_writers_that_know_nothing_of_them(hr: Headrace) -> None:
    with running(hr) as service:
        hr.spark.sql("INSERT INTO sales VALUES (2, 20)")
        until(lambda: rows(hr, "SELECT * FROM total") == [(30,)], "the total must follow by its schedule")
        until(lambda: (2,) in rows(hr, "SELECT * FROM at_once"), "an IMMEDIATE table must follow at once")
        until(lambda: service.health()["status"] == "ok", "a service at work is healthy")
        text = service.metrics()
    assert 'headrace_refreshes_total{action="DIFFERENTIAL",state="COMPLETED"}' in text
    assert 'headrace_lag_target_seconds{stream_table="default.total"} 3' in text.splitlines()
    assert 'headrace_stream_tables{status="ACTIVE"} 5' in text.splitlines()
    assert service.health()["status"] == "stopping"
    assert verified(hr, "base", "total", "risky", "at_once")
    assert not hr.catalog.running()


def test_a_listener_that_fails_does_not_end_the_service(hr: Headrace) -> None:
    told: list[str] = []

    def break_off(_tick: Tick, _name: TableName, outcome: Outcome) -> None:
        told.append(outcome.stream_table)
        raise BrokenPipeError("the terminal is gone")

    with running(hr, on_outcome=break_off) as service:
        hr.spark.sql("INSERT INTO sales VALUES (6, 60)")
        until(lambda: (6,) in rows(hr, "SELECT id FROM base"), "the service must go on")
        hr.spark.sql("DELETE FROM sales WHERE id = 6")
        until(lambda: (6,) not in rows(hr, "SELECT id FROM base"), "and again")
        until(lambda: service.health()["status"] == "ok", "a service at work is healthy")
    assert told
    assert verified(hr, "base", "total")


def test_a_failing_table_is_suspended_and_holds_up_nobody(hr: Headrace) -> None:
    heard: list[Alert] = []
    hr.on_alert(heard.append)
    risky = hr.qualify("risky")
    with running(hr):
        hr.spark.sql("INSERT INTO sales VALUES (3, 0)")
        until(lambda: hr.catalog.find(risky).status == "SUSPENDED", "two failures must suspend")
        until(lambda: (3,) in rows(hr, "SELECT id FROM base"), "others must go on")
        assert ("auto_suspended", "default.risky") in alerts(hr)
        hr.spark.sql("DELETE FROM sales WHERE id = 3")
        hr.sql("ALTER STREAM TABLE risky RESUME")
        until(lambda: hr.catalog.find(risky).consecutive_errors == 0, "it must recover")
        hr.spark.sql("INSERT INTO sales VALUES (4, 50)")
        until(lambda: (4, 2) in rows(hr, "SELECT * FROM risky"), "it must follow again")
    assert {alert.kind for alert in heard} >= {"refresh_failed", "auto_suspended"}
    assert verified(hr, "base", "total", "risky", "at_once")


def test_a_source_that_goes_and_comes_back(hr: Headrace) -> None:
    orphan = hr.qualify("orphan")
    with running(hr):
        hr.sql("DROP TABLE doomed")
        until(lambda: hr.catalog.find(orphan).status == "ERROR", "a missing source is an error")
        hr.spark.sql("INSERT INTO sales VALUES (5, 5)")
        until(lambda: (5,) in rows(hr, "SELECT id FROM base"), "others must go on")
        hr.sql("CREATE TABLE doomed (id INT) USING delta")
        hr.sql("INSERT INTO doomed VALUES (77)")
        until(lambda: rows(hr, "SELECT * FROM orphan") == [(77,)], "it must come back by itself")
    assert hr.catalog.find(orphan).status == "ACTIVE"
    assert verified(hr, "orphan", "base", "total")


def test_a_daily_table_does_not_wait_a_day_for_what_failed(hr: Headrace) -> None:
    hr.sql("CREATE TABLE lent (id INT) USING delta")
    hr.sql("CREATE STREAM TABLE daily SCHEDULE '1 day' AS SELECT id FROM lent")
    hr.sql("DROP TABLE lent")
    with pytest.raises(HeadraceError, match="gone"):
        hr.refresh_stream_table("daily")
    assert hr.catalog.find(hr.qualify("daily")).status == "ERROR"
    hr.sql("CREATE TABLE lent (id INT) USING delta")
    hr.sql("INSERT INTO lent VALUES (7)")
    with running(hr):
        until(lambda: rows(hr, "SELECT * FROM daily") == [(7,)], "it must come back by itself")
    assert hr.catalog.find(hr.qualify("daily")).status == "ACTIVE"
    assert verified(hr, "daily")
    hr.drop_stream_table("daily")


def test_a_daily_table_does_not_wait_a_day_for_what_a_killed_process_left(lake: Headrace) -> None:
    lake.sql("CREATE TABLE sales USING delta AS SELECT 7 AS id")
    long_ago = time.time() - 2 * 86400
    for commit in Path(lake._refresher.sources.find(lake.qualify("sales")).location).glob(
        "_delta_log/*.json"
    ):
        os.utime(commit, (long_ago, long_ago))
    lake.sql("CREATE STREAM TABLE nightly SCHEDULE '1 day' WITH (initialize = false) AS SELECT id FROM sales")
    name, tick = lake.qualify("nightly"), tick_at(canonical_period(86400), datetime.now(UTC))
    lease = lake.catalog.acquire_lease(name, owner="elsewhere/1-2/3/4", ttl=timedelta(milliseconds=1))
    lake.catalog.start_refresh(name, reason="first load", data_timestamp=tick, lease=lease)
    with running(lake):
        until(lambda: lake.catalog.find(name).status == "ACTIVE", "its tick must be done")
    assert lake.catalog.find(name).data_timestamp == tick
    assert verified(lake, "nightly")


def test_settings_are_read_anew(hr: Headrace) -> None:
    fresh: list[Settings] = []
    with running(hr, reload=lambda: fresh.pop() if fresh else None) as service:
        fresh.append(hr.settings.model_copy(update={"enabled": False, "max_concurrent_refreshes": 1}))
        until(lambda: not service.settings.enabled, "the new settings must be taken")
        until(lambda: not service.health()["running"], "what runs comes to its end")
        time.sleep(1)
        stamp = hr.catalog.find(hr.qualify("total")).data_timestamp
        time.sleep(4)
        assert hr.catalog.find(hr.qualify("total")).data_timestamp == stamp, "a disabled service rests"
        fresh.append(hr.settings)
        until(lambda: hr.catalog.find(hr.qualify("total")).data_timestamp != stamp, "and begins again")


def test_a_catalog_that_goes_away_comes_back(tmp_path: Path, postgres_server: PostgresServer) -> None:
    url = postgres_server.create_database()
    with headrace.connect(warehouse=tmp_path / "lake", catalog_url=url, spark_conf=SMALL) as hr:
        goes_on_without_its_catalog(hr, postgres_server.stop, postgres_server.start)


def test_a_catalog_file_that_goes_away_comes_back(tmp_path: Path) -> None:
    path = tmp_path / "catalog" / "catalog.db"
    away = tmp_path / "away"
    with headrace.connect(warehouse=tmp_path / "lake", catalog_url=sqlite_url(path), spark_conf=SMALL) as hr:

        def leave() -> None:
            away.mkdir()
            for file in path.parent.iterdir():
                file.rename(away / file.name)

        def come_back() -> None:
            assert not list(path.parent.iterdir()), "no empty catalog is made in its place"
            for file in away.iterdir():
                file.rename(path.parent / file.name)

        goes_on_without_its_catalog(hr, leave, come_back)


def goes_on_without_its_catalog(
    hr: Headrace, leave: Callable[[], None], come_back: Callable[[], None]
) -> None:
    hr.sql("CREATE TABLE sales (id INT) USING delta")
    hr.sql("CREATE STREAM TABLE ids SCHEDULE '3 seconds' AS SELECT id FROM sales")
    with running(hr) as service:
        leave()
        try:
            hr.spark.sql("INSERT INTO sales VALUES (1)")
            until(lambda: service.health()["status"] == "failing", "trouble must show")
        finally:
            come_back()
        until(lambda: service.health()["status"] == "ok", "it must go on when the catalog is back")
        until(lambda: rows(hr, "SELECT * FROM ids") == [(1,)], "and lose nothing")
    assert verified(hr, "ids")
