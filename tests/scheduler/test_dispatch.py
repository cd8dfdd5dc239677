"""The dispatcher: order, room, urgency, retries; with refreshes that follow a script in place of Spark."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import pytest

from headrace.catalog import Action, Catalog, Dependency, RefreshState, SourceVersion, Status, sqlite_url
from headrace.errors import HeadraceError
from headrace.refresh.result import RefreshResult
from headrace.refresh.run import Refresher
from headrace.scheduler import dispatch
from headrace.scheduler.dispatch import Dispatcher
from headrace.scheduler.network import Networks
from headrace.scheduler.plan import plan_tables
from headrace.scheduler.report import skipped
from headrace.scheduler.tick import Tick
from headrace.scheduler.workers import Workers
from headrace.sql.names import TableName
from tests.catalog.samples import new_table

NO_SPARK = cast(Any, object())


class Scripted:
    """Does for each table what the test says, and keeps the order in which they began and ended."""

    def __init__(self) -> None:
        self.script: dict[str, Callable[[], None]] = {}
        self.log: list[str] = []
        self.will_retry: dict[str, list[bool]] = {}
        self.most_at_once = 0
        self._now = 0
        self._lock = threading.Lock()

    def refresh(self, name: TableName, *, will_retry: bool, **_: Any) -> RefreshResult:
        with self._lock:
            self.will_retry.setdefault(name.table, []).append(will_retry)
            self._now += 1
            self.most_at_once = max(self.most_at_once, self._now)
            self.log.append(f"+{name.table}")
        try:
            self.script.get(name.table, lambda: None)()
        finally:
            with self._lock:
                self._now -= 1
                self.log.append(f"-{name.table}")
        return RefreshResult(stream_table=str(name), action=Action.DIFFERENTIAL, reason="scripted")


class Bench:
    """A catalog, a graph given as `reader: sources`, and a dispatcher over it."""

    def __init__(self, catalog: Catalog, limit: int) -> None:
        self.catalog = catalog
        self.refresher = Scripted()
        self.workers = Workers(NO_SPARK, limit)
        self.dispatcher = Dispatcher(catalog, cast(Refresher, self.refresher), self.workers)

    def tick(self, edges: dict[str, str], **schedules: str) -> Tick:
        for reader, sources in edges.items():
            name = TableName("s", reader)
            fields = {"status": Status.ACTIVE, "location": "/nowhere"}
            reads = [
                Dependency(name, TableName("s", one), "STREAM_TABLE" if one in edges else "TABLE")
                for one in sources.split()
            ]
            self.catalog.add(new_table(name, schedule=schedules.get(reader, "1 minute"), **fields), reads)
        network, tables = Networks(self.catalog).look()
        plan = plan_tables(network, tables, tables, moment=datetime.now(UTC))
        assert plan is not None
        return Tick(plan, network, {})

    def run(self, edges: dict[str, str], **schedules: str) -> dict[str, str]:
        tick = self.tick(edges, **schedules)
        self.dispatcher.run(tick)
        return {name.table: str(one.state) for name, one in tick.outcomes.items()}


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Callable[[int], Bench]]:
    made = []
    with Catalog.open(sqlite_url(tmp_path / "catalog.db")) as catalog:

        def make(limit: int) -> Bench:
            made.append(Bench(catalog, limit))
            return made[-1]

        yield make
        for one in made:
            one.workers.close()


def fail(error: Exception) -> Callable[[], None]:
    def step() -> None:
        raise error

    return step


def test_a_table_starts_as_soon_as_those_it_reads_are_done(bench: Callable[[int], Bench]) -> None:
    b = bench(4)
    other_done = threading.Event()
    b.refresher.script = {"slow": lambda: assert_set(other_done), "deep2": other_done.set}
    states = b.run({"slow": "x", "after_slow": "slow", "deep0": "x", "deep1": "deep0", "deep2": "deep1"})
    assert set(states.values()) == {"COMPLETED"}
    log = b.refresher.log
    assert log.index("-deep0") < log.index("+deep1") < log.index("-deep1") < log.index("+deep2")
    assert log.index("-deep2") < log.index("-slow"), "a slow table holds up only what reads it"
    assert log.index("-slow") < log.index("+after_slow")


def assert_set(event: threading.Event) -> None:
    assert event.wait(30)


@pytest.mark.parametrize("limit", [1, 3])
def test_no_more_than_the_limit_run_at_once(bench: Callable[[int], Bench], limit: int) -> None:
    b = bench(limit)
    b.refresher.script = {f"t{number}": lambda: time.sleep(0.05) for number in range(8)}
    b.run({f"t{number}": "x" for number in range(8)})
    assert b.refresher.most_at_once == limit


def test_the_shortest_lag_comes_first(bench: Callable[[int], Bench]) -> None:
    b = bench(1)
    b.run({"a": "x", "b": "x", "c": "x", "d": "x"}, a="1 hour", b="10 seconds", c="DOWNSTREAM", d="1 minute")
    assert [one for one in b.refresher.log if one[0] == "+"] == ["+b", "+d", "+a", "+c"]


def test_a_failure_skips_readers_with_the_reason_and_nobody_else(bench: Callable[[int], Bench]) -> None:
    b = bench(2)
    b.refresher.script = {"bad": fail(HeadraceError("refresh_failed", "overflow"))}
    states = b.run({"bad": "x", "child": "bad", "grandchild": "child", "other": "x"})
    assert states == {"bad": "FAILED", "child": "SKIPPED", "grandchild": "SKIPPED", "other": "COMPLETED"}
    reasons = {one.stream_table.table: one.reason for one in b.catalog.history() if one.state == "SKIPPED"}
    assert reasons == dict.fromkeys(("child", "grandchild"), "s.bad, which it reads, failed: overflow")


def test_what_may_pass_is_tried_again_and_what_will_not_is_not(
    bench: Callable[[int], Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatch, "_FIRST_PAUSE", 0.01)
    b = bench(2)
    left = [OSError(28, "No space left on device"), OSError(28, "No space left on device")]

    def twice() -> None:
        if left:
            raise HeadraceError("refresh_failed", "no room") from left.pop()

    forever = HeadraceError("source_unreadable", "the disk is gone")
    b.refresher.script = {
        "passing": twice,
        "lasting": fail(forever),
        "wrong": fail(HeadraceError("unknown_column", "no such column")),
    }
    states = b.run({"passing": "x", "reader": "passing", "lasting": "x", "wrong": "x"})
    assert states == {"passing": "COMPLETED", "reader": "COMPLETED", "lasting": "FAILED", "wrong": "FAILED"}
    counted = {name: b.refresher.log.count(f"+{name}") for name in ("passing", "lasting", "wrong")}
    assert counted == {"passing": 3, "lasting": 3, "wrong": 1}
    assert b.refresher.will_retry["lasting"] == [True, True, False], "only the last one alerts people"


def test_the_tables_of_a_wave_wait_without_taking_room(bench: Callable[[int], Bench]) -> None:
    b = bench(1)
    tick = b.tick({"base": "x", "l": "base", "r": "base", "tip": "l r"})
    assert {name.table for name in tick.gates} == {"l", "r"}
    passed = []

    def gated(name: TableName, *, gate: Callable[[Action], None] | None = None, **_: Any) -> RefreshResult:
        if gate is not None:
            gate(Action.DIFFERENTIAL)
            passed.append(name.table)
        return RefreshResult(stream_table=str(name), action=Action.DIFFERENTIAL, reason="scripted")

    b.refresher.refresh = gated  # type: ignore[method-assign]  # to hold it
    b.dispatcher.run(tick)
    assert sorted(passed) == ["l", "r"]
    assert tick.report().ok


@pytest.mark.timeout(120)
def test_a_wave_may_be_of_any_width(bench: Callable[[int], Bench]) -> None:
    b = bench(4)
    branches = [f"b{number}" for number in range(600)]
    tick = b.tick({**dict.fromkeys(branches, "x"), "tip": " ".join(branches)})
    b.refresher.refresh = gated(Scripted())  # type: ignore[method-assign]  # to hold it
    b.dispatcher.run(tick)
    assert tick.report().ok


@pytest.mark.parametrize("limit", [1, 2])
def test_a_wave_that_computes_after_its_gate_holds_to_the_limit(
    bench: Callable[[int], Bench], limit: int
) -> None:
    b = bench(limit)
    branches = [f"b{number}" for number in range(6)]
    tick = b.tick({**dict.fromkeys(branches, "x"), "tip": " ".join(branches), "other": "x"})
    script = Scripted()
    script.script = {one: lambda: time.sleep(0.05) for one in branches}

    def full(
        name: TableName, *, gate: Callable[[Action], None] | None = None, **options: Any
    ) -> RefreshResult:
        if gate is not None:
            gate(Action.FULL)
        return script.refresh(name, **options)

    b.refresher.refresh = full  # type: ignore[method-assign]  # to hold it
    b.dispatcher.run(tick)
    assert tick.report().ok
    assert script.most_at_once == limit


def test_what_a_dead_process_left_is_done_though_it_is_of_the_same_moment(
    bench: Callable[[int], Bench],
) -> None:
    b = bench(1)
    tick = b.tick({"killed": "x", "failed": "x"})
    killed, failed = (TableName("s", one) for one in ("killed", "failed"))
    lease = b.catalog.acquire_lease(killed, owner="elsewhere/1-2/3/4", ttl=timedelta(milliseconds=1))
    b.catalog.start_refresh(killed, reason="x changed", data_timestamp=tick.moment, lease=lease)
    time.sleep(0.01)
    assert [one.error_code for one in b.catalog.fail_running()] == ["refresh_interrupted"]
    b.catalog.record_refresh(
        failed,
        state=RefreshState.FAILED,
        started_at=tick.moment,
        data_timestamp=tick.moment,
        error="overflow",
    )
    b.dispatcher.run(tick)
    assert b.refresher.log == ["+killed", "-killed"], (
        "another's failure is not repeated, its death is no failure"
    )
    assert tick.outcomes[killed].is_current
    assert tick.outcomes[failed].error is not None


def test_a_failure_at_a_moment_to_come_does_not_forbid_the_next_try(bench: Callable[[int], Bench]) -> None:
    b = bench(1)
    tick = b.tick({"a": "x"})
    tick.moment += timedelta(hours=1)
    b.catalog.record_refresh(
        TableName("s", "a"),
        state=RefreshState.FAILED,
        started_at=datetime.now(UTC),
        data_timestamp=tick.moment,
        error="overflow",
    )
    b.dispatcher.run(tick)
    assert tick.report().ok


def test_a_dispatcher_finds_the_room_that_another_leaves(bench: Callable[[int], Bench]) -> None:
    b = bench(1)
    began, may_end = threading.Event(), threading.Event()

    def hold() -> None:
        began.set()
        assert_set(may_end)

    b.refresher.script = {"held": hold}
    first = b.tick({"held": "x"})
    other = Dispatcher(b.catalog, cast(Refresher, b.refresher), b.workers)
    thread = threading.Thread(target=b.dispatcher.run, args=(first,))
    thread.start()
    assert_set(began)
    second = b.tick({"free": "x"})
    second.outcomes[TableName("s", "held")] = skipped(TableName("s", "held"), "it is under way")
    later = threading.Thread(target=other.run, args=(second,))
    later.start()
    time.sleep(0.1)
    may_end.set()
    for one in (thread, later):
        one.join(30)
        assert not one.is_alive()
    assert second.outcomes[TableName("s", "free")].is_current
    assert b.refresher.most_at_once == 1


def test_a_dispatcher_that_is_stopped_leaves_nobody_waiting(bench: Callable[[int], Bench]) -> None:
    b = bench(1)
    abandoned = threading.Event()
    b.refresher.script = {"l": lambda: assert_set(abandoned)}
    tick = b.tick({"l": "x", "r": "x", "tip": "l r"})
    b.dispatcher.add(tick)
    b.dispatcher.step(0)
    b.dispatcher.abandon("stopping")
    abandoned.set()
    while b.dispatcher.running:
        b.dispatcher.step(1, start=False)
    assert {one.state for name, one in tick.outcomes.items() if name.table != "l"} == {"SKIPPED"}
    assert tick.is_done


def gated(script: Scripted) -> Callable[..., RefreshResult]:
    """Let each table come to its gate before it does what the script says."""

    def refresh(
        name: TableName, *, gate: Callable[[Action], None] | None = None, **options: Any
    ) -> RefreshResult:
        result = script.refresh(name, **options)
        if gate is not None:
            gate(Action.DIFFERENTIAL)
        return result

    return refresh


def test_what_another_process_has_read_for_a_moment_is_read_below_it_too(
    bench: Callable[[int], Bench],
) -> None:
    b = bench(2)
    tick = b.tick({"base": "x", "mid": "base", "tip": "mid x y", "apart": "x"})
    sources = [str(TableName("s", one)) for one in ("x", "y")]
    tick.pins |= {one: SourceVersion(6, "t") for one in sources}
    early = SourceVersion(5, "t")
    base = TableName("s", "base")
    b.catalog.update(base, data_timestamp=tick.moment, frontier={sources[0]: early})
    read: dict[str, list[int]] = {}

    def refresh(name: TableName, *, pins: Mapping[str, SourceVersion], **_: Any) -> RefreshResult:
        read[name.table] = [pins[one].version for one in sources]
        return RefreshResult(stream_table=str(name), action=Action.DIFFERENTIAL, reason="scripted")

    b.refresher.refresh = refresh  # type: ignore[method-assign,assignment]  # to see the pins
    b.dispatcher.run(tick)
    assert tick.report().ok
    assert read == {"mid": [5, 6], "tip": [5, 6], "apart": [6, 6]}


@pytest.mark.timeout(60)
@pytest.mark.parametrize("is_held", [False, True])
def test_who_waits_at_a_gate_is_let_go_when_the_other_ends_otherwise_after_a_stop(
    bench: Callable[[int], Bench], is_held: bool
) -> None:
    b = bench(2)
    stopped = threading.Event()
    tick = b.tick({"l": "x", "r": "x", "tip": "l r"})
    script = Scripted()

    def end() -> None:
        assert_set(stopped)
        raise HeadraceError("refresh_failed", "Job 3 cancelled as part of cancellation of all jobs")

    def refresh(name: TableName, **options: Any) -> RefreshResult:
        if is_held and name.table == "l":
            assert_set(stopped)
            b.catalog.acquire_lease(name, owner="elsewhere/1-2/3/4", ttl=timedelta(minutes=1))
            return RefreshResult(stream_table=str(name), action=Action.SKIPPED, reason="another is at it")
        return gated(script)(name, **options)

    script.script = {"l": end}
    b.refresher.refresh = refresh  # type: ignore[method-assign]  # to hold it
    b.dispatcher.add(tick)
    b.dispatcher.step(0)
    threading.Timer(0.3, stopped.set).start()
    b.dispatcher.drain("stopping")
    assert not b.dispatcher.running
    assert tick.is_done
    outcome = tick.outcomes[TableName("s", "l")]
    assert outcome.state == ("SKIPPED" if is_held else "FAILED")
    assert tick.outcomes[TableName("s", "r")].error is not None, "it was withheld"


@pytest.mark.timeout(60)
@pytest.mark.parametrize("error", [HeadraceError("catalog_unreachable", "away"), KeyboardInterrupt()])
def test_a_run_that_is_broken_off_leaves_nobody_at_a_gate(
    bench: Callable[[int], Bench], error: BaseException
) -> None:
    b = bench(1)
    b.refresher.refresh = gated(Scripted())  # type: ignore[method-assign]  # to hold it

    def told(_tick: Tick, name: TableName, _outcome: object) -> None:
        if name.table == "other":
            raise error

    dispatcher = Dispatcher(b.catalog, cast(Refresher, b.refresher), b.workers, told)
    tick = b.tick({"other": "y", "l": "x other", "r": "x", "tip": "l r"}, r="3 seconds")
    with pytest.raises(type(error)):
        dispatcher.run(tick)
    assert not dispatcher.running
    assert {name.table for name, one in tick.outcomes.items() if one.is_current} == {"other"}
    assert tick.is_done
