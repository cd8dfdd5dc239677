"""AUTO's choice: by the share that changed first, then by what refreshes of the table took."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest

from headrace.catalog import Action, Catalog, RefreshRecord, RefreshState, StreamTable
from headrace.refresh.choice import FIRST_LOAD, Figures, choose_full, gather, measured_of, prefers_full
from headrace.sql.names import TableName
from tests.catalog.samples import new_table

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
ROWS = 1_000


def done(
    action: Action,
    ms: float,
    rows: int = ROWS,
    *,
    built: int = 0,
    reason: str = "",
    number: int = 1,
    **details: float,
) -> RefreshRecord:
    return RefreshRecord(
        id=number,
        stream_table=TableName("shop", "totals"),
        stream_table_id="a1",
        state=RefreshState.COMPLETED,
        action=action,
        reason=reason,
        started_at=NOON,
        ended_at=NOON,
        data_timestamp=NOON,
        rows_inserted=0,
        rows_deleted=0,
        delta_row_count=0,
        frontier=None,
        error_code=None,
        error=None,
        duration_ms=ms,
        spark_jobs=0,
        details={"change_rows": rows, "states_built": built, **details},
    )


def figures(*newest_first: RefreshRecord, change: int = ROWS, in_sources: int | None = None) -> Figures:
    return gather(change, 1_000_000, newest_first, in_sources)


def test_a_large_share_is_recomputed_until_both_ways_were_measured() -> None:
    known = figures(done(Action.FULL, 6_000), change=200_000)
    assert prefers_full(known, 0.15) == "20% of the source rows changed, over the threshold of 15%"
    assert prefers_full(known, 0.5) is None


def test_a_changed_row_counts_for_its_group_where_that_is_computed_anew() -> None:
    history = [done(Action.FULL, 6_000)]
    assert prefers_full(figures(*history, change=10_000), 0.15) is None
    windows = gather(10_000, 1_000_000, history, whole_groups=True)
    assert prefers_full(windows, 0.15) == (
        "1.0% of the source rows changed, each with its whole group: over the threshold of 15%"
    )
    assert prefers_full(gather(1_000, 1_000_000, history, whole_groups=True), 0.15) is None
    measured = [done(Action.DIFFERENTIAL, 1_000, 10_000), *history]
    assert prefers_full(gather(10_000, 1_000_000, measured, whole_groups=True), 0.15) is None


def test_a_large_share_is_tried_where_recomputing_takes_seconds_only() -> None:
    assert prefers_full(figures(done(Action.FULL, 4_000), change=200_000), 0.15) is None
    small = [done(Action.DIFFERENTIAL, 100), done(Action.FULL, 4_000)]
    assert prefers_full(figures(*small, change=200_000), 0.15) is None
    tried = [done(Action.DIFFERENTIAL, 9_000, 200_000), *small]
    assert prefers_full(figures(*tried, change=200_000), 0.15) is not None, "once"


def test_what_a_large_change_took_is_remembered_through_small_ones() -> None:
    small = [done(Action.DIFFERENTIAL, 100) for _ in range(20)]
    history = [*small, done(Action.DIFFERENTIAL, 9_000, 200_000), done(Action.FULL, 4_000)]
    assert prefers_full(figures(*history, change=210_000), 0.15) is not None
    assert prefers_full(figures(*history), 0.15) is None


def test_changes_of_about_one_size_are_measured_together() -> None:
    sizes = [(1_000, 300), (900, 250), (1_100, 4_000), (1_200, 350), (5_000, 9_000)]
    history = [done(Action.DIFFERENTIAL, ms, rows) for rows, ms in sizes]
    known = figures(*history, change=1_000)
    assert known.measured_rows == 1_000
    assert known.differential_ms is not None
    assert known.differential_ms == 300, "those that the machine was slow for do not decide"


def test_what_was_measured_decides_and_a_larger_change_takes_longer() -> None:
    history = [done(Action.DIFFERENTIAL, 1_000), done(Action.FULL, 5_000)]
    assert prefers_full(figures(*history), 0.15) is None
    assert prefers_full(figures(*history, change=9 * ROWS), 0.15) is None, "about three times as long"
    assert prefers_full(figures(*history, change=100 * ROWS), 0.15) is None, (
        "twice as long: one try tells more"
    )
    history[0] = done(Action.DIFFERENTIAL, 1_100)
    assert prefers_full(figures(*history, change=100 * ROWS), 0.15) == (
        "the change would take about 11,000 ms, recomputing about 5,000 ms"
    )
    tried = [done(Action.DIFFERENTIAL, 6_000, 90 * ROWS), *history]
    assert prefers_full(figures(*tried, change=100 * ROWS), 0.15) is not None, "it was tried"
    slow = [done(Action.DIFFERENTIAL, 9_000, 100 * ROWS), *history]
    assert figures(*slow, change=100 * ROWS).differential_ms == 9_000, "the nearest in size is taken"
    history[0] = done(Action.DIFFERENTIAL, 5_200)
    assert prefers_full(figures(*history), 0.15) is None, "a difference that is lost in the noise"


def test_a_large_share_is_recomputed_where_only_small_ones_were_measured() -> None:
    history = [done(Action.DIFFERENTIAL, 100), done(Action.FULL, 8_000)]
    assert "over the threshold" in str(prefers_full(figures(*history, change=200_000), 0.15))
    measured = [done(Action.DIFFERENTIAL, 900, 100_000), *history]
    assert prefers_full(figures(*measured, change=200_000), 0.15) is None


def test_a_large_share_is_tried_where_it_cannot_take_much_longer() -> None:
    small = [done(Action.DIFFERENTIAL, 45), done(Action.FULL, 8_000)]
    assert figures(*small, change=200_000).at_most_ms == 9_000
    assert prefers_full(figures(*small, change=200_000), 0.15) is None
    slower = [done(Action.DIFFERENTIAL, 46), done(Action.FULL, 8_000)]
    assert prefers_full(figures(*slower, change=200_000), 0.15) is not None
    built = [done(Action.DIFFERENTIAL, 2_000, 190_000, built=1), *slower]
    assert prefers_full(figures(*built, change=200_000), 0.15) is None, "with its state it took less"
    tried = [done(Action.DIFFERENTIAL, 9_000, 200_000), *small]
    assert prefers_full(figures(*tried, change=200_000), 0.15) is not None, "it did take longer"


def test_building_state_is_not_held_against_the_refreshes_that_follow() -> None:
    first = [done(Action.DIFFERENTIAL, 12_000, built=2), done(Action.FULL, 5_000)]
    assert figures(*first).differential_ms is None
    assert prefers_full(figures(*first), 0.15) is None
    assert figures(done(Action.DIFFERENTIAL, 400), *first).differential_ms == 400


def test_state_that_a_full_refresh_left_behind_is_shared_by_those_it_will_serve() -> None:
    known = [done(Action.DIFFERENTIAL, 400), done(Action.DIFFERENTIAL, 12_400, built=1)]
    behind = [done(Action.NO_DATA, 5), done(Action.FULL, 5_000), *known]
    assert figures(*behind).differential_ms == 400 + 12_000 / 8
    assert prefers_full(figures(*behind), 0.15) is None
    assert prefers_full(figures(done(Action.FULL, 1_000), *known), 0.15) is not None


def test_state_that_is_built_every_time_is_no_help() -> None:
    building = [done(Action.DIFFERENTIAL, 12_000, built=1) for _ in range(2)]
    assert prefers_full(figures(*building, done(Action.FULL, 5_000)), 0.15) is not None


def test_the_first_load_counts_until_another_full_refresh_is_measured() -> None:
    first = done(Action.FULL, 9_000, reason=FIRST_LOAD)
    assert figures(first).full_ms == 9_000
    assert figures(done(Action.FULL, 2_000), first).full_ms == 2_000
    assert figures(done(Action.REINITIALIZE, 3_000), done(Action.FULL, 2_000), first).full_ms == 2_500


def test_of_two_times_the_shorter_is_expected_of_the_change() -> None:
    known = figures(
        done(Action.DIFFERENTIAL, 200), done(Action.DIFFERENTIAL, 3_000), done(Action.FULL, 1_200)
    )
    assert known.differential_ms == 200
    assert prefers_full(known, 0.15) is None


def test_a_smaller_change_takes_no_longer_than_a_larger_one() -> None:
    small, large = (
        done(Action.DIFFERENTIAL, 400, 1, number=1),
        done(Action.DIFFERENTIAL, 500, 1_000, number=2),
    )
    known = figures(large, small, change=400)
    assert (known.measured_rows, known.differential_ms) == (1_000, 500), "the nearest by its share"
    assert figures(large, small, change=20).differential_ms == 500, "and not 400 ms times four"
    before = done(Action.DIFFERENTIAL, 500, 1_000, number=0)
    older = figures(small, before, change=20).differential_ms
    assert older is not None
    assert older > 1_700, "when the table may have been a smaller one"


def test_the_slower_way_is_tried_again_the_more_rarely_the_slower_it_was() -> None:
    full = done(Action.FULL, 1_000)
    tried_once = figures(done(Action.DIFFERENTIAL, 3_000, number=7), full)
    assert (tried_once.full_between_tries, tried_once.measured_id) == (6, 7)
    several = [done(Action.DIFFERENTIAL, 3_000, number=number) for number in (9, 8)]
    assert (figures(*several, full).full_between_tries, figures(*several, full).measured_id) == (20, 9)
    close = [done(Action.DIFFERENTIAL, 1_100, number=number) for number in (9, 8)]
    assert figures(*close, full).full_between_tries == 3
    unknown = figures(full, change=200_000)
    assert (unknown.full_between_tries, unknown.measured_id) == (50, 0)


def test_recomputing_is_expected_to_grow_with_the_sources() -> None:
    history = [done(Action.FULL, 2_200, rows_in_sources=1_000_000)]
    assert figures(*history).full_ms == 2_200
    assert figures(*history, in_sources=10_000_000).full_ms == 20_200
    assert figures(*history, in_sources=500_000).full_ms == 1_200


def test_a_change_that_turned_out_impossible_counts_as_a_slow_one() -> None:
    failed = done(Action.FULL, 5_000, failed_change_ms=1_000)
    known = figures(failed)
    assert (known.full_ms, known.differential_ms) == (4_000, 10_000)
    assert prefers_full(known, 0.15) is not None


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[Catalog]:
    with closing(Catalog.open(f"sqlite:///{tmp_path / 'catalog.db'}")) as opened:
        yield opened


def add(catalog: Catalog) -> StreamTable:
    return catalog.add(new_table(), [])


def note(catalog: Catalog, table: StreamTable, action: Action, ms: float) -> None:
    """Write a refresh down as one that ended well."""
    catalog.record_refresh(
        table.name,
        state=RefreshState.COMPLETED,
        started_at=NOON,
        action=action,
        duration_ms=ms,
        details={"change_rows": ROWS},
    )


def actions_of(catalog: Catalog, table: StreamTable, takes: dict[Action, float], count: int) -> str:
    """Let AUTO choose so many times while both ways take always the same."""
    chosen = ""
    for _ in range(count):
        known = gather(ROWS, 1_000_000, measured_of(catalog, table))
        cheaper, remark = choose_full(catalog, table, known, 0.15)
        action = Action.FULL if cheaper else Action.DIFFERENTIAL
        assert not remark or (action is Action.DIFFERENTIAL and "tried again" in remark)
        note(catalog, table, action, takes[action])
        chosen += action[0]
    return chosen


def test_one_slow_change_does_not_decide_for_ever(catalog: Catalog) -> None:
    table = add(catalog)
    note(catalog, table, Action.FULL, 1_200)
    note(catalog, table, Action.DIFFERENTIAL, 3_000)
    takes = {Action.FULL: 1_200.0, Action.DIFFERENTIAL: 200.0}
    assert actions_of(catalog, table, takes, 20) == "FFFFF" + "D" * 15


def test_a_way_that_stays_slower_is_tried_rarely(catalog: Catalog) -> None:
    table = add(catalog)
    note(catalog, table, Action.FULL, 1_000)
    takes = {Action.FULL: 1_000.0, Action.DIFFERENTIAL: 3_000.0}
    assert (
        actions_of(catalog, table, takes, 60)
        == "D" + "F" * 6 + "D" + "F" * 20 + "D" + "F" * 20 + "D" + "F" * 10
    )


@pytest.mark.parametrize("died", [False, True])
def test_tries_that_fail_for_want_of_something_end_in_recomputing(catalog: Catalog, died: bool) -> None:
    table = add(catalog)
    note(catalog, table, Action.FULL, 1_000)
    known = gather(ROWS, 1_000_000, measured_of(catalog, table))
    for number in range(2):
        assert choose_full(catalog, table, known, 0.15) == (None, ""), number
        refresh = catalog.start_refresh(table.name, reason="", details={"tried": Action.DIFFERENTIAL})
        if died:
            catalog.fail_running(reason="no memory")
        else:
            details = {"tried": Action.DIFFERENTIAL}
            catalog.finish_refresh(refresh, state=RefreshState.FAILED, error="no memory", details=details)
    assert choose_full(catalog, table, known, 0.15) == (
        "the last 2 tries to take the change failed: no memory",
        "",
    )
    note(catalog, table, Action.FULL, 1_000)
    assert choose_full(catalog, table, known, 0.15) == (None, "")
