"""Stream tables and dependencies: what goes in comes out, whole or not at all."""

from __future__ import annotations

import multiprocessing
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from headrace.catalog import Catalog, Dependency, RefreshState, SourceVersion, Status
from headrace.errors import HeadraceError
from headrace.sql.names import TableName
from tests.catalog.samples import ORDERS, TOP, TOTALS, new_table, reads


def test_what_is_added_is_found_again(catalog: Catalog, catalog_url: str) -> None:
    moment = datetime(2026, 3, 29, 2, 30, 0, 123456, tzinfo=timezone(timedelta(hours=2)))
    frontier = {"shop.orders": SourceVersion(7, "0f-1")}
    table = new_table(
        comment="totals per customer, in €",
        cluster_by=("customer", "odd `name`"),
        options={"initialize": "false"},
        frontier=frontier,
        data_timestamp=moment,
        table_id="9a",
        storage_version=2**40,
    )
    stored = catalog.add(table, [reads(TOTALS, ORDERS)])
    for field in vars(table):
        assert getattr(stored, field) == getattr(table, field), field
    assert stored.status is Status.INITIALIZING
    assert stored.data_timestamp is not None
    assert stored.data_timestamp.tzinfo is UTC
    assert stored.created_at == stored.updated_at
    assert datetime.now(UTC) - stored.created_at < timedelta(minutes=1)
    with Catalog.open(catalog_url) as other:
        assert other.get(TOTALS) == other.find(TOTALS) == stored
        assert other.all() == [stored]
        assert other.dependencies() == other.dependencies(TOTALS) == [reads(TOTALS, ORDERS)]


@pytest.mark.parametrize("field", ["query", "comment", "location"])
def test_texts_are_kept_as_they_are(catalog: Catalog, field: str) -> None:
    odd = "'; DROP TABLE stream_tables; -- \" ` % :x {} \\ \n\t 漢字 🌊"
    assert getattr(catalog.add(new_table(**{field: odd}), []), field) == odd


def test_names_that_read_alike_stay_apart(catalog: Catalog) -> None:
    names = [
        TableName("a", "b"),
        TableName("a", "b", "cat"),
        TableName("a.b", "c"),
        TableName("a", "b.c"),
        TableName("b", "c", "a"),
        TableName("a", "b`c d"),
        TableName("größe", "表"),
    ]
    for name in names:
        catalog.add(new_table(name), [Dependency(name, other, "TABLE") for other in names])
    assert {table.name for table in catalog.all()} == set(names)
    assert {one.source for one in catalog.dependencies(names[0])} == set(names)


def test_a_moment_without_time_zone_is_refused(catalog: Catalog) -> None:
    with pytest.raises(Exception, match="no time zone"):
        catalog.add(new_table(data_timestamp=datetime(2026, 1, 1)), [])
    assert catalog.all() == []


def test_an_unknown_table_is_named_with_its_nearest(catalog: Catalog) -> None:
    catalog.add(new_table(), [])
    assert catalog.get(TOP) is None
    for name, hint in [("totls", "Did you mean shop.totals?"), ("zzz", "SHOW STREAM TABLES lists them.")]:
        with pytest.raises(HeadraceError) as raised:
            catalog.find(TableName("shop", name))
        assert (raised.value.code, raised.value.hint) == ("unknown_stream_table", hint)
    with pytest.raises(HeadraceError, match=r"no stream table default\.totals") as raised:
        catalog.find(TableName("default", "totals"))
    assert raised.value.hint == "Did you mean shop.totals?"


def test_a_taken_name_changes_nothing(catalog: Catalog) -> None:
    stored = catalog.add(new_table(), [reads(TOTALS, ORDERS)])
    with pytest.raises(HeadraceError) as raised:
        catalog.add(new_table(query="SELECT 1"), [])
    assert raised.value.code == "name_taken"
    assert catalog.all() == [stored]
    assert catalog.dependencies() == [reads(TOTALS, ORDERS)]


def test_an_unknown_upstream_adds_nothing(catalog: Catalog) -> None:
    with pytest.raises(HeadraceError) as raised:
        catalog.add(new_table(TOP), [reads(TOP, TOTALS, "STREAM_TABLE")])
    assert raised.value.code == "unknown_stream_table"
    assert catalog.all() == []


def test_update_changes_what_it_is_told(catalog: Catalog) -> None:
    before = catalog.add(new_table(), [])
    after = catalog.update(TOTALS, status=Status.SUSPENDED, schedule="5 minutes", comment=None)
    assert (after.status, after.schedule) == (Status.SUSPENDED, "5 minutes")
    assert after.updated_at > before.updated_at
    assert catalog.get(TOTALS) == after
    with pytest.raises(HeadraceError, match="no stream table"):
        catalog.update(TOP, status=Status.ACTIVE)
    with pytest.raises(TypeError, match="statuz"):
        catalog.update(TOTALS, statuz="x")  # type: ignore[call-arg]  # on purpose


def test_redefine_replaces_the_dependencies(catalog: Catalog) -> None:
    lines = TableName("shop", "lines")
    catalog.add(new_table(), [reads(TOTALS, ORDERS)])
    after = catalog.redefine(TOTALS, {"query": "SELECT 2"}, [reads(TOTALS, lines)])
    assert after.query == "SELECT 2"
    assert catalog.dependencies() == [reads(TOTALS, lines)]
    with pytest.raises(HeadraceError):
        catalog.redefine(TOTALS, {"query": "SELECT 3"}, [reads(TOTALS, TOP, "STREAM_TABLE")])
    assert catalog.get(TOTALS) == after
    assert catalog.dependencies() == [reads(TOTALS, lines)]


def test_rename_moves_everything_that_names_the_table(catalog: Catalog) -> None:
    new = TableName("shop", "sums")
    first = catalog.add(new_table(), [reads(TOTALS, ORDERS)])
    frontier = {"shop.totals": SourceVersion(3, "t"), "shop.orders": SourceVersion(9, "o")}
    catalog.add(new_table(TOP, frontier=frontier), [reads(TOP, TOTALS, "STREAM_TABLE")])
    catalog.record_refresh(TOTALS, state=RefreshState.COMPLETED, started_at=datetime.now(UTC))
    catalog.raise_alert("lag_exceeded", "late", TOTALS)
    renamed = catalog.rename(TOTALS, new)
    assert (renamed.id, renamed.name) == (first.id, new)
    assert catalog.get(TOTALS) is None
    assert catalog.dependents(new) == [TOP]
    assert catalog.dependents(TOTALS) == []
    assert catalog.find(TOP).frontier == {
        "shop.sums": SourceVersion(3, "t"),
        "shop.orders": SourceVersion(9, "o"),
    }
    assert [record.stream_table for record in catalog.history()] == [new]
    assert [alert.stream_table for alert in catalog.alerts()] == [new]


def test_rename_onto_a_taken_name_changes_nothing(catalog: Catalog) -> None:
    before = [catalog.add(new_table(TOP), []), catalog.add(new_table(), [reads(TOTALS, ORDERS)])]
    with pytest.raises(HeadraceError) as raised:
        catalog.rename(TOTALS, TOP)
    assert raised.value.code == "name_taken"
    assert catalog.all() == before


def test_remove_refuses_while_others_read(catalog: Catalog) -> None:
    catalog.add(new_table(), [reads(TOTALS, ORDERS)])
    catalog.add(new_table(TOP), [reads(TOP, TOTALS, "STREAM_TABLE")])
    with pytest.raises(HeadraceError, match=r"read by shop\.top") as raised:
        catalog.remove(TOTALS)
    assert raised.value.code == "has_dependents"
    catalog.remove(TOP)
    catalog.remove(TOTALS)
    assert catalog.all() == []
    assert catalog.dependencies() == []
    with pytest.raises(HeadraceError, match="no stream table"):
        catalog.remove(TOTALS)


def test_a_table_created_again_is_another(catalog: Catalog) -> None:
    first = catalog.add(new_table(), [])
    catalog.remove(TOTALS)
    assert catalog.add(new_table(), []).id != first.id


def test_generation_grows_with_definitions_only(catalog: Catalog, catalog_url: str) -> None:
    seen = [catalog.generation()]

    def grew() -> bool:
        seen.append(catalog.generation())
        return seen[-1] > seen[-2]

    catalog.add(new_table(), [])
    assert grew()
    catalog.update(TOTALS, schedule="2 minutes")
    assert grew()
    catalog.update(TOTALS, status=Status.ACTIVE, frontier={})
    catalog.record_refresh(TOTALS, state=RefreshState.COMPLETED, started_at=datetime.now(UTC))
    assert not grew()
    catalog.redefine(TOTALS, {"query": "SELECT 2"}, [])
    assert grew()
    catalog.rename(TOTALS, TOP)
    assert grew()
    with Catalog.open(catalog_url) as other:
        other.remove(TOP)
    assert grew()


def test_no_table_is_left_reading_a_dropped_one(catalog: Catalog) -> None:
    """A creation over a table and its drop, at once: one of the two must give way."""
    for _ in range(10):
        catalog.add(new_table(), [])
        start = threading.Barrier(2)

        def attempt(work: Callable[[], object], start: threading.Barrier = start) -> str:
            start.wait()
            try:
                work()
            except HeadraceError as error:
                return error.code
            return "done"

        with ThreadPoolExecutor(2) as pool:
            added = pool.submit(
                attempt, lambda: catalog.add(new_table(TOP), [reads(TOP, TOTALS, "STREAM_TABLE")])
            )
            removed = pool.submit(attempt, lambda: catalog.remove(TOTALS))
        assert (added.result(), removed.result()) in [
            ("done", "has_dependents"),
            ("unknown_stream_table", "done"),
        ]
        for table in catalog.all():
            catalog.remove(table.name)


def test_of_two_processes_that_add_one_name_one_wins(catalog_url: str) -> None:
    spawn = multiprocessing.get_context("spawn")
    barrier, answers = spawn.Barrier(2), spawn.Queue()
    workers = [spawn.Process(target=_add_names, args=(catalog_url, barrier, answers)) for _ in range(2)]
    for worker in workers:
        worker.start()
    outcomes = [answers.get(timeout=60) for _ in workers]
    for worker in workers:
        worker.join(timeout=60)
    for first, second in zip(*outcomes, strict=True):
        assert sorted([first, second]) == ["added", "name_taken"]
    with Catalog.open(catalog_url) as catalog:
        assert len(catalog.all()) == len(catalog.dependencies()) == len(outcomes[0])


def _add_names(url: str, barrier: Any, answers: Any) -> None:
    """Open a catalog that does not exist yet, at the same instant as another, and add the same names."""
    barrier.wait()
    outcomes = []
    with Catalog.open(url) as catalog:
        for number in range(20):
            barrier.wait()
            name = TableName("shop", f"t{number:02}")
            try:
                catalog.add(new_table(name), [reads(name, ORDERS)])
                outcomes.append("added")
            except HeadraceError as error:
                outcomes.append(error.code)
    answers.put(outcomes)
