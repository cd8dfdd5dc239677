"""What a tick writes for many tables at once, on both back ends."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from headrace.catalog import Catalog, RefreshState, Status, StreamTable, sqlite_url
from headrace.sql.names import TableName
from tests.catalog.samples import new_table
from tests.postgres import PostgresServer, postgres_server

__all__ = ["postgres_server"]

T0 = datetime(2026, 3, 3, 12, tzinfo=UTC)
T1, T2 = T0 + timedelta(minutes=1), T0 + timedelta(minutes=2)
REASON = "no source changed"


@pytest.fixture(params=["sqlite", "postgresql"])
def catalog(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Catalog]:
    if request.param == "sqlite":
        url = sqlite_url(tmp_path / "catalog.db")
    else:
        server: PostgresServer = request.getfixturevalue("postgres_server")
        url = server.create_database()
    with Catalog.open(url) as opened:
        yield opened


def added(catalog: Catalog, count: int) -> list[StreamTable]:
    for number in range(count):
        fields = {"status": Status.ACTIVE, "data_timestamp": T0, "frontier": {}, "storage_version": 1}
        catalog.add(new_table(TableName("shop", f"t{number}"), **fields), [])
    return catalog.all()


def test_unchanged_tables_move_together_and_keep_one_row_each(catalog: Catalog) -> None:
    tables = added(catalog, 3)
    assert catalog.note_no_data(tables, T1, reason=REASON) == {table.name for table in tables}
    assert catalog.note_no_data(catalog.all(), T2, reason=REASON) == {table.name for table in tables}
    assert {table.data_timestamp for table in catalog.all()} == {T2}
    history = catalog.history()
    assert [(one.state, one.action, one.data_timestamp) for one in history] == [
        ("COMPLETED", "NO_DATA", T2)
    ] * 3


def test_a_change_between_two_quiet_spells_keeps_them_apart(catalog: Catalog) -> None:
    [table] = added(catalog, 1)
    catalog.note_no_data([table], T1, reason=REASON)
    catalog.record_refresh(table.name, state=RefreshState.FAILED, started_at=T1, error="broken")
    catalog.note_no_data(catalog.all(), T2, reason=REASON)
    assert [one.data_timestamp for one in catalog.history()] == [T2, None, T1]


def test_a_table_that_moved_or_is_held_is_left_alone(catalog: Catalog) -> None:
    touched, held, suspended, ahead, free = added(catalog, 5)
    catalog.update(touched.name, last_error="somebody was here")
    lease = catalog.acquire_lease(held.name, owner="elsewhere/1-2/3/4", ttl=timedelta(minutes=1))
    assert lease is not None
    catalog.update(suspended.name, status=Status.SUSPENDED)
    catalog.update(ahead.name, data_timestamp=T2)
    fresh = {table.name: table for table in catalog.all()}
    asked = [touched, held, fresh[suspended.name], fresh[ahead.name], free]
    assert catalog.note_no_data(asked, T1, reason=REASON) == {free.name}
    stamps = {table.name: table.data_timestamp for table in catalog.all()}
    assert stamps == {touched.name: T0, held.name: T0, suspended.name: T0, ahead.name: T2, free.name: T1}


def test_a_table_that_moved_on_has_no_errors_left(catalog: Catalog) -> None:
    [table] = added(catalog, 1)
    failed = catalog.update(table.name, last_error="the disk was full", consecutive_errors=2)
    assert catalog.note_no_data([failed], T1, reason=REASON) == {table.name}
    moved = catalog.find(table.name)
    assert (moved.data_timestamp, moved.last_error, moved.consecutive_errors) == (T1, None, 0)


def test_a_thousand_tables_take_one_transaction(catalog: Catalog) -> None:
    tables = added(catalog, 1000)
    assert len(catalog.note_no_data(tables, T1, reason=REASON)) == 1000
    assert {table.data_timestamp for table in catalog.all()} == {T1}
    assert len(catalog.history()) == 1000


def test_the_same_reason_prolongs_a_skip_and_another_begins_one(catalog: Catalog) -> None:
    [table] = added(catalog, 1)
    gone = TableName("shop", "dropped")
    catalog.note_skipped({table.name: "it reads a", gone: "it is gone"}, T1)
    catalog.note_skipped({table.name: "it reads a"}, T2)
    catalog.note_skipped({table.name: "it reads b"}, T2)
    assert [(one.state, one.action, one.reason, one.data_timestamp) for one in catalog.history()] == [
        ("SKIPPED", "SKIPPED", "it reads b", T2),
        ("SKIPPED", "SKIPPED", "it reads a", T2),
    ]
    assert catalog.find(table.name).data_timestamp == T0
