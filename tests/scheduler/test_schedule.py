"""Schedules: what is read, what is refused, and when cron fires."""

from __future__ import annotations

import random
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from croniter import croniter  # type: ignore[import-untyped]  # it has no types
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import HeadraceError, Position
from headrace.scheduler.schedule import Cron, Downstream, Every, Schedule, parse_schedule


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("5 minutes", 300),
        ("5 MINUTES", 300),
        ("1 minute", 60),
        ("90s", 90),
        ("90 sec", 90),
        ("1h30m", 5400),
        ("1 hour 30 minutes", 5400),
        ("1 hour, 30 minutes and 5 seconds", 5405),
        ("1 h and 5 m", 3900),
        ("2 days", 172800),
        ("1w", 604800),
        ("1 year", 31536000),
        ("1.5 hours", 5400),
        ("  3s  ", 3),
    ],
)
def test_durations(text: str, seconds: int) -> None:
    assert parse_schedule(text) == Every(seconds)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("90s", "1 minute 30 seconds"),
        ("3600s", "1 hour"),
        ("10 days", "10 days"),
        ("3.5s", "3.5 seconds"),
        ("downstream", "DOWNSTREAM"),
        ("*/5 * * * *", "CRON '*/5 * * * *' TIME ZONE 'UTC'"),
        (
            "cron '0  6 * * MON-FRI'  time zone 'europe/rome'",
            "CRON '0 6 * * MON-FRI' TIME ZONE 'Europe/Rome'",
        ),
    ],
)
def test_canonical_text(text: str, shown: str) -> None:
    assert str(parse_schedule(text)) == shown


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "empty"),
        ("   ", "empty"),
        ("0s", "no time at all"),
        ("0 minutes 0 seconds", "no time at all"),
        ("-5 minutes", "negative"),
        ("1 hour -5 minutes", "negative"),
        ("5", "not a schedule"),
        ("five minutes", "not a schedule"),
        ("5 minutes!", "not a schedule"),
        ("1000000 years", "longer than a year"),
        ("9" * 5000 + "s", "not a schedule"),
        ("3 fortnights", "not a unit"),
        ("1 month", "not a unit"),
        ("5m 5m", "twice"),
        ("* * * * * *", "not a schedule"),
        ("CRON '0 0 31 2 *'", "never fires"),
        ("0 0 30 2 *", "never fires"),
        ("CRON ''", "0 fields"),
        ("CRON '* * *'", "3 fields"),
        ("CRON '61 * * * *'", "out of range"),
        ("CRON 'a b c d e'", "not a cron expression"),
        ("CRON '* * * * *' TIME ZONE 'Mars/Olympus'", "no time zone"),
        ("CRON '* * * * *' TIME ZONE ''", "no time zone"),
        ("CRON '* * * * *' TIME ZONE '../../etc/passwd'", "no time zone"),
        ("CRON '* * * * *' TIME ZONE 'localtime'", "another one on every machine"),
        ("CRON '* * * * *' TIME ZONE ' LocalTime '", "another one on every machine"),
        ("CRON '* * * * *' TIME ZONE 'posixrules'", "another one on every machine"),
        ("CRON '* * * * *' TIME ZONE 'Factory'", "another one on every machine"),
        ("CRON '* * * * *", "not a schedule"),
        ("CRON 'H * * * *'", "the field H, which stands for a time chosen at random"),
        ("CRON 'R(0-5) 3 * * *'", "the field R,"),
        ("CRON '5 r * * *'", "the field r,"),
    ],
)
def test_refused(text: str, says: str) -> None:
    with pytest.raises(HeadraceError) as caught:
        parse_schedule(text, position=Position(3, 7))
    assert caught.value.code == "invalid_schedule"
    assert says in caught.value.message
    assert len(caught.value.message) < 200
    assert caught.value.hint
    assert caught.value.position == Position(3, 7)


@pytest.mark.parametrize(
    ("text", "minimum"), [("2s", 3), ("2.999s", 3), ("59s", 60), ("CRON '* * * * *'", 61), ("1m", 61)]
)
def test_too_short(text: str, minimum: float) -> None:
    with pytest.raises(HeadraceError, match="shorter than") as caught:
        parse_schedule(text, minimum_seconds=minimum)
    assert caught.value.code == "schedule_too_short"
    assert str(Every(minimum)) in caught.value.hint


def test_the_minimum_itself_is_allowed() -> None:
    assert parse_schedule("3s", minimum_seconds=3) == Every(3)
    assert parse_schedule("0.5s", minimum_seconds=0.5) == Every(0.5)
    assert parse_schedule("CRON '* * * * *'", minimum_seconds=60) == Cron("* * * * *")


def test_cron_without_a_zone_uses_the_one_given() -> None:
    assert parse_schedule("0 6 * * *", time_zone="Asia/Tokyo") == Cron("0 6 * * *", "Asia/Tokyo")


def test_what_is_stored_is_read_though_it_would_be_refused_now() -> None:
    text = "CRON '* * * * *' TIME ZONE 'Factory'"
    assert str(parse_schedule(text, minimum_seconds=0, is_stored=True)) == text


def schedules() -> st.SearchStrategy[Schedule]:
    durations = st.integers(min_value=3000, max_value=366 * 86_400_000).map(
        lambda ms: Every(ms // 1000 if ms % 1000 == 0 else ms / 1000)
    )
    minutes = st.one_of(st.just("*"), st.integers(0, 59).map(str), st.integers(1, 30).map("*/{}".format))
    hours = st.one_of(st.just("*"), st.integers(0, 23).map(str))
    zones = st.sampled_from(["UTC", "Europe/Berlin", "America/New_York", "Asia/Kathmandu"])
    crons = st.builds(lambda m, h, zone: Cron(f"{m} {h} * * *", zone), minutes, hours, zones)
    return st.one_of(durations, crons, st.just(Downstream()))


@given(schedules())
def test_canonical_text_reads_back(schedule: Schedule) -> None:
    assert parse_schedule(str(schedule)) == schedule


@given(st.text(max_size=30))
def test_any_text_is_a_schedule_or_a_clear_refusal(text: str) -> None:
    with suppress(HeadraceError):
        schedule = parse_schedule(text)
        assert parse_schedule(str(schedule)) == schedule


@given(
    st.integers(0, 59),
    st.integers(0, 23),
    st.integers(0, 6 * 365 * 24 * 60).map(lambda m: datetime(2024, 1, 1, tzinfo=UTC) + timedelta(minutes=m)),
    st.sampled_from(["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe"]),
)
def test_daily_cron_fires_once_a_day_across_clock_changes(
    minute: int, hour: int, start: datetime, zone: str
) -> None:
    first = Cron(f"{minute} {hour} * * *", zone).next_after(start)
    second = Cron(f"{minute} {hour} * * *", zone).next_after(first)
    assert start < first <= start + timedelta(hours=26)
    assert timedelta(hours=22) <= second - first <= timedelta(hours=26)


def test_cron_in_the_hour_that_spring_skips_still_fires_that_day() -> None:
    before = datetime(2026, 3, 28, 12, tzinfo=UTC)
    fires = Cron("30 2 * * *", "Europe/Berlin").next_after(before)
    assert fires.astimezone(ZoneInfo("Europe/Berlin")).date().isoformat() == "2026-03-29"


# The night in which clocks go back and the one in which they go forward, from some hours before.
NIGHTS = {
    "Europe/Berlin": (datetime(2026, 10, 24, 20, tzinfo=UTC), datetime(2026, 3, 28, 20, tzinfo=UTC)),
    "America/New_York": (datetime(2026, 11, 1, 1, tzinfo=UTC), datetime(2026, 3, 8, 2, tzinfo=UTC)),
    "Australia/Lord_Howe": (datetime(2026, 4, 4, 10, tzinfo=UTC), datetime(2026, 10, 3, 10, tzinfo=UTC)),
}
NIGHT = timedelta(hours=10)


def in_night(expression: str, zone: str, start: datetime) -> list[datetime]:
    """The runs of the ten hours after a moment, in UTC."""
    cron, runs = Cron(expression, zone), [start]
    while runs[-1] < start + NIGHT:
        runs.append(cron.next_after(runs[-1]))
    return runs[1:-1]


def on_wall(runs: list[datetime], zone: str) -> list[str]:
    return [run.astimezone(ZoneInfo(zone)).strftime("%H:%M %z") for run in runs]


@pytest.mark.parametrize(
    ("zone", "doubled"),
    [
        ("Europe/Berlin", ["02:15 +0200", "02:15 +0100"]),
        ("America/New_York", ["01:15 -0400", "01:15 -0500"]),
        ("Australia/Lord_Howe", ["01:45 +1100", "01:45 +1030"]),
    ],
)
@pytest.mark.parametrize("hours", ["*", "0-23", "*/1"])
def test_what_runs_every_hour_runs_in_both_of_the_doubled_hours(
    zone: str, doubled: list[str], hours: str
) -> None:
    runs = on_wall(in_night(f"{doubled[0][3:5]} {hours} * * *", zone, NIGHTS[zone][0]), zone)
    assert [run for run in runs if run[:5] == doubled[0][:5]] == doubled


@pytest.mark.parametrize("zone", NIGHTS)
@pytest.mark.parametrize("autumn", [True, False])
@pytest.mark.parametrize("minute", ["0", "15", "30", "45"])
@pytest.mark.parametrize("hour", ["1", "2", "3"])
def test_what_runs_once_a_day_runs_once_when_clocks_change(
    zone: str, autumn: bool, minute: str, hour: str
) -> None:
    assert len(in_night(f"{minute} {hour} * * *", zone, NIGHTS[zone][0 if autumn else 1])) == 1


def as_said(expression: str, zone: str, start: datetime) -> list[datetime]:
    """The same runs by looking at every minute, with what is missed or doubled set right by hand."""
    shown: dict[datetime, list[datetime]] = {}
    for minute in range(1, int(NIGHT / timedelta(minutes=1)) + 1):
        moment = start + timedelta(minutes=minute)
        shown.setdefault(moment.astimezone(ZoneInfo(zone)).replace(tzinfo=None, fold=0), []).append(moment)
    before = start.astimezone(ZoneInfo(zone)).utcoffset()
    assert before is not None
    every_hour, runs, wall = expression.split()[1] == "*", set(), min(shown)
    while wall <= max(shown):
        if croniter.match(expression, wall):
            moments = shown.get(wall, [] if every_hour else [(wall - before).replace(tzinfo=UTC)])
            runs.update(moments if every_hour else moments[:1])
        wall += timedelta(minutes=1)
    return sorted(run for run in runs if run < start + NIGHT)


@pytest.mark.parametrize("zone", NIGHTS)
@pytest.mark.parametrize("autumn", [True, False])
def test_runs_of_a_night_are_those_that_its_minutes_tell(zone: str, autumn: bool) -> None:
    chance, start = random.Random(7), NIGHTS[zone][0 if autumn else 1]
    for _ in range(8):
        minutes = chance.choice(["*", "*/7", "0", "30", "0,30", "15,45", "59", str(chance.randrange(60))])
        hours = chance.choice(["*", "*/2", "1-3", "0,2", "2", "3", "1,3", str(chance.randrange(24))])
        expression = f"{minutes} {hours} * * *"
        assert in_night(expression, zone, start) == as_said(expression, zone, start), expression
