"""AUTO's choice between the change and the whole: by estimates first, then by what history measured."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

from headrace.catalog import Action, Catalog, RefreshRecord, RefreshState, StreamTable

_FULL = (Action.FULL, Action.REINITIALIZE)
# The reason of the refresh that fills a new table. It compiles and reads what later ones find at hand.
FIRST_LOAD = "first load"

# Older refreshes tell of another size of table.
_RECENT = 5
# Large changes come between many small ones, and what one of them took is remembered that long.
_REMEMBERED = 30
# A smaller gain is lost in the noise between two refreshes, and not worth rewriting the table for.
_NOTICED_MS = 300
# What one try of a large change may cost more than recomputing, if the worst comes true.
_RISKED_MS = 1_000
# Where recomputing takes no longer than this, one try of a change of any size is bearable: it was never seen
# to take ten times as long, and without it nobody would learn that most of them are quicker.
_BEARABLE_MS = 5_000
# State that is built once serves about so many refreshes until the next large change.
_SHARED_BY = 8
# What so many times smaller changes took says little of this one.
_MUCH_MORE = 4
# Changes whose sizes differ by no more than this factor take about as long.
_ALIKE = 1.5
# So many times quicker recomputing must promise to be where that is all that is known: one try tells more.
_IF_UNTRIED = 2
# What recomputing takes however few rows there are.
_FIXED_MS = 200
# Tries of the slower way may cost about a tenth of what all refreshes take; the first try of a size counts
# less, since it compiles and reads what later ones find at hand.
_TRIED_AGAIN, _TRIED_ONCE = 10, 3
_FEWEST_BETWEEN, _MOST_BETWEEN = 3, 50
# What a changed row counts for where its whole group is computed anew and the size of groups is not known: of
# ten million rows a window was quicker by its change where a thousandth had changed, slower for a hundredth.
_ROWS_OF_A_GROUP = 20
# A try that fails so often in a row may fail for good.
_FAILURES = 2


@dataclass(frozen=True)
class Figures:
    """What a choice was made by; kept with the refresh."""

    change_rows: int
    source_rows: int
    full_ms: float | None
    differential_ms: float | None
    measured_rows: int | None = None
    """How many rows changed in the refresh from which the time of the change is expected."""
    at_most_ms: float | None = None
    """What the change would take if all that was measured grew with its size."""
    measured_times: int = 0
    """How many changes of about that size were measured."""
    measured_id: int = 0
    """The newest refresh that measured one; 0 where there is none."""
    whole_groups: bool = False
    """Whether a changed row makes all rows of its group be computed anew, as those of a window are."""

    @property
    def is_new(self) -> bool:
        """Tell whether no change of about this size has been measured."""
        return self.measured_rows is None or self.change_rows > _MUCH_MORE * self.measured_rows

    @property
    def full_between_tries(self) -> int:
        """How many full refreshes shall lie between two tries of the change while it looks slower."""
        ms = self.at_most_ms if self.is_new else self.differential_ms
        if ms is None or not self.full_ms:
            return _MOST_BETWEEN
        weight = _TRIED_ONCE if self.measured_times == 1 else _TRIED_AGAIN
        wanted = math.ceil(weight * (ms / self.full_ms - 1))
        return max(_FEWEST_BETWEEN, min(wanted, _MOST_BETWEEN) if self.is_new else wanted)

    @property
    def ratio(self) -> float:
        return self.change_rows / self.source_rows if self.source_rows else 0.0

    @property
    def computed_ratio(self) -> float:
        """The share of the source rows that the change reads, as far as the query tells."""
        return min(1.0, self.ratio * (_ROWS_OF_A_GROUP if self.whole_groups else 1))

    def as_details(self) -> dict[str, object]:
        return {
            "change_rows": self.change_rows,
            "source_rows": self.source_rows,
            "change_ratio": round(self.ratio, 6),
            "whole_groups": self.whole_groups,
            "expected_full_ms": self.full_ms,
            "expected_differential_ms": self.differential_ms,
            "expected_from_rows": self.measured_rows,
            "expected_at_most_ms": self.at_most_ms,
        }


@dataclass(frozen=True)
class _Measured:
    """A change that was computed, or failed to be."""

    id: int
    rows: int
    ms: float


def is_first_load(reason: str) -> bool:
    """Know the first load by its reason, whatever was added to that.

    >>> is_first_load("first load; rewrite: the result has 3 rows"), is_first_load("asked for")
    (True, False)
    """
    return reason.split(";")[0] == FIRST_LOAD


def choose_full(
    catalog: Catalog, table: StreamTable, figures: Figures, threshold: float
) -> tuple[str | None, str]:
    """Say why AUTO recomputes, or None where it takes the change; and what is to be said of the change."""
    failed = _failing(catalog, table)
    if failed:
        return failed, ""
    cheaper = prefers_full(figures, threshold)
    if cheaper is None:
        return None, ""
    passed = catalog.count_completed(table.id, table.name, _FULL, after=figures.measured_id)
    if passed >= figures.full_between_tries:
        return None, f"the change is tried again after {passed} full refreshes: {cheaper}"
    return cheaper, ""


def _failing(catalog: Catalog, table: StreamTable) -> str | None:
    """Tell of changes that failed one after the other, as for want of memory, with nothing done since.

    Those during which the process died are among them.
    """
    tried = [
        record
        for record in catalog.history(table.name, limit=_FAILURES)
        if record.stream_table_id == table.id
        and record.state is RefreshState.FAILED
        and record.details.get("tried") == Action.DIFFERENTIAL
    ]
    if len(tried) < _FAILURES:
        return None
    return f"the last {_FAILURES} tries to take the change failed: {tried[0].error}"


def measured_of(catalog: Catalog, table: StreamTable) -> list[RefreshRecord]:
    """What is known of the refreshes of a table, the newest first."""
    of_both = [
        *catalog.completed(table.id, table.name, _FULL, _RECENT),
        *catalog.completed(table.id, table.name, (Action.DIFFERENTIAL,), _REMEMBERED),
    ]
    return sorted(of_both, key=lambda record: record.id, reverse=True)


def gather(
    change_rows: int,
    source_rows: int,
    history: Sequence[RefreshRecord],
    rows_in_sources: int | None = None,
    *,
    whole_groups: bool = False,
) -> Figures:
    """Expect of the next refresh what the last ones took, and more of a larger change.

    `source_rows` are those of the sources that changed, `rows_in_sources` those of all.
    """
    done = [record for record in history if record.state is RefreshState.COMPLETED]
    full_ms = _usual_of_full([r for r in done if r.action in _FULL], rows_in_sources)
    changes = [r for r in done if r.action is Action.DIFFERENTIAL]
    # What one refresh takes to build hidden state, the next ones are spared.
    builders = _measured([r for r in changes if r.details.get("states_built")])
    plain = _measured([r for r in changes if not r.details.get("states_built")]) + _failed(done)
    usual = _similar(change_rows, plain)
    building = _similar(change_rows, builders[:1])
    if not usual and len(builders) > 1:
        # The state does not serve, since it is built again and again.
        usual = building
    ms = _expected(change_rows, usual, plain)
    build_ms = _expected(change_rows, building, builders)
    if ms is not None and build_ms is not None and _leaves_state_behind(done):
        ms += max(0.0, build_ms - ms) / _SHARED_BY
    bounds = [
        _expected(change_rows, some, [], power=1.0) for some in (_similar(change_rows, plain), building)
    ]
    figures = Figures(
        change_rows,
        source_rows,
        full_ms,
        ms,
        measured_rows=_nearest(change_rows, usual) if usual else None,
        at_most_ms=min((bound for bound in bounds if bound is not None), default=None),
        whole_groups=whole_groups,
    )
    if figures.is_new:
        return figures
    return replace(figures, measured_times=len(usual), measured_id=max(one.id for one in usual))


def _measured(done: Sequence[RefreshRecord]) -> list[_Measured]:
    return [
        _Measured(record.id, int(rows), record.duration_ms)
        for record in done
        if record.duration_ms and (rows := record.details.get("change_rows"))
    ]


def _failed(done: Sequence[RefreshRecord]) -> list[_Measured]:
    """Changes that could not be computed, so that recomputing followed: they count twice what that cost."""
    return [
        _Measured(one.id, one.rows, 2 * one.ms)
        for one in _measured([record for record in done if record.details.get("failed_change_ms")])
    ]


def _usual_of_full(done: Sequence[RefreshRecord], rows_now: int | None) -> float | None:
    """What recomputing takes; the first load tells of it only until another one has been measured."""
    later = [record for record in done if not is_first_load(record.reason)] or done
    measured = [_grown(record, rows_now) for record in later[:_RECENT] if record.duration_ms]
    return statistics.median(measured) if measured else None


def _grown(record: RefreshRecord, rows_now: int | None) -> float:
    """What recomputing takes now: but for a fixed part as many times longer as there are more rows."""
    ms = float(record.duration_ms or 0) - float(record.details.get("failed_change_ms") or 0)
    rows_then = record.details.get("rows_in_sources")
    if not rows_then or not rows_now:
        return ms
    fixed = min(ms, _FIXED_MS)
    return fixed + (ms - fixed) * rows_now / int(rows_then)


def _leaves_state_behind(done: Sequence[RefreshRecord]) -> bool:
    """Tell whether the contents were last written in full, so that hidden state is of an older frontier."""
    written = (record.action for record in done if record.action is not Action.NO_DATA)
    return next(written, Action.FULL) is not Action.DIFFERENTIAL


def prefers_full(figures: Figures, threshold: float) -> str | None:
    """Say why recomputing is the cheaper way, or None where it is not."""
    if figures.is_new and figures.computed_ratio > threshold and not _is_worth_a_try(figures):
        limit = f"the threshold of {threshold:.0%}"
        if figures.whole_groups:
            return f"{figures.ratio:.1%} of the source rows changed, each with its whole group: over {limit}"
        return f"{figures.ratio:.0%} of the source rows changed, over {limit}"
    if figures.full_ms is None or figures.differential_ms is None:
        return None
    recomputing = figures.full_ms * (_IF_UNTRIED if figures.is_new else 1)
    if figures.differential_ms - recomputing > _NOTICED_MS:
        return (
            f"the change would take about {figures.differential_ms:,.0f} ms, "
            f"recomputing about {figures.full_ms:,.0f} ms"
        )
    return None


def _is_worth_a_try(figures: Figures) -> bool:
    """Tell whether a change of this size, of which nothing is known yet, may be computed to learn of it.

    It may where even a time that grows with its size would not be much longer than recomputing takes.
    """
    if figures.full_ms is None:
        return False
    if figures.full_ms <= _BEARABLE_MS:
        return True
    return figures.at_most_ms is not None and figures.at_most_ms - figures.full_ms <= _RISKED_MS


def _similar(change_rows: int, done: Sequence[_Measured]) -> list[_Measured]:
    """The last changes whose size was nearest, as many times larger or smaller, the newest first."""
    if not done:
        return []
    nearest = _nearest(change_rows, done)
    similar = [one for one in done if nearest / _ALIKE <= one.rows <= nearest * _ALIKE]
    return sorted(similar, key=lambda one: one.id, reverse=True)[:_RECENT]


def _nearest(change_rows: int, done: Sequence[_Measured]) -> int:
    return min(
        (one.rows for one in done), key=lambda rows: max(rows, change_rows) / max(1, min(rows, change_rows))
    )


def _expected(
    change_rows: int, similar: Sequence[_Measured], done: Sequence[_Measured], power: float = 0.5
) -> float | None:
    """Scale the time of similar changes, and expect no more than any larger one took since.

    Looking for rows takes its time however many they are: in TPC-H ten times the change takes one to four
    times as long, and only where the driver has no room for it more than ten. Of two times the shorter is
    taken, as one that compiled, or met a busy machine, says too much.
    """
    if not similar:
        return None
    scaled = [one.ms * math.pow(max(1.0, change_rows / one.rows), power) for one in similar]
    larger = [one.ms for one in done if one.rows > change_rows * _ALIKE and one.id > similar[0].id]
    return min([statistics.median_low(scaled), *larger])
