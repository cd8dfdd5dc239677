"""What one tick did, table by table, as users hold it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from headrace.catalog import Action, RefreshState
from headrace.errors import HeadraceError
from headrace.refresh.result import RefreshResult
from headrace.sql.names import TableName


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How one table fared in a tick: it has a result, or the error with which it failed.

    `is_current` tells that its contents are of the tick's moment, so that its readers may go on.
    """

    stream_table: str
    result: RefreshResult | None = None
    error: HeadraceError | None = None
    is_current: bool = False
    attempts: int = 1

    @property
    def state(self) -> RefreshState:
        if self.error is not None:
            return RefreshState.FAILED
        return RefreshState.SKIPPED if self.action is Action.SKIPPED else RefreshState.COMPLETED

    @property
    def action(self) -> Action | None:
        return self.result.action if self.result is not None else None

    @property
    def reason(self) -> str:
        return self.result.reason if self.result is not None else str(self.error)

    def __str__(self) -> str:
        return str(self.result) if self.result is not None else f"{self.stream_table}: FAILED ({self.error})"


def skipped(name: TableName, reason: str, *, is_current: bool = False) -> Outcome:
    """Say that a tick left a table alone, and why."""
    result = RefreshResult(stream_table=str(name), action=Action.SKIPPED, reason=reason)
    return Outcome(stream_table=str(name), result=result, is_current=is_current)


@dataclass(frozen=True, kw_only=True)
class TickReport:
    """The tables of one tick in the order in which they ended; without a moment nothing was due."""

    data_timestamp: datetime | None
    outcomes: tuple[Outcome, ...] = ()
    duration_ms: float = 0.0

    @property
    def results(self) -> dict[str, RefreshResult]:
        """The result of each table that did not fail, by its name."""
        return {one.stream_table: one.result for one in self.outcomes if one.result is not None}

    @property
    def failed(self) -> tuple[Outcome, ...]:
        return tuple(one for one in self.outcomes if one.state is RefreshState.FAILED)

    @property
    def skipped(self) -> tuple[Outcome, ...]:
        return tuple(one for one in self.outcomes if one.state is RefreshState.SKIPPED)

    @property
    def ok(self) -> bool:
        """Tell whether every table that was due is now of the tick's moment."""
        return all(outcome.is_current for outcome in self.outcomes)

    def outcome_of(self, name: TableName) -> Outcome:
        return next(one for one in self.outcomes if one.stream_table == str(name))

    def __getitem__(self, name: str) -> Outcome:
        """Give the outcome of a table by its qualified name, or by its plain one."""
        for outcome in self.outcomes:
            if name in (outcome.stream_table, outcome.stream_table.rpartition(".")[2]):
                return outcome
        raise KeyError(name)

    def __iter__(self) -> Iterator[Outcome]:
        return iter(self.outcomes)

    def __len__(self) -> int:
        return len(self.outcomes)

    def __str__(self) -> str:
        if self.data_timestamp is None:
            return "nothing was due"
        head = f"{len(self)} tables at {self.data_timestamp.isoformat()} in {self.duration_ms:,.0f} ms"
        return "\n".join([head, *(f"  {outcome}" for outcome in self.outcomes)])


def join_reports(reports: Sequence[TickReport]) -> TickReport:
    """Tell of several ticks as of one, at the moment of the first."""
    return TickReport(
        data_timestamp=reports[0].data_timestamp,
        outcomes=tuple(outcome for report in reports for outcome in report.outcomes),
        duration_ms=sum(report.duration_ms for report in reports),
    )
