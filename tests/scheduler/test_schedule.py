"""Schedules: what is read, what is refused, and when cron fires."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
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
        ("CRON '* * * * *", "not a schedule"),
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
