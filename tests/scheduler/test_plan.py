"""Plans: what a tick takes along, what it leaves and why, and the moment that all of it shares."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.catalog import Dependency, RefreshMode, Status, StreamTable
from headrace.scheduler.clock import AHEAD, Clock
from headrace.scheduler.network import Network, build_network
from headrace.scheduler.plan import DiamondPolicy, Memory, Plan, plan_due, plan_tables
from headrace.scheduler.schedule import Every, parse_schedule
from headrace.sql.names import TableName
from tests.timing import fastest

NOON = datetime(2026, 3, 3, 12, tzinfo=UTC)
NOW = NOON + timedelta(seconds=10)


def name(table: str) -> TableName:
    return TableName("s", table)


def table(named: str, schedule: str = "1 minute", **fields: Any) -> StreamTable:
    values: dict[str, Any] = {
        "id": named,
        "name": name(named),
        "query": "",
        "expanded_query": "",
        "current_schema": "s",
        "columns": (),
        "status": Status.ACTIVE,
        "refresh_mode": RefreshMode.AUTO,
        "effective_mode": "DIFFERENTIAL",
        "mode_reason": "",
        "schedule": schedule,
        "comment": None,
        "cluster_by": (),
        "options": {},
        "location": "/lake",
        "table_id": None,
        "storage_version": 1,
        "frontier": {},
        "data_timestamp": NOON - timedelta(hours=1),
        "reinitialize_reason": None,
        "consecutive_errors": 0,
        "last_error": None,
        "created_at": NOON,
        "updated_at": NOON,
        "last_refresh_at": None,
    }
    return StreamTable(**(values | fields))


class Shop:
    """A network made of `reader < source, source` lines."""

    def __init__(self, edges: dict[str, str], *tables: StreamTable) -> None:
        known = {one.name: one for one in tables}
        self.tables = {name(one): known.get(name(one), table(one)) for one in edges}
        reads = [
            Dependency(name(reader), name(one), "STREAM_TABLE" if one in edges else "TABLE")
            for reader, sources in edges.items()
            for one in sources.split()
        ]
        self.network: Network = build_network(self.tables.values(), reads)

    def due(self, policy: DiamondPolicy = "fastest", memory: Memory | None = None) -> Plan | None:
        return plan_due(
            self.network, self.tables, Clock(), at=NOW, now=NOW, policy=policy, memory=memory or Memory()
        )

    def planned(self, **options: Any) -> list[str]:
        plan = self.due(**options)
        return [one.table for one in plan.tables] if plan else []


CHAIN = {"a": "orders", "b": "a", "c": "b"}
DIAMOND = {"l": "orders", "r": "orders", "tip": "l r"}


def test_a_table_takes_along_what_it_reads() -> None:
    hour = NOON - timedelta(minutes=1)
    shop = Shop(
        CHAIN, table("a", "DOWNSTREAM"), table("b", "10 hours", data_timestamp=hour), table("c", "1 minute")
    )
    assert shop.planned() == ["a", "b", "c"]


def test_nothing_due_is_no_plan() -> None:
    assert Shop({"a": "orders"}, table("a", data_timestamp=NOW)).due() is None
    assert Shop({"a": "orders"}, table("a", "DOWNSTREAM")).due() is None
    assert Shop({}).due() is None


def test_a_table_under_creation_is_never_due() -> None:
    young = {"location": "", "status": Status.INITIALIZING, "data_timestamp": None, "frontier": None}
    assert Shop({"a": "orders", "b": "orders"}, table("b", **young)).planned() == ["a"]


def test_the_moment_is_never_before_contents_that_are_there() -> None:
    by_hand = NOON + timedelta(seconds=7)
    plan = Shop(CHAIN, table("a", data_timestamp=by_hand)).due()
    assert plan is not None
    assert plan.moment == by_hand
    assert len(plan.tables) == 3


def test_a_moment_ahead_is_not_claimed() -> None:
    shop = Shop(CHAIN)
    plan = plan_due(shop.network, shop.tables, Clock(), at=NOW + timedelta(days=1), now=NOW)
    assert plan is not None
    assert plan.moment == NOW


def test_contents_of_a_moment_to_come_move_only_what_they_are_connected_with() -> None:
    hour = NOON + timedelta(hours=1)
    shop = Shop(
        {"a": "orders", "b": "a", "u": "orders", "v": "u", "w": "x"},
        table("a", data_timestamp=hour),
        table("u", data_timestamp=NOW + AHEAD / 2),
        table("w", status=Status.SUSPENDED),
    )
    plan = shop.due()
    assert plan is not None
    assert [(one.moment, [each.table for each in one.tables]) for one in plan.parts] == [
        (NOW + AHEAD / 2, ["u", "v"]),
        (hour, ["a", "b"]),
    ]
    plan = plan_tables(shop.network, shop.tables, [name("b")], moment=NOW)
    assert plan is not None
    assert (plan.moment, plan.ahead) == (hour, ())


@given(
    st.lists(st.integers(-7200, 7200), min_size=1, max_size=6), st.sampled_from(["10 seconds", "1 minute"])
)
def test_no_clock_step_freezes_a_table_or_takes_it_back(steps: list[int], lag: str) -> None:
    shop = Shop(
        {"a": "orders", "b": "a", "u": "orders"}, table("a", lag), table("b"), table("u", "5 minutes")
    )
    now, clock, tried = NOW, Clock(), dict[TableName, datetime]()
    for step in steps:
        now += timedelta(seconds=step)
        began = now
        while now < began + timedelta(minutes=6):
            memory = Memory(tried=tried)
            plan = plan_due(shop.network, shop.tables, clock, at=now, now=now, memory=memory)
            for part in plan.parts if plan is not None else ():
                for one in part.tables:
                    before = shop.tables[one]
                    assert before.data_timestamp is not None
                    assert part.moment >= before.data_timestamp
                    assert part.moment <= max(
                        now, before.data_timestamp, shop.tables[name("a")].data_timestamp
                    )
                    shop.tables[one] = replace(before, data_timestamp=part.moment, last_refresh_at=now)
                    tried[one] = min(part.moment, now)
            now += timedelta(seconds=6)
        for one in shop.tables.values():
            assert one.last_refresh_at is not None
            allowed = {"a": lag, "b": "1 minute", "u": "5 minutes"}[one.name.table]
            schedule = parse_schedule(allowed)
            assert isinstance(schedule, Every)
            assert (now - one.last_refresh_at).total_seconds() <= schedule.seconds + 6, (one.name, steps)


def test_readers_of_a_suspended_table_are_blocked_at_any_depth_and_others_go_on() -> None:
    shop = Shop({**CHAIN, "x": "orders"}, table("a", status=Status.SUSPENDED))
    plan = shop.due()
    assert plan is not None
    assert [one.table for one in plan.tables] == ["x"]
    assert {one.table: reason for one, reason in plan.blocked.items()} == {
        "b": "it reads s.a, which is suspended",
        "c": "it reads s.a, which is suspended",
    }


def test_a_table_in_error_is_tried_more_and_more_rarely() -> None:
    failed = NOON - timedelta(seconds=60)
    error = table("a", status=Status.ERROR, last_error="gone", last_refresh_at=failed, consecutive_errors=1)
    assert Shop({"a": "orders"}, error).planned() == ["a"]
    assert Shop({"a": "orders"}, replace(error, consecutive_errors=5)).planned() == []


def test_a_failed_table_waits_for_its_next_tick() -> None:
    failed = table("a", last_error="overflow", last_refresh_at=NOON + timedelta(seconds=9))
    assert Shop({"a": "orders"}, failed).planned() == []
    assert Shop({"a": "orders"}, replace(failed, last_refresh_at=NOON - timedelta(seconds=40))).planned()


def test_what_is_under_way_holds_up_only_its_readers() -> None:
    shop = Shop({**CHAIN, "x": "orders", "y": "a"})
    assert shop.planned(memory=Memory(busy={name("b")})) == ["a", "x", "y"]
    assert shop.planned(memory=Memory(busy={name("a")})) == ["x"]


@pytest.mark.parametrize("edges", [DIAMOND, {"up": "x", "l": "up orders", "r": "orders", "tip": "l r"}])
def test_no_branch_of_a_diamond_goes_while_another_is_under_way(edges: dict[str, str]) -> None:
    shop = Shop({**edges, "reader": "r", "other": "orders"})
    busy = name("up") if "up" in edges else name("l")
    assert shop.planned(memory=Memory(busy={busy})) == ["other"]


def test_a_moment_that_was_tried_is_not_tried_again() -> None:
    shop = Shop({"a": "orders"})
    assert shop.planned(memory=Memory(tried={name("a"): NOW})) == []


def test_a_stretched_period_is_due_more_rarely() -> None:
    shop = Shop({"a": "orders"}, table("a", data_timestamp=NOON - timedelta(seconds=20)))
    assert shop.planned() == ["a"]
    assert shop.planned(memory=Memory(stretch={name("a"): 6})) == []


@pytest.mark.parametrize(("policy", "planned"), [("fastest", ["l", "r", "tip"]), ("slowest", [])])
def test_a_diamond_moves_whole(policy: DiamondPolicy, planned: list[str]) -> None:
    fresh = NOON - timedelta(minutes=1)
    shop = Shop(DIAMOND, table("l"), table("r", "1 day", data_timestamp=fresh), table("tip"))
    assert shop.planned(policy=policy) == planned


@pytest.mark.parametrize(
    ("left", "planned"),
    [
        (table("l", "DOWNSTREAM"), ["l", "r", "tip"]),
        (table("l", status=Status.SUSPENDED), ["r"]),
    ],
)
def test_the_slowest_policy_waits_for_no_table_that_never_becomes_due(
    left: StreamTable, planned: list[str]
) -> None:
    shop = Shop(DIAMOND, left, table("r", "10 minutes"))
    assert shop.planned(policy="slowest") == planned
    fresh = table("r", "1 day", data_timestamp=NOON - timedelta(minutes=1))
    assert Shop(DIAMOND, left, fresh).planned(policy="slowest") == []


def test_by_hand_a_suspended_table_is_refreshed_but_not_built_upon() -> None:
    shop = Shop(CHAIN, table("b", status=Status.SUSPENDED))
    wanted = [name("b")]
    plan = plan_tables(shop.network, shop.tables, wanted, moment=NOW, forced=wanted)
    assert plan is not None
    assert [one.table for one in plan.tables] == ["a", "b"]
    plan = plan_tables(shop.network, shop.tables, [name("c")], moment=NOW, forced=[name("c")])
    assert plan is not None
    assert not plan.tables
    assert "s.b, which is suspended" in plan.blocked[name("c")]


def test_a_thousand_tables_in_a_chain_are_planned_at_once() -> None:
    shop = Shop({f"t{i}": f"t{i - 1}" if i else "orders" for i in range(1000)})
    plans: list[list[str]] = []
    assert fastest(lambda: plans.append(shop.planned()), enough=1) < 1
    assert {len(plan) for plan in plans} == {1000}
