"""What is written down of a refresh: that it runs, and how it ended."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import UTC, datetime

from headrace.catalog import Action, Catalog, RefreshState, Status, StreamTable
from headrace.catalog.records import RefreshOutcome, StreamTableChanges
from headrace.errors import HeadraceError
from headrace.refresh.blame import MAY_END_BY_ITSELF, Blame, blame
from headrace.refresh.failure import NEEDS_A_PERSON
from headrace.refresh.result import RefreshResult
from headrace.refresh.task import Attempt, Decision, Task, Withheld
from headrace.sql.names import TableName
from headrace.storage.marker import Marker


class Recorder:
    """Writes the refreshes of one connection into the history, with what they change in the catalog."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def start(self, task: Task, decision: Decision) -> int:
        """Write down that a refresh runs, under the lease by which its death would be noticed."""
        attempt = task.attempt
        if attempt.refresh is not None:
            return attempt.refresh
        attempt.refresh = self._catalog.start_refresh(
            task.table.name,
            reason=decision.reason,
            data_timestamp=attempt.moment,
            lease=attempt.lease,
            details={"tried": decision.action},
        )
        return attempt.refresh

    def finish(
        self,
        marker: Marker,
        result: RefreshResult,
        changes: StreamTableChanges,
        decision: Decision,
        details: Mapping[str, object] | None = None,
        *,
        answered: str | None = None,
    ) -> None:
        """End a refresh that went well; `answered` is the reason to load anew that it has seen to."""
        outcome = result.outcome()
        figures = decision.figures.as_details() if decision.figures else {}
        outcome["details"] = {**figures, **(details or {})}
        self._catalog.finish_refresh(
            marker.refresh, state=RefreshState.COMPLETED, changes=changes, answered=answered, **outcome
        )

    def note_no_data(self, task: Task, decision: Decision) -> RefreshResult:
        """Write down that there was nothing to do."""
        result = task.result(decision)
        self._catalog.record_refresh(
            task.table.name,
            state=RefreshState.COMPLETED,
            started_at=task.attempt.started,
            changes=task.progress(),
            **result.outcome(),
        )
        return result

    def skip(self, name: TableName, clock: float) -> RefreshResult:
        """Write down that somebody else is at the table."""
        result = RefreshResult(
            stream_table=str(name),
            action=Action.SKIPPED,
            reason="another refresh of this table is running",
            duration_ms=(time.perf_counter() - clock) * 1000,
        )
        self._catalog.record_refresh(
            name, state=RefreshState.SKIPPED, started_at=datetime.now(UTC), **result.outcome()
        )
        return result

    def withhold(self, attempt: Attempt, withheld: Withheld) -> RefreshResult:
        """Record that nothing was committed, for a reason that is not this table's fault."""
        assert attempt.refresh is not None
        result = RefreshResult(
            stream_table=str(attempt.table.name),
            action=Action.SKIPPED,
            reason=withheld.reason,
            duration_ms=(time.perf_counter() - attempt.clock) * 1000,
        )
        self._catalog.finish_refresh(attempt.refresh, state=RefreshState.SKIPPED, **result.outcome())
        return result

    def fail(self, attempt: Attempt, error: Exception, known: HeadraceError, *, most_errors: int) -> None:
        """Record a failure, known to the user as that; `most_errors` in a row suspend the table."""
        table = attempt.table
        whose = Blame.SCHEMA if known.code in NEEDS_A_PERSON else blame(error)
        errors, status = _after_failure(table, whose, most_errors)
        changes: StreamTableChanges = {"consecutive_errors": errors, "last_error": str(known)}
        if status is not table.status:
            changes["status"] = status
        self.record_failure(attempt, known, changes, whose)
        self._alert_failure(attempt, known, whose)
        if changes.get("status") is Status.SUSPENDED:
            message = f"{table.name} failed {errors} times in a row and is suspended: {known}"
            self._catalog.raise_alert("auto_suspended", message, table.name)

    def _alert_failure(self, attempt: Attempt, known: HeadraceError, whose: Blame) -> None:
        """Alert people to a failure, once to one that is tried again by itself until it is over."""
        table, now = attempt.table, datetime.now(UTC)
        if whose is Blame.SYSTEM and attempt.will_retry:
            return
        is_lasting = whose is Blame.SYSTEM or (whose is Blame.SCHEMA and table.status is Status.ERROR)
        if not is_lasting:
            self._catalog.raise_alert("refresh_failed", str(known), table.name)
            return
        well = table.data_timestamp or table.created_at
        self._catalog.raise_alert_once("refresh_failed", str(known), table.name, now=now, since=well)

    def record_failure(
        self, attempt: Attempt, known: HeadraceError, changes: StreamTableChanges, whose: Blame
    ) -> None:
        """Write a failure down, and no more of it."""
        outcome: RefreshOutcome = {
            "data_timestamp": attempt.moment,
            "error_code": known.code,
            "error": str(known),
            "details": {"blame": whose, **({"tried": attempt.tried} if attempt.tried is not None else {})},
        }
        if attempt.refresh is not None:
            self._catalog.finish_refresh(
                attempt.refresh, state=RefreshState.FAILED, changes=changes, **outcome
            )
            return
        self._catalog.record_refresh(
            attempt.table.name,
            state=RefreshState.FAILED,
            started_at=attempt.started,
            changes=changes,
            **outcome,
        )


def _after_failure(table: StreamTable, whose: Blame, most_errors: int) -> tuple[int, Status]:
    """Count the errors in a row, and give the status that follows from them."""
    # That a source was lost is over when something else fails, and says nothing of the query.
    is_found = table.status is Status.ERROR and whose not in MAY_END_BY_ITSELF
    # What may pass by itself is tried again and does not count towards a suspension.
    errors = (0 if is_found else table.consecutive_errors) + (whose is not Blame.SYSTEM)
    if table.status is Status.SUSPENDED or whose is Blame.SYSTEM:
        return errors, table.status
    if whose is Blame.SCHEMA:
        return errors, Status.ERROR
    if errors >= most_errors:
        return errors, Status.SUSPENDED
    if is_found:
        return errors, Status.ACTIVE if table.frontier is not None else Status.INITIALIZING
    return errors, table.status


def ahead(table: StreamTable, clock: float) -> RefreshResult:
    """Never take contents back in time: those of a later moment stay."""
    return RefreshResult(
        stream_table=str(table.name),
        action=Action.SKIPPED,
        reason=f"its contents are of a later moment already: {table.data_timestamp}",
        data_timestamp=table.data_timestamp,
        frontier=table.frontier or {},
        duration_ms=(time.perf_counter() - clock) * 1000,
    )
