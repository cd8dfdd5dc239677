"""What falls behind is noticed, slowed down in the open, and let go again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from headrace.catalog import Action, Catalog, Status, sqlite_url
from headrace.refresh.result import RefreshResult
from headrace.scheduler.overseer import Overseer
from headrace.scheduler.plan import Plan
from headrace.scheduler.report import Outcome
from headrace.scheduler.tick import Tick
from tests.scheduler.test_plan import NOON, Shop, name, table

A = name("a")


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[Catalog]:
    with Catalog.open(sqlite_url(tmp_path / "catalog.db")) as opened:
        yield opened


def ended(
    overseer: Overseer,
    seconds: float,
    action: Action = Action.DIFFERENTIAL,
    reason: str = "because",
    *,
    shop: Shop | None = None,
) -> None:
    shop = shop or Shop({"a": "orders"})
    tick = Tick(Plan(NOON, (A,)), shop.network, {})
    result = RefreshResult(stream_table="s.a", action=action, reason=reason, duration_ms=seconds * 1000)
    overseer.note(tick, A, Outcome(stream_table="s.a", result=result, is_current=True))


def kinds(catalog: Catalog) -> list[str]:
    return [alert.kind for alert in reversed(catalog.alerts())]


def test_a_table_that_needs_most_of_its_period_is_refreshed_more_rarely(catalog: Catalog) -> None:
    overseer = Overseer(catalog)
    ended(overseer, 19)
    assert (overseer.stretch, kinds(catalog)) == ({}, [])
    ended(overseer, 20)
    assert (overseer.stretch, kinds(catalog)) == ({A: 1}, ["falling_behind"])
    assert "every 48 s until it is quicker" in catalog.alerts()[0].message
    ended(overseer, 30)
    assert (overseer.stretch, kinds(catalog)) == ({A: 1}, ["falling_behind"])
    for _ in range(3):
        ended(overseer, 1)
    assert overseer.stretch == {}


def test_a_reader_slows_down_for_what_it_takes_along(catalog: Catalog) -> None:
    overseer = Overseer(catalog)
    shop = Shop({"a": "orders", "b": "a", "c": "b"}, table("a", "DOWNSTREAM"), table("c", "1 day"))
    ended(overseer, 20, shop=shop)
    assert (overseer.stretch, kinds(catalog)) == ({name("b"): 1}, ["falling_behind"])
    assert catalog.alerts()[0].stream_table == name("b")
    assert "s.a took 20.0 s of the period of s.b, which reads it, of 24 s" in catalog.alerts()[0].message
    for _ in range(3):
        ended(overseer, 1, shop=shop)
    assert (overseer.stretch, kinds(catalog)) == ({}, ["falling_behind"])


def test_a_table_too_slow_for_its_cron_expression_is_told_once(catalog: Catalog) -> None:
    overseer = Overseer(catalog)
    shop = Shop({"a": "orders"}, table("a", "CRON '*/5 * * * *'"))
    for seconds in (230, 250, 280):
        ended(overseer, seconds, shop=shop)
    assert (overseer.stretch, kinds(catalog)) == ({}, ["falling_behind"])
    assert "250.0 s of the 300 s between two runs of s.a" in catalog.alerts()[0].message
    for seconds in (1, 1, 1, 250):
        ended(overseer, seconds, shop=shop)
    assert kinds(catalog) == ["falling_behind"] * 2


def test_loading_once_says_nothing_of_the_pace(catalog: Catalog) -> None:
    overseer = Overseer(catalog)
    ended(overseer, 100, Action.FULL, "first load")
    ended(overseer, 100, Action.REINITIALIZE)
    assert (overseer.stretch, kinds(catalog)) == ({}, [])


def test_quiet_refreshes_say_nothing_of_the_pace(catalog: Catalog) -> None:
    overseer = Overseer(catalog)
    ended(overseer, 100)
    for _ in range(5):
        ended(overseer, 0, Action.NO_DATA)
    assert overseer.stretch == {A: 3}


def test_a_lag_that_is_exceeded_is_told_once_per_time(catalog: Catalog) -> None:
    overseer = Overseer(catalog)
    shop = Shop({"a": "orders"}, table("a", data_timestamp=NOON))

    def look(after: float, **fields: object) -> None:
        tables = {A: replace(shop.tables[A], **fields)}
        overseer.look(shop.network, tables, now=NOON + timedelta(seconds=after), since=NOON)

    look(59)
    assert kinds(catalog) == []
    look(61)
    look(70)
    assert kinds(catalog) == ["lag_exceeded"]
    look(71, data_timestamp=NOON + timedelta(seconds=60))
    look(140, data_timestamp=NOON + timedelta(seconds=60))
    assert kinds(catalog) == ["lag_exceeded"] * 2


def test_a_table_that_was_never_loaded_is_late_too(catalog: Catalog) -> None:
    overseer = Overseer(catalog)
    shop = Shop({"a": "orders"}, table("a", data_timestamp=None, frontier=None))
    for seconds in (59, 61, 70):
        overseer.look(shop.network, shop.tables, now=NOON + timedelta(seconds=seconds), since=NOON)
    assert kinds(catalog) == ["lag_exceeded"]
    assert "it was never loaded" in catalog.alerts()[0].message


def test_a_run_of_a_cron_expression_that_was_missed_is_told_half_way_to_the_next(catalog: Catalog) -> None:
    overseer = Overseer(catalog)
    shop = Shop({"a": "orders"}, table("a", "CRON '0 * * * *'", data_timestamp=NOON - timedelta(minutes=59)))

    def look(minutes: float, *, since: float = -60, **fields: object) -> list[str]:
        tables = {A: replace(shop.tables[A], **fields)}
        moment = NOON + timedelta(minutes=minutes)
        overseer.look(shop.network, tables, now=moment, since=NOON + timedelta(minutes=since))
        return kinds(catalog)

    assert look(29) == []
    assert look(31, since=2) == [], "nobody was there when it was to run"
    assert look(31, status=Status.SUSPENDED) == []
    assert look(31) == look(45) == ["lag_exceeded"]
    message = catalog.alerts()[0].message
    assert "the run of 2026-03-03T12:00:00+00:00 has not brought it up to date" in message
    assert look(50, data_timestamp=NOON) == look(89, data_timestamp=NOON) == ["lag_exceeded"]
    assert look(91, data_timestamp=NOON) == ["lag_exceeded"] * 2


def test_a_rare_run_that_was_missed_is_told_by_a_service_that_restarts_often(catalog: Catalog) -> None:
    monthly = table("a", "CRON '0 0 1 * *'", data_timestamp=NOON - timedelta(days=40))
    shop = Shop({"a": "orders"}, monthly)
    for hours, told in ((0.9, []), (1.1, ["lag_exceeded"])):
        Overseer(catalog).look(shop.network, shop.tables, now=NOON, since=NOON - timedelta(hours=hours))
        assert kinds(catalog) == told


def test_a_schedule_that_cannot_be_read_concerns_its_table_alone(catalog: Catalog) -> None:
    overseer = Overseer(catalog)
    unknown = table("a", "CRON '0 6 * * *' TIME ZONE 'Europe/Atlantis'")
    shop = Shop({"a": "orders", "b": "a", "c": "orders"}, unknown, table("b", "1 day", data_timestamp=NOON))
    assert shop.planned() == ["c"]
    for _ in range(2):
        overseer.look(shop.network, shop.tables, now=NOON, since=NOON)
    assert kinds(catalog) == ["refresh_failed"]
    assert catalog.alerts()[0].stream_table == A
    assert "There is no time zone 'Europe/Atlantis'" in catalog.alerts()[0].message


def test_contents_of_moments_to_come_are_told_once(catalog: Catalog) -> None:
    overseer = Overseer(catalog)
    ahead = NOON + timedelta(hours=1)
    shop = Shop({"a": "orders", "b": "a"}, table("a", data_timestamp=ahead), table("b", data_timestamp=ahead))
    for seconds in (0, 60, 3600):
        overseer.look(shop.network, shop.tables, now=NOON + timedelta(seconds=seconds), since=NOON)
    assert kinds(catalog) == ["clock_ahead"]
    assert "s.a and of 1 other" in catalog.alerts()[0].message
    overseer.measure(shop.network, shop.tables, now=NOON, running=0)
    assert 'headrace_lag_seconds{stream_table="s.a"} 0' in overseer.metrics.render().splitlines()
    overseer.look(shop.network, shop.tables, now=NOON, since=NOON)
    assert kinds(catalog) == ["clock_ahead"] * 2


def test_a_second_service_does_not_tell_it_again(catalog: Catalog) -> None:
    shop = Shop({"a": "orders"}, table("a", data_timestamp=NOON))
    for seconds in (61, 62):
        late = NOON + timedelta(seconds=seconds)
        Overseer(catalog).look(shop.network, shop.tables, now=late, since=NOON)
    assert kinds(catalog) == ["lag_exceeded"]


def test_nothing_is_late_right_after_the_service_began(catalog: Catalog) -> None:
    overseer = Overseer(catalog)
    shop = Shop({"a": "orders"}, table("a", data_timestamp=NOON - timedelta(days=1)))
    overseer.look(shop.network, shop.tables, now=NOON + timedelta(seconds=1), since=NOON)
    assert kinds(catalog) == []


def test_gauges_follow_the_tables(catalog: Catalog) -> None:
    overseer = Overseer(catalog)
    shop = Shop({"a": "orders"}, table("a", data_timestamp=NOON))
    overseer.measure(shop.network, shop.tables, now=NOON + timedelta(seconds=5), running=2)
    lines = overseer.metrics.render().splitlines()
    assert 'headrace_lag_seconds{stream_table="s.a"} 5' in lines
    assert 'headrace_lag_target_seconds{stream_table="s.a"} 60' in lines
    assert "headrace_running_refreshes 2" in lines
    catalog.raise_alert("lag_exceeded", "late")
    assert 'headrace_alerts_total{kind="lag_exceeded"} 1' in overseer.metrics.render().splitlines()
