"""AUTO's choice between the change and the whole: by estimates first, then by what history measured."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from headrace.catalog import Action, Catalog, RefreshRecord, RefreshState, StreamTable

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

    @property
    def ratio(self) -> float:
        return self.change_rows / self.source_rows if self.source_rows else 0.0

    def as_details(self) -> dict[str, object]:
        return {
            "change_rows": self.change_rows,
            "source_rows": self.source_rows,
            "change_ratio": round(self.ratio, 6),
            "expected_full_ms": self.full_ms,
            "expected_differential_ms": self.differential_ms,
            "expected_from_rows": self.measured_rows,
            "expected_at_most_ms": self.at_most_ms,
        }


def measured_of(catalog: Catalog, table: StreamTable) -> list[RefreshRecord]:
    """What is known of the refreshes of a table, the newest first."""
    of_both = [
        *catalog.completed(table.id, table.name, (Action.FULL, Action.REINITIALIZE), _RECENT),
        *catalog.completed(table.id, table.name, (Action.DIFFERENTIAL,), _REMEMBERED),
    ]
    return sorted(of_both, key=lambda record: record.id, reverse=True)


def gather(change_rows: int, source_rows: int, history: Sequence[RefreshRecord]) -> Figures:
    """Expect of the next refresh what the last ones took, and more of a larger change."""
    done = [record for record in history if record.state is RefreshState.COMPLETED]
    full_ms = _usual_of_full([r for r in done if r.action in {Action.FULL, Action.REINITIALIZE}])
    changes = [r for r in done if r.action is Action.DIFFERENTIAL and r.duration_ms]
    # What one refresh takes to build hidden state, the next ones are spared.
    builders = [r for r in changes if r.details.get("states_built")]
    plain = [r for r in changes if not r.details.get("states_built")]
    usual = _expected(change_rows, plain)
    building = _expected(change_rows, builders[:1])
    if usual is None and len(builders) > 1:
        # The state does not serve, since it is built again and again.
        usual = building
    ms = usual[1] if usual is not None else None
    if ms is not None and building is not None and _leaves_state_behind(done):
        ms += max(0.0, building[1] - ms) / _SHARED_BY
    bounds = [_expected(change_rows, some, power=1.0) for some in (plain, builders[:1])]
    at_most = min((bound[1] for bound in bounds if bound is not None), default=None)
    measured = usual[0] if usual is not None else None
    return Figures(change_rows, source_rows, full_ms, ms, measured, at_most)


def _usual_of_full(done: Sequence[RefreshRecord]) -> float | None:
    """What recomputing takes; the first load tells of it only until another one has been measured."""
    later = [record for record in done if record.reason != FIRST_LOAD] or done
    measured = [record.duration_ms for record in later if record.duration_ms]
    return statistics.median(measured[:_RECENT]) if measured else None


def _leaves_state_behind(done: Sequence[RefreshRecord]) -> bool:
    """Tell whether the contents were last written in full, so that hidden state is of an older frontier."""
    written = (record.action for record in done if record.action is not Action.NO_DATA)
    return next(written, Action.FULL) is not Action.DIFFERENTIAL


def prefers_full(figures: Figures, threshold: float) -> str | None:
    """Say why recomputing is the cheaper way, or None where it is not."""
    is_new = figures.measured_rows is None or figures.change_rows > _MUCH_MORE * figures.measured_rows
    if is_new and figures.ratio > threshold and not _is_worth_a_try(figures):
        return f"{figures.ratio:.0%} of the source rows changed, over the threshold of {threshold:.0%}"
    if figures.full_ms is None or figures.differential_ms is None:
        return None
    recomputing = figures.full_ms * (_IF_UNTRIED if is_new else 1)
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


def _expected(
    change_rows: int, done: Sequence[RefreshRecord], power: float = 0.5
) -> tuple[int, float] | None:
    """Scale the time of the refreshes whose change was nearest in size; give that size and the time.

    Looking for rows takes its time however many they are: in TPC-H ten times the change takes one to four
    times as long, and only where the driver has no room for it more than ten.
    """
    sized = [
        (int(rows), float(record.duration_ms))
        for record in done
        if record.duration_ms and (rows := record.details.get("change_rows"))
    ]
    if not sized:
        return None
    nearest = min((rows for rows, _ in sized), key=lambda rows: abs(rows - change_rows))
    similar = [(rows, ms) for rows, ms in sized if nearest / _ALIKE <= rows <= nearest * _ALIKE][:_RECENT]
    scaled = [ms * max(1.0, change_rows / rows) ** power for rows, ms in similar]
    return nearest, statistics.median(scaled)
