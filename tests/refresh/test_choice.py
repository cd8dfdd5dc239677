"""AUTO's choice: by the share that changed first, then by what refreshes of the table took."""

from __future__ import annotations

from datetime import UTC, datetime

from headrace.catalog import Action, RefreshRecord, RefreshState
from headrace.refresh.choice import FIRST_LOAD, Figures, gather, prefers_full
from headrace.sql.names import TableName

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
ROWS = 1_000


def done(action: Action, ms: float, rows: int = ROWS, *, built: int = 0, reason: str = "") -> RefreshRecord:
    return RefreshRecord(
        id=1,
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
        details={"change_rows": rows, "states_built": built},
    )


def figures(*newest_first: RefreshRecord, change: int = ROWS) -> Figures:
    return gather(change, 1_000_000, newest_first)


def test_a_large_share_is_recomputed_until_both_ways_were_measured() -> None:
    known = figures(done(Action.FULL, 6_000), change=200_000)
    assert prefers_full(known, 0.15) == "20% of the source rows changed, over the threshold of 15%"
    assert prefers_full(known, 0.5) is None


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
    assert 300 <= known.differential_ms <= 350, "one that the machine was slow for does not decide"


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
