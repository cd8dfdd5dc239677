"""The clock: periods, shared ticks, missed ticks, clocks that step, and daylight saving."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.scheduler.clock import SETTLE, Clock, Due, Timed, canonical_period, find_runs, tick_at
from headrace.scheduler.schedule import Cron, Downstream, Every, Schedule
from tests.timing import fastest

NOON = datetime(2026, 3, 3, 12, tzinfo=UTC)
NOW = NOON + timedelta(seconds=1)


def moments() -> st.SearchStrategy[datetime]:
    return st.integers(0, 10**9).map(lambda ms: datetime(2026, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms))


@given(st.floats(3, 366 * 86400))
def test_the_period_is_canonical_and_the_longest_within_half_the_lag(lag: float) -> None:
    period = canonical_period(lag).total_seconds()
    assert period <= lag / 2 < period * 2
    doublings = period / 1.5
    assert doublings == int(doublings)
    assert int(doublings).bit_count() == 1


@pytest.mark.parametrize("lag", [0.5, 1, 2.9, 3])
def test_no_period_is_shorter_than_a_second_and_a_half(lag: float) -> None:
    assert canonical_period(lag) == timedelta(seconds=1.5)


def test_the_long_periods_are_those_of_the_published_rule() -> None:
    assert [canonical_period(96 * 2**n).total_seconds() for n in range(8)] == [48.0 * 2**n for n in range(8)]
    assert canonical_period(96, stretch=2).total_seconds() == 192


@given(moments(), st.integers(0, 15), st.integers(0, 15))
def test_a_tick_of_a_longer_period_is_one_of_every_shorter(moment: datetime, one: int, other: int) -> None:
    short, long = (timedelta(seconds=1.5 * 2**n) for n in sorted((one, other)))
    tick = tick_at(long, moment)
    assert tick_at(short, tick) == tick
    assert tick <= moment < tick + long


def test_all_that_is_due_shares_one_data_timestamp() -> None:
    tables = [
        Timed("quick", Every(3), NOON - timedelta(seconds=2)),
        Timed("slow", Every(3600), NOON - timedelta(hours=2)),
        Timed("daily", Cron("0 12 * * *"), NOON - timedelta(days=1)),
        Timed("new", Every(60), None),
        Timed("fresh", Every(60), NOON),
        Timed("pulled", Downstream(), None),
    ]
    due = Clock().due(tables, NOW)
    assert [one.name for one in due] == ["quick", "slow", "daily", "new"]
    assert {one.data_timestamp for one in due} == {NOON}


def test_a_laptop_that_slept_gets_one_tick_not_one_per_missed() -> None:
    woke = NOON + timedelta(hours=8, seconds=1)
    clock, table = Clock(), Timed("t", Every(60), NOON)
    first = clock.due([table], woke)
    assert len(first) == 1
    assert woke - first[0].data_timestamp < timedelta(seconds=24) + SETTLE
    assert clock.due([Timed("t", Every(60), first[0].data_timestamp)], woke) == []


@given(st.lists(st.integers(-7200, 7200), min_size=1, max_size=30), st.sampled_from([3, 60, 600]))
def test_no_clock_step_takes_a_data_timestamp_back(steps: list[int], lag: int) -> None:
    clock, now = Clock(), NOON
    schedules: list[Schedule] = [Every(lag), Cron("*/7 * * * *", "Europe/Berlin")]
    stamps: dict[str, datetime | None] = {"every": None, "cron": None}
    for step in steps:
        now += timedelta(seconds=step)
        timed = [
            Timed(name, schedule, stamps[name]) for name, schedule in zip(stamps, schedules, strict=True)
        ]
        for due in clock.due(timed, now):
            before = stamps[due.name]
            assert before is None or due.data_timestamp > before
            assert due.data_timestamp <= now
            stamps[due.name] = due.data_timestamp


def test_a_tick_waits_until_late_commits_have_settled() -> None:
    table = Timed("t", Every(3), NOON - timedelta(seconds=1.5))
    clock = Clock()
    assert clock.due([table], NOON + SETTLE / 2) == []
    assert clock.due([table], NOON + SETTLE) == [Due("t", NOON)]
    assert clock.next_tick([table], NOON + SETTLE / 2) == NOON + SETTLE
    assert clock.next_tick([table], NOON + SETTLE) == NOON + timedelta(seconds=1.5) + SETTLE
    assert clock.next_tick([Timed("d", Downstream())], NOON) is None


def local(cron: Cron, day: datetime) -> list[str]:
    """The times on the wall at which an expression ran in the 24 hours before a moment."""
    runs, moment = [], day
    while (run := find_runs(cron, moment)[0]) > day - timedelta(days=1):
        runs.append(run.astimezone(ZoneInfo(cron.time_zone)).strftime("%H:%M"))
        moment = run - timedelta(microseconds=1)
    return runs[::-1]


def test_daylight_saving_neither_loses_nor_doubles_a_daily_run() -> None:
    nightly = Cron("30 2 * * *", "Europe/Berlin")
    spring, autumn = datetime(2026, 3, 29, 12, tzinfo=UTC), datetime(2026, 10, 25, 12, tzinfo=UTC)
    assert len(local(nightly, spring)) == 1
    assert len(local(nightly, autumn)) == 1
    hourly = Cron("0 * * * *", "Europe/Berlin")
    assert len(local(hourly, spring)) == 24
    assert len(set(local(Cron("0 6 * * *", "Europe/Berlin"), autumn))) == 1


@given(moments(), st.sampled_from(["*/5 * * * *", "30 2 * * *", "0 0 1 * *", "0 0 29 2 *"]))
def test_the_last_run_and_the_next_enclose_the_moment(moment: datetime, expression: str) -> None:
    last, upcoming = find_runs(Cron(expression, "America/New_York"), moment)
    assert last <= moment < upcoming
    assert Cron(expression, "America/New_York").next_after(last) == upcoming


def test_a_thousand_tables_with_cron_are_looked_at_in_no_time() -> None:
    clock = Clock()
    tables = [Timed(n, Cron(f"{n % 60} */{1 + n % 5} * * *"), NOON) for n in range(1000)]
    clock.due(tables, NOW)
    assert fastest(lambda: clock.due(tables, NOW + timedelta(seconds=2)), enough=0.1) < 0.1
