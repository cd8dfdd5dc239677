"""What befalls a stream table while somebody refreshes, creates or changes it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import delete

import headrace
from headrace import Headrace, HeadraceError
from headrace.api import alone, define
from headrace.catalog import Action, schema
from headrace.catalog.database import sqlite_url
from headrace.refresh import recompute
from headrace.refresh.result import RefreshResult
from tests.conftest import holds, refreshed, rows

TOTALS = "SELECT customer, SUM(amount) AS total FROM orders GROUP BY customer"
REGIONS = "SELECT id, region FROM customers WHERE region IS NOT NULL"


@pytest.fixture
def totals(shop: Headrace) -> Headrace:
    shop.sql(f"CREATE STREAM TABLE totals AS {TOTALS}")
    return shop


@contextmanager
def refreshing(hr: Headrace, name: str) -> Iterator[tuple[ThreadPoolExecutor, Future[RefreshResult]]]:
    """Hold a full refresh right before its commit while the block runs."""
    reached, go = threading.Event(), threading.Event()

    def gate(_: Action) -> None:
        reached.set()
        assert go.wait(60)

    with ThreadPoolExecutor(2) as pool:
        try:
            refresh = pool.submit(hr._refresher.refresh, hr.qualify(name), full=True, gate=gate)
            assert reached.wait(60)
            yield pool, refresh
        finally:
            go.set()


@pytest.mark.parametrize(
    "statement",
    [f"ALTER STREAM TABLE totals AS {REGIONS}", f"CREATE OR REPLACE STREAM TABLE totals AS {REGIONS}"],
)
def test_another_query_waits_for_the_refresh_under_way(totals: Headrace, statement: str) -> None:
    with refreshing(totals, "totals") as (pool, refresh):
        redefined = pool.submit(totals.sql, statement)
        time.sleep(2)
        assert not redefined.done()
    assert refresh.result().action == "FULL"
    assert "loaded anew" in redefined.result().collect()[0][0]
    assert rows(totals, "SELECT * FROM totals") == rows(totals, REGIONS) != []
    assert holds(totals, "totals")
    assert refreshed(totals, "totals").action == "NO_DATA"
    totals.sql("UPDATE customers SET region = 'east' WHERE id = 2")
    assert refreshed(totals, "totals").action == "DIFFERENTIAL"
    assert (2, "east") in rows(totals, "SELECT * FROM totals")


def test_another_query_does_not_wait_for_ever(totals: Headrace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alone, "WAIT_SECONDS", 0.2)
    with refreshing(totals, "totals"), pytest.raises(HeadraceError, match="cannot be redefined") as refused:
        totals.sql(f"ALTER STREAM TABLE totals AS {REGIONS}")
    assert refused.value.code == "refresh_running"
    assert totals.catalog.find(totals.qualify("totals")).query == TOTALS
    assert {row.source for row in totals.dependencies().collect()} == {"default.orders"}
    totals.sql("INSERT INTO orders VALUES (8, 8, 8)")
    assert refreshed(totals, "totals").action == "DIFFERENTIAL"
    assert (8, 8) in rows(totals, "SELECT * FROM totals")


def test_a_query_taken_back_after_it_was_loaded_leaves_no_row(
    shop: Headrace, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.sql(f"CREATE STREAM TABLE totals REFRESH MODE DIFFERENTIAL AS {TOTALS}")
    monkeypatch.setattr(recompute, "misread", lambda *_: "another row")
    with pytest.raises(HeadraceError) as refused:
        shop.sql(f"ALTER STREAM TABLE totals AS {TOTALS} HAVING customer > 1")
    monkeypatch.undo()
    assert refused.value.code == "plan_differs"
    assert shop.catalog.find(shop.qualify("totals")).query == TOTALS
    assert refreshed(shop, "totals").action == "REINITIALIZE"
    assert rows(shop, "SELECT * FROM totals") == rows(shop, TOTALS)
    assert shop.catalog.find(shop.qualify("totals")).effective_mode == "DIFFERENTIAL"


@pytest.mark.parametrize("full", [True, False])
def test_suspended_during_a_refresh_stays_suspended(totals: Headrace, full: bool) -> None:
    name = totals.qualify("totals")
    totals.sql("INSERT INTO orders VALUES (8, 8, 8)")

    def suspend(_: Action) -> None:
        totals.sql("ALTER STREAM TABLE totals SUSPEND")

    def resume(_: Action) -> None:
        totals.sql("ALTER STREAM TABLE totals RESUME")

    result = totals._refresher.refresh(name, full=full, gate=suspend)
    assert result.action == ("FULL" if full else "DIFFERENTIAL")
    assert (8, 8) in rows(totals, "SELECT * FROM totals")
    assert totals.catalog.find(name).status == "SUSPENDED"
    totals.sql("INSERT INTO orders VALUES (9, 9, 9)")
    assert totals._refresher.refresh(name, full=full, gate=resume).action == result.action
    assert totals.catalog.find(name).status == "ACTIVE"
    assert holds(totals, "totals")


def test_suspended_while_another_query_fails_stays_suspended(
    totals: Headrace, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, refresh = totals.qualify("totals"), totals._refresher.refresh

    def suspended(*given: Any, **options: Any) -> RefreshResult:
        totals.sql("ALTER STREAM TABLE totals SUSPEND")
        totals.sql("ALTER STREAM TABLE totals SET SCHEDULE '7 minutes'")
        return refresh(*given, **options)

    monkeypatch.setattr(totals._refresher, "refresh", suspended)
    with pytest.raises(HeadraceError, match="DIVIDE_BY_ZERO"):
        totals.sql("ALTER STREAM TABLE totals AS SELECT id, 1 / (id - 1) AS x FROM customers")
    table = totals.catalog.find(name)
    assert (table.query, table.status, table.schedule) == (TOTALS, "SUSPENDED", "7 minutes")
    assert (table.consecutive_errors, table.last_error, table.reinitialize_reason) == (0, None, None)


def test_a_table_under_creation_is_nobody_else_s(shop: Headrace, monkeypatch: pytest.MonkeyPatch) -> None:
    name, create, refresh = shop.qualify("totals"), define.create_storage, shop._refresher.refresh
    seen: list[object] = []

    def create_late(*given: Any, **options: Any) -> None:
        seen.append(shop.run_once().outcomes)
        create(*given, **options)

    def refresh_second(*given: Any, **options: Any) -> RefreshResult:
        seen.append(refresh(name).action)
        return refresh(*given, **options)

    monkeypatch.setattr(define, "create_storage", create_late)
    monkeypatch.setattr(shop._refresher, "refresh", refresh_second)
    shop.sql(f"CREATE STREAM TABLE totals SCHEDULE '10 seconds' AS {TOTALS}")
    monkeypatch.undo()
    assert seen == [(), "SKIPPED"]
    assert shop.catalog.history(name)[0].action == "FULL"
    assert (shop.catalog.find(name).status, shop.alerts().count()) == ("ACTIVE", 0)
    assert refreshed(shop, "totals").action == "NO_DATA"
    assert rows(shop, "SELECT * FROM totals") == rows(shop, TOTALS)


def test_a_table_whose_creator_died_can_be_dropped(shop: Headrace, monkeypatch: pytest.MonkeyPatch) -> None:
    def die(*_given: Any, **_options: Any) -> None:
        raise SystemExit

    monkeypatch.setattr(define, "create_storage", die)
    monkeypatch.setattr(shop.definer, "_undo_on_failure", lambda _table, step: step())
    with pytest.raises(SystemExit):
        shop.sql(f"CREATE STREAM TABLE totals AS {TOTALS}")
    monkeypatch.undo()
    for full in (False, True):
        with pytest.raises(HeadraceError, match="whoever created it ended") as failure:
            shop.refresh_stream_table("totals", full=full)
        assert failure.value.code == "storage_missing"
    shop.sql("DROP STREAM TABLE totals")
    shop.sql(f"CREATE STREAM TABLE totals AS {TOTALS}")
    assert rows(shop, "SELECT * FROM totals") == rows(shop, TOTALS)


@pytest.mark.parametrize("writer", ["auto", "spark"])
def test_a_process_that_slept_overwrites_nothing_newer(totals: Headrace, writer: str) -> None:
    """Its lease ended meanwhile, another refreshed, and its heartbeat has not told it yet."""
    name = totals.qualify("totals")
    totals._refresher.use(totals.settings.model_copy(update={"apply": writer}))
    url = sqlite_url(totals.settings.catalog_file)
    with headrace.connect(spark=totals.spark, catalog_url=url) as other:

        def sleep(_: Action) -> None:
            with totals.catalog._database.write() as connection:
                connection.execute(delete(schema.leases))
            other.sql("INSERT INTO orders VALUES (8, 8, 8)")
            assert other.refresh_stream_table("totals").action == "DIFFERENTIAL"

        with pytest.raises(HeadraceError) as failure:
            totals._refresher.refresh(name, full=True, gate=sleep)
    assert failure.value.code == "refresh_overtaken"
    assert (8, 8) in rows(totals, "SELECT * FROM totals")
    assert refreshed(totals, "totals").action == "NO_DATA"
    totals.sql("OPTIMIZE totals")
    totals.sql("INSERT INTO orders VALUES (9, 9, 9)")
    assert refreshed(totals, "totals", full=True).action == "FULL"
    assert (9, 9) in rows(totals, "SELECT * FROM totals")
