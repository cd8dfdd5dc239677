"""The locks of diamonds: held while their tables are under way, and no longer."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import pytest

from headrace.catalog import Action, Catalog, Dependency, Lease, SourceVersion, Status, sqlite_url
from headrace.config import load_settings
from headrace.refresh.result import RefreshResult
from headrace.refresh.run import Refresher
from headrace.scheduler.dispatch import Dispatcher
from headrace.scheduler.plan import plan_tables
from headrace.scheduler.run import Scheduler
from headrace.scheduler.tick import Tick
from headrace.sources.shared import SharedChanges
from headrace.sql.names import TableName
from tests.catalog.samples import new_table
from tests.scheduler.test_dispatch import NO_SPARK, assert_set

EDGES = {"l": "x", "r": "x", "tip": "l r", "slow": "y"}


class Held:
    """Refreshes at once, but for one table that waits until it may end; sources stand still."""

    def __init__(self, catalog: Catalog) -> None:
        self.sources = self
        self.changes = SharedChanges()
        self.may_end = threading.Event()
        self._catalog = catalog

    def find(self, _name: TableName) -> Held:
        return self

    def version_at(self, _moment: datetime) -> SourceVersion:
        return SourceVersion(1, "x")

    def refresh(self, name: TableName, *, moment: datetime, **_: Any) -> RefreshResult:
        if name.table == "slow":
            assert_set(self.may_end)
        self._catalog.update(name, data_timestamp=moment)
        return RefreshResult(stream_table=str(name), action=Action.DIFFERENTIAL, reason="held")


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[Catalog]:
    with Catalog.open(sqlite_url(tmp_path / "catalog.db")) as opened:
        for reader, sources in EDGES.items():
            name = TableName("s", reader)
            reads = [
                Dependency(name, TableName("s", one), "STREAM_TABLE" if one in EDGES else "TABLE")
                for one in sources.split()
            ]
            opened.add(new_table(name, status=Status.ACTIVE, location="/nowhere"), reads)
        yield opened


@pytest.mark.timeout(60)
def test_a_slow_table_holds_up_no_diamond_of_its_tick(catalog: Catalog) -> None:
    held = Held(catalog)
    scheduler = Scheduler(NO_SPARK, catalog, cast(Refresher, held), load_settings())
    dispatcher = scheduler.dispatcher()
    lock = f"diamond {TableName('s', 'l')}"

    def begin(locks: ExitStack) -> Tick:
        network, tables = scheduler.networks.look()
        plan = plan_tables(network, tables, tables, moment=datetime.now(UTC), busy=dispatcher.busy)
        assert plan is not None
        tick = locks.enter_context(scheduler.begin(network, tables, plan))
        dispatcher.add(tick)
        return tick

    with ExitStack() as locks:
        first = begin(locks)
        assert catalog.lease_owner(lock) is not None
        until_only_slow_is_open(dispatcher, first)
        assert catalog.lease_owner(lock) is None, "its tables have ended"
        second = begin(locks)
        assert catalog.lease_owner(lock) is not None
        assert not second.elsewhere
        while not second.is_done:
            dispatcher.step(1)
        assert second.report().ok
        assert not first.is_done
        held.may_end.set()
        while not first.is_done:
            dispatcher.step(1)
    assert catalog.lease_owner(lock) is None
    scheduler.close()


def until_only_slow_is_open(dispatcher: Dispatcher, tick: Tick) -> None:
    while tick.open != {TableName("s", "slow")}:
        dispatcher.step(1)


def test_a_diamond_that_another_has_is_left_to_it(catalog: Catalog) -> None:
    held = Held(catalog)
    scheduler = Scheduler(NO_SPARK, catalog, cast(Refresher, held), load_settings())
    network, tables = scheduler.networks.look()
    plan = plan_tables(network, tables, tables, moment=datetime.now(UTC))
    assert plan is not None
    with scheduler.begin(network, tables, plan) as first, scheduler.begin(network, tables, plan) as second:
        assert not first.elsewhere
        assert {name.table for name in second.elsewhere} == {"l", "r", "tip"}
    lease = catalog.acquire_lease(f"diamond {TableName('s', 'l')}", owner="me", ttl=timedelta(seconds=1))
    assert isinstance(lease, Lease), "nobody has it any more"
    scheduler.close()
