"""What failed or was skipped is tried again by itself, soon at first and then more rarely."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from headrace.catalog import Action, RefreshRecord, RefreshState, Status, StreamTable
from headrace.errors import HeadraceError
from headrace.refresh.blame import blame
from headrace.refresh.result import RefreshResult
from headrace.scheduler.clock import SETTLE, Clock
from headrace.scheduler.plan import Memory, plan_due
from headrace.scheduler.report import Outcome, skipped
from headrace.scheduler.retry import LONGEST_PAUSE, Retries, pause_after
from headrace.sql.names import TableName
from tests.scheduler.test_plan import DIAMOND, NOON, Shop, name, table

DISK = HeadraceError("source_unreadable", "the disk is gone")
GONE = HeadraceError("source_missing", "the source is gone")
OVERFLOW = HeadraceError("refresh_failed", "the service gave up on a division by zero")
Trouble = Callable[[TableName], HeadraceError | None]


def no_trouble(_name: TableName) -> HeadraceError | None:
    return None


class Lake(Shop):
    """Tables over simulated time: what is planned succeeds, or fails as the trouble of the moment says."""

    def __init__(self, edges: dict[str, str], *tables: StreamTable) -> None:
        super().__init__(edges, *tables)
        self.now = NOON
        self.trouble: Trouble = no_trouble
        self.tries: list[tuple[datetime, TableName]] = []
        self._records: list[RefreshRecord] = []
        self._memory: dict[TableName, datetime] = {}
        self.restart()

    def restart(self) -> None:
        """Forget what a process holds."""
        self._memory = {}
        self._clock = Clock()
        self._retries = Retries(
            lambda wanted, limit: [one for one in self._records[::-1] if one.stream_table == wanted][:limit]
        )

    def look(self) -> None:
        again = self._retries.ready(self.network, self.tables, self.now)
        memory = Memory(tried=self._memory)
        options = {"at": self.now, "now": self.now, "memory": memory, "again": again}
        plan = plan_due(self.network, self.tables, self._clock, **options)  # type: ignore[arg-type]
        if plan is None:
            return
        ended = {one: skipped(one, reason) for one, reason in plan.blocked.items()}
        for one in plan.tables:
            ended[one] = self._refresh(one, plan.moment, ended)
        for one, outcome in ended.items():
            self._memory[one] = plan.moment
            self._retries.note(one, outcome, moment=plan.moment, now=self.now)

    def _refresh(self, one: TableName, moment: datetime, ended: dict[TableName, Outcome]) -> Outcome:
        if any(up in ended and not ended[up].is_current for up in self.network.graph.upstreams[one]):
            return skipped(one, "what it reads failed")
        self.tries.append((self.now, one))
        error, before = self.trouble(one), self.tables[one]
        fields: dict[str, Any] = {"data_timestamp": moment, "last_error": None, "status": Status.ACTIVE}
        if error is not None:
            fields = {"last_error": str(error)}
            fields |= {"status": Status.ERROR} if error.code == "source_missing" else {}
        self.tables[one] = replace(before, last_refresh_at=self.now, **fields)
        self._record(one, moment, error)
        if error is not None:
            return Outcome(stream_table=str(one), error=error)
        result = RefreshResult(stream_table=str(one), action=Action.DIFFERENTIAL, reason="")
        return Outcome(stream_table=str(one), result=result, is_current=True)

    def _record(self, one: TableName, moment: datetime, error: HeadraceError | None) -> None:
        none: dict[str, Any] = dict.fromkeys(("action", "frontier", "duration_ms"))
        zero = dict.fromkeys(("rows_inserted", "rows_deleted", "delta_row_count", "spark_jobs"), 0)
        self._records.append(
            RefreshRecord(
                id=len(self._records),
                stream_table=one,
                stream_table_id=one.table,
                state=RefreshState.FAILED if error else RefreshState.COMPLETED,
                reason="",
                started_at=self.now,
                ended_at=self.now,
                data_timestamp=moment,
                error_code=error.code if error else None,
                error=str(error) if error else None,
                details={"blame": blame(error)} if error else {},
                **none,
                **zero,
            )
        )

    def run(self, seconds: float, *, every: float = 1) -> None:
        until = self.now + timedelta(seconds=seconds)
        while self.now < until:
            self.now += timedelta(seconds=every)
            self.look()

    def stamp(self, named: str) -> datetime:
        stamp = self.tables[name(named)].data_timestamp
        assert stamp is not None
        return stamp

    def tried(self, named: str, since: datetime) -> list[float]:
        """The seconds after a moment at which a table was tried."""
        return [(at - since).total_seconds() for at, one in self.tries if one == name(named) and at > since]


def daily(named: str, **fields: Any) -> StreamTable:
    return table(named, "1 day", data_timestamp=NOON - timedelta(days=1), **fields)


def always(error: HeadraceError, *names: str) -> Trouble:
    return lambda one: error if one.table in names else None


@pytest.mark.parametrize("error", [DISK, GONE])
def test_a_daily_table_is_tried_again_within_seconds_and_then_more_rarely(error: HeadraceError) -> None:
    lake = Lake({"a": "orders"}, daily("a"))
    lake.trouble = always(error, "a")
    lake.run(3600)
    first, *later = lake.tried("a", NOON)
    assert first == 1
    assert 4 <= later[0] - first <= 7
    gaps = [after - before for before, after in zip([first, *later], later, strict=False)]
    assert max(gaps) <= LONGEST_PAUSE + 1
    assert 14 <= len(gaps) <= 24
    assert gaps[6] > gaps[3] > gaps[0]
    began = lake.now
    lake.trouble = no_trouble
    lake.run(LONGEST_PAUSE + 1)
    assert lake.tables[name("a")].status is Status.ACTIVE
    assert lake.stamp("a") > began
    assert len(lake.tried("a", began)) == 1, "what went well is left until its own next tick"


def test_a_user_error_waits_for_the_next_tick() -> None:
    lake = Lake({"a": "orders"}, daily("a"))
    lake.trouble = always(OVERFLOW, "a")
    lake.run(3600)
    assert lake.tried("a", NOON) == [1]


def test_another_process_goes_on_where_one_stopped() -> None:
    lake = Lake({"a": "orders"}, daily("a"))
    lake.trouble = always(DISK, "a")
    lake.run(600)
    tries = len(lake.tried("a", NOON))
    lake.restart()
    lake.trouble = no_trouble
    lake.run(LONGEST_PAUSE + 1)
    assert len(lake.tried("a", NOON)) == tries + 1


def test_a_failure_that_the_catalog_was_not_told_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    lake = Lake({"a": "orders"}, daily("a"))
    began = lake.stamp("a")
    away = HeadraceError("catalog_unreachable", "the catalog is away")

    def untold(one: TableName, _moment: datetime, _ended: dict[TableName, Outcome]) -> Outcome:
        return Outcome(stream_table=str(one), error=away)

    with monkeypatch.context() as patched:
        patched.setattr(lake, "_refresh", untold)
        lake.run(3)
    lake.run(10)
    assert lake.stamp("a") > began


def test_readers_go_soon_after_what_they_wait_for() -> None:
    lake = Lake({"a": "orders", "b": "a", "c": "b"}, daily("a"), daily("b"), daily("c"))
    lake.trouble = always(DISK, "a")
    lake.run(60)
    assert not lake.tried("c", NOON)
    began, lake.trouble = lake.now, no_trouble
    lake.run(60)
    assert min(map(lake.stamp, "abc")) > began - timedelta(seconds=1)
    assert len(lake.tried("c", NOON)) == 1


def test_a_reader_of_a_table_that_a_person_must_correct_waits_for_it_and_does_not_try_it() -> None:
    quick = table("a", "10 minutes")
    lake = Lake({"a": "orders", "b": "a"}, quick, daily("b"))
    lake.trouble = always(OVERFLOW, "a")
    lake.run(3600)
    assert len(lake.tried("a", NOON)) <= 3600 / 192 + 2
    lake.trouble = no_trouble
    lake.run(192 + 7)
    assert len(lake.tried("b", NOON)) == 1


def test_a_reader_of_a_suspended_table_goes_when_that_is_resumed() -> None:
    lake = Lake({"a": "orders", "b": "a"}, daily("a", status=Status.SUSPENDED), daily("b"))
    lake.run(60)
    assert not lake.tries
    lake.tables[name("a")] = replace(lake.tables[name("a")], status=Status.ACTIVE)
    lake.run(6)
    assert lake.tried("b", NOON)


def test_a_diamond_is_tried_again_whole() -> None:
    lake = Lake(DIAMOND, daily("l"), daily("r"), daily("tip"))
    lake.trouble = always(DISK, "l")
    lake.run(2)
    lake.trouble = no_trouble
    lake.run(6)
    assert lake.stamp("l") == lake.stamp("r") == lake.stamp("tip") > NOON


def test_a_table_that_nothing_refreshes_is_not_tried_again() -> None:
    failed = table("a", "DOWNSTREAM", last_error="by hand", last_refresh_at=NOON)
    lake = Lake({"a": "orders"}, failed)
    lake._record(name("a"), NOON, DISK)
    lake.run(600)
    assert not lake.tries


def test_a_clock_that_was_set_back_does_not_put_a_try_off() -> None:
    lake = Lake({"a": "orders"}, daily("a"))
    lake.trouble = always(DISK, "a")
    lake.run(100)
    lake.now -= timedelta(hours=5)
    began = lake.now
    lake.run(LONGEST_PAUSE + 1)
    assert lake.tried("a", began)


def test_the_first_pause_is_short_and_none_is_longer_than_five_minutes() -> None:
    for failures, longest in ((1, 5), (4, 40), (10, 300), (10**6, 300)):
        pauses = [pause_after(failures).total_seconds() for _ in range(200)]
        assert longest * 3 / 4 <= min(pauses) < max(pauses) <= longest


@pytest.mark.parametrize("seed", range(30))
def test_whatever_passes_leaves_every_table_within_its_lag_or_the_longest_pause(seed: int) -> None:
    chance = random.Random(seed)
    names = [f"t{place}" for place in range(chance.randint(1, 7))]
    edges = {
        one: " ".join(chance.sample([*names[:place], "x", "y"], chance.randint(1, min(2, place + 2))))
        for place, one in enumerate(names)
    }
    lags = {one: chance.choice(["10 seconds", "1 minute", "10 minutes", "1 day"]) for one in names}
    lake = Lake(edges, *(table(one, lags[one], data_timestamp=NOON) for one in names))
    lake.now += timedelta(days=1)
    for _ in range(chance.randint(1, 4)):
        broken = chance.sample(names, chance.randint(0, len(names)))
        lake.trouble = always(chance.choice([DISK, GONE]), *broken)
        lake.run(chance.choice([10, 100, 1000]), every=chance.choice([1, 5]))
        if chance.random() < 0.3:
            lake.restart()
    lake.trouble = no_trouble
    lake.run(LONGEST_PAUSE + 30)
    for one in names:
        assert lake.tables[name(one)].last_error is None
        lag = lake.network.paces[name(one)].lag
        assert lag is not None
        age = (lake.now - lake.stamp(one)).total_seconds()
        assert age <= lag + SETTLE.total_seconds() + 2, (one, edges, lags)
