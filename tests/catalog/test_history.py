"""History: each refresh has its row, and its end and what it moved are one."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

import pytest

from headrace.catalog import Action, Catalog, RefreshState, SourceVersion, Status
from headrace.errors import HeadraceError
from tests.catalog.samples import TOP, TOTALS, new_table

TTL = timedelta(seconds=30)


@pytest.fixture(autouse=True)
def tables(catalog: Catalog) -> None:
    catalog.add(new_table(), [])
    catalog.add(new_table(TOP), [])


def now() -> datetime:
    return datetime.now(UTC)


def test_a_refresh_from_start_to_end(catalog: Catalog) -> None:
    moment, frontier = now(), {"shop.orders": SourceVersion(4, "o")}
    refresh = catalog.start_refresh(TOTALS, reason="asked for", data_timestamp=moment)
    (running,) = catalog.history()
    assert (running.id, running.state, running.action, running.ended_at) == (refresh, "RUNNING", None, None)
    assert (running.reason, running.data_timestamp) == ("asked for", moment)
    ended = catalog.finish_refresh(
        refresh,
        state=RefreshState.COMPLETED,
        action=Action.FULL,
        reason="first load",
        rows_inserted=5,
        rows_deleted=2,
        delta_row_count=7,
        frontier=frontier,
        duration_ms=12.5,
        spark_jobs=3,
        details={"change_ratio": 0.5, "sizes": [1, 2]},
        changes={
            "status": Status.ACTIVE,
            "frontier": frontier,
            "data_timestamp": moment,
            "storage_version": 1,
        },
    )
    assert catalog.history(TOTALS) == [ended]
    assert (ended.state, ended.action, ended.reason) == ("COMPLETED", Action.FULL, "first load")
    assert (ended.rows_inserted, ended.rows_deleted, ended.delta_row_count) == (5, 2, 7)
    assert (ended.frontier, ended.duration_ms, ended.spark_jobs) == (frontier, 12.5, 3)
    assert ended.details == {"change_ratio": 0.5, "sizes": [1, 2]}
    assert ended.data_timestamp == moment
    table = catalog.find(TOTALS)
    assert (table.status, table.frontier, table.data_timestamp) == (Status.ACTIVE, frontier, moment)
    assert (table.storage_version, table.last_refresh_at) == (1, ended.ended_at)
    assert catalog.find(TOP).status is Status.INITIALIZING


def test_a_bad_change_leaves_the_refresh_running(catalog: Catalog) -> None:
    refresh = catalog.start_refresh(TOTALS, reason="")
    with pytest.raises(TypeError):
        catalog.finish_refresh(refresh, state=RefreshState.COMPLETED, changes={"nonsense": 1})  # type: ignore[typeddict-unknown-key]  # on purpose
    assert [record.state for record in catalog.history()] == [RefreshState.RUNNING]


@pytest.mark.parametrize("state", [RefreshState.COMPLETED, RefreshState.FAILED])
def test_a_suspension_outlives_the_refresh_during_which_it_came(
    catalog: Catalog, state: RefreshState
) -> None:
    refresh = catalog.start_refresh(TOTALS, reason="")
    catalog.update(TOTALS, status=Status.SUSPENDED)
    after = Status.ACTIVE if state is RefreshState.COMPLETED else Status.ERROR
    catalog.finish_refresh(refresh, state=state, changes={"status": after})
    assert catalog.find(TOTALS).status is Status.SUSPENDED
    catalog.record_refresh(TOTALS, state=state, started_at=now(), changes={"status": after})
    assert catalog.find(TOTALS).status is Status.SUSPENDED
    refresh = catalog.start_refresh(TOTALS, reason="")
    catalog.update(TOTALS, status=Status.INITIALIZING)
    catalog.finish_refresh(refresh, state=state, changes={"status": after})
    assert catalog.find(TOTALS).status is after


@pytest.mark.parametrize(("answered", "left"), [("old", None), ("new", "old"), (None, "old")])
def test_a_refresh_clears_no_reason_but_the_one_it_saw(
    catalog: Catalog, answered: str | None, left: str | None
) -> None:
    refresh = catalog.start_refresh(TOTALS, reason="")
    catalog.update(TOTALS, reinitialize_reason="old")
    catalog.finish_refresh(
        refresh, state=RefreshState.COMPLETED, changes={"reinitialize_reason": None}, answered=answered
    )
    assert catalog.find(TOTALS).reinitialize_reason == left


def test_errors_are_counted_and_cleared(catalog: Catalog) -> None:
    for expected in (1, 2):
        refresh = catalog.start_refresh(TOTALS, reason="")
        catalog.finish_refresh(refresh, state=RefreshState.FAILED, error_code="overflow", error="too large")
        table = catalog.find(TOTALS)
        assert (table.consecutive_errors, table.last_error) == (expected, "too large")
    catalog.record_refresh(TOTALS, state=RefreshState.SKIPPED, started_at=now(), action=Action.SKIPPED)
    assert catalog.find(TOTALS).consecutive_errors == 2
    catalog.record_refresh(TOTALS, state=RefreshState.COMPLETED, started_at=now(), action=Action.NO_DATA)
    table = catalog.find(TOTALS)
    assert (table.consecutive_errors, table.last_error) == (0, None)
    catalog.record_refresh(
        TOTALS, state=RefreshState.FAILED, started_at=now(), changes={"consecutive_errors": 0}
    )
    assert catalog.find(TOTALS).consecutive_errors == 0


def test_history_is_newest_first_and_limited(catalog: Catalog) -> None:
    for number in range(4):
        catalog.record_refresh(
            [TOTALS, TOP][number % 2], state=RefreshState.COMPLETED, started_at=now(), reason=str(number)
        )
    assert [record.reason for record in catalog.history()] == ["3", "2", "1", "0"]
    assert [record.reason for record in catalog.history(TOTALS, limit=1)] == ["2"]
    assert catalog.history(limit=0) == []


def test_completed_refreshes_are_those_of_this_table_by_these_actions(catalog: Catalog) -> None:
    catalog.remove(TOTALS)
    catalog.add(new_table(), [])
    before = catalog.find(TOTALS)
    catalog.record_refresh(
        TOTALS, state=RefreshState.COMPLETED, started_at=now(), action=Action.FULL, reason="old"
    )
    catalog.remove(TOTALS)
    catalog.add(new_table(), [])
    for number, action in enumerate(
        [Action.FULL, Action.DIFFERENTIAL, Action.NO_DATA, Action.FULL, Action.FULL]
    ):
        catalog.record_refresh(
            TOTALS, state=RefreshState.COMPLETED, started_at=now(), action=action, reason=str(number)
        )
    catalog.record_refresh(
        TOTALS, state=RefreshState.FAILED, started_at=now(), action=Action.FULL, reason="failed"
    )
    table = catalog.find(TOTALS)
    assert table.id != before.id

    def reasons(actions: set[Action], limit: int) -> list[str]:
        found = catalog.completed(table.id, TOTALS, actions, limit)
        after = found[-1].id if found else 0
        newer = catalog.count_completed(table.id, TOTALS, actions, after=after)
        assert newer == max(0, len(found) - 1), "those after the oldest of them"
        return [record.reason for record in found]

    assert reasons({Action.FULL}, 2) == ["4", "3"]
    assert reasons({Action.FULL, Action.DIFFERENTIAL}, 9) == ["4", "3", "1", "0"]


def test_a_refresh_ends_once(catalog: Catalog) -> None:
    refresh = catalog.start_refresh(TOTALS, reason="")
    catalog.finish_refresh(refresh, state=RefreshState.COMPLETED)
    for unfinishable in (refresh, 10**6):
        with pytest.raises(HeadraceError) as raised:
            catalog.finish_refresh(unfinishable, state=RefreshState.FAILED)
        assert raised.value.code == "refresh_not_running"


def test_unknown_tables_have_no_refreshes(catalog: Catalog) -> None:
    catalog.remove(TOP)
    with pytest.raises(HeadraceError, match="no stream table"):
        catalog.start_refresh(TOP, reason="")
    with pytest.raises(HeadraceError, match="no stream table"):
        catalog.record_refresh(TOP, state=RefreshState.COMPLETED, started_at=now())
    assert catalog.history() == []


def test_a_drop_ends_a_running_refresh(catalog: Catalog) -> None:
    refresh = catalog.start_refresh(TOTALS, reason="")
    catalog.remove(TOTALS)
    (record,) = catalog.history(TOTALS)
    assert (record.id, record.state) == (refresh, RefreshState.FAILED)
    with pytest.raises(HeadraceError):
        catalog.finish_refresh(refresh, state=RefreshState.COMPLETED)


def test_prune_keeps_the_newest_and_the_running(catalog: Catalog) -> None:
    long_ago = now() - timedelta(days=40)
    for name in (TOTALS, TOP):
        catalog.record_refresh(name, state=RefreshState.COMPLETED, started_at=long_ago, reason="old")
    running = catalog.start_refresh(TOTALS, reason="running")
    catalog.record_refresh(TOTALS, state=RefreshState.COMPLETED, started_at=now(), reason="new")
    assert catalog.prune_history(older_than=timedelta(days=30)) == 1
    assert [record.reason for record in catalog.history()] == ["new", "running", "old"]
    assert catalog.prune_history(older_than=timedelta(0)) == 0
    assert running in [record.id for record in catalog.history()]
    catalog.raise_alert("refresh_failed", "now", TOTALS)
    catalog.prune_history(older_than=timedelta(days=30))
    assert len(catalog.alerts()) == 1
    catalog.prune_history(older_than=timedelta(0))
    assert catalog.alerts() == []


def test_refreshes_without_a_live_lease_are_failed(catalog: Catalog) -> None:
    catalog.start_refresh(TOTALS, reason="no lease at all")
    with catalog.lease(TOP, owner="me", ttl=TTL) as lease:
        alive = catalog.start_refresh(TOP, reason="alive", lease=lease)
        (failed,) = catalog.fail_running(reason="gone")
        assert (failed.reason, failed.state, failed.error) == ("no lease at all", RefreshState.FAILED, "gone")
        assert failed.ended_at is not None
        assert catalog.fail_running() == []
    assert [record.id for record in catalog.fail_running()] == [alive]


def test_a_refresh_of_an_earlier_holder_is_failed(catalog: Catalog) -> None:
    first = catalog.acquire_lease(TOTALS, owner="crashed", ttl=timedelta(milliseconds=1))
    assert first
    crashed = catalog.start_refresh(TOTALS, reason="", lease=first)
    time.sleep(0.05)
    with catalog.lease(TOTALS, owner="heir", ttl=TTL) as second:
        assert second
        catalog.start_refresh(TOTALS, reason="", lease=second)
        assert [record.id for record in catalog.fail_running()] == [crashed]


def test_a_dead_owner_need_not_expire(catalog: Catalog) -> None:
    lease = catalog.acquire_lease(TOTALS, owner="killed", ttl=timedelta(hours=1))
    refresh = catalog.start_refresh(TOTALS, reason="", lease=lease)
    assert catalog.fail_running() == []
    assert [one.id for one in catalog.fail_running(owner_is_dead=lambda owner: owner == "killed")] == [
        refresh
    ]
    assert catalog.lease_owner(TOTALS) is None


def test_a_refresh_without_data_costs_little(catalog: Catalog, catalog_url: str) -> None:
    if not catalog_url.startswith("sqlite"):
        pytest.skip("the bound is for the embedded catalog")
    costs = []
    for _ in range(50):
        start = time.perf_counter()
        catalog.record_refresh(
            TOTALS,
            state=RefreshState.COMPLETED,
            action=Action.NO_DATA,
            started_at=now(),
            changes={"data_timestamp": now()},
        )
        costs.append(time.perf_counter() - start)
    # The fastest of many: others share the machine, and what is measured is the call.
    assert min(costs) < 0.003
