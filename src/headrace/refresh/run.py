"""One refresh of one stream table: look, decide, write data and frontier in one commit, record."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

from pyspark.sql import SparkSession

from headrace.catalog import Action, Catalog, RefreshState, Status, this_owner
from headrace.catalog.records import RefreshOutcome, StreamTableChanges
from headrace.config import Settings
from headrace.errors import HeadraceError
from headrace.refresh.definition import Definitions, pinned_rows
from headrace.refresh.failure import NEEDS_A_PERSON, as_headrace_error, storage_missing
from headrace.refresh.jobs import count_jobs
from headrace.refresh.recover import recover
from headrace.refresh.result import RefreshResult
from headrace.refresh.task import Attempt, Decision, Task
from headrace.runtime.relations import describe
from headrace.sources.registry import Sources
from headrace.sql.names import TableName
from headrace.storage.table import Storage, create_storage


class Refresher:
    """Refreshes the stream tables of one connection."""

    def __init__(self, spark: SparkSession, catalog: Catalog, settings: Settings) -> None:
        self._spark = spark
        self._catalog = catalog
        self._settings = settings
        self._owner = this_owner()
        self.sources = Sources(spark)
        self.definitions = Definitions(spark)

    def refresh(
        self, name: TableName, *, full: bool = False, moment: datetime | None = None
    ) -> RefreshResult:
        """Bring one stream table up to date, unless somebody else is at it."""
        clock = time.perf_counter()
        ttl = timedelta(seconds=self._settings.lease_ttl_seconds)
        with self._catalog.lease(name, owner=self._owner, ttl=ttl) as lease:
            if lease is None:
                return self._skip(name, clock)
            table = recover(self._catalog, self._catalog.find(name))
            attempt = Attempt(table, lease, moment or datetime.now(UTC), clock)
            try:
                task = self._prepare(attempt)
                return self._carry_out(task, self._decide(task, full=full))
            except Exception as error:
                raise self._fail(attempt, error) from error

    def _prepare(self, attempt: Attempt) -> Task:
        analysis = self.definitions.of(attempt.table)
        return Task(
            attempt=attempt,
            analysis=analysis,
            frontier=self.sources.pin(analysis.sources, attempt.moment),
            storage=Storage(attempt.table.location, attempt.table.id),
        )

    def _decide(self, task: Task, *, full: bool) -> Decision:
        table = task.table
        if table.reinitialize_reason:
            return Decision(Action.REINITIALIZE, table.reinitialize_reason)
        if full:
            return Decision(Action.FULL, "asked for")
        if not task.storage.exists():
            raise storage_missing(table)
        if table.frontier is None:
            return Decision(Action.FULL, "first load")
        changed = self.sources.changed(table.frontier, task.frontier, task.analysis.sources)
        if changed:
            return Decision(Action.FULL, f"{', '.join(map(str, changed))} changed; {table.mode_reason}")
        if task.analysis.time_dependent:
            return Decision(Action.FULL, "the query depends on the current time")
        return Decision(Action.NO_DATA, "no source changed")

    def _carry_out(self, task: Task, decision: Decision) -> RefreshResult:
        if decision.action is Action.NO_DATA:
            return self._note_no_data(task, decision)
        return self._rewrite(task, decision)

    def _note_no_data(self, task: Task, decision: Decision) -> RefreshResult:
        result = task.result(decision)
        self._catalog.record_refresh(
            task.table.name,
            state=RefreshState.COMPLETED,
            started_at=task.attempt.started,
            changes=task.progress(),
            **result.outcome(),
        )
        return result

    def _rewrite(self, task: Task, decision: Decision) -> RefreshResult:
        """Recompute the contents in full and replace them."""
        table = task.table
        marker = task.marker(self._start(task, decision), decision)
        before = task.storage.row_count()
        if not task.storage.exists() and describe(self._spark, table.name) is None:
            create_storage(self._spark, table.name, table.columns, cluster_by=table.cluster_by)
        with count_jobs(self._spark, f"refresh {table.name}") as jobs:
            analysis = self.definitions.of(table, fresh=True)
            rows = pinned_rows(self._spark, table, analysis, task.frontier)
            new_schema = decision.action is Action.REINITIALIZE
            commit = task.storage.overwrite(rows, marker, new_schema=new_schema)
        inserted = commit.metric("numOutputRows")
        result = task.result(decision, inserted=inserted, deleted=before, jobs=jobs.count)
        changes = task.progress()
        changes |= {
            "storage_version": commit.version,
            "table_id": task.storage.table_id(),
            "reinitialize_reason": None,
        }
        self._catalog.finish_refresh(
            marker.refresh, state=RefreshState.COMPLETED, changes=changes, **result.outcome()
        )
        return result

    def _start(self, task: Task, decision: Decision) -> int:
        """Write down that a refresh runs, under the lease by which its death would be noticed."""
        attempt = task.attempt
        attempt.refresh = self._catalog.start_refresh(
            task.table.name, reason=decision.reason, data_timestamp=attempt.moment, lease=attempt.lease
        )
        return attempt.refresh

    def _skip(self, name: TableName, clock: float) -> RefreshResult:
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

    def _fail(self, attempt: Attempt, error: Exception) -> HeadraceError:
        """Record a failure; the old contents stay, and too many in a row suspend the table."""
        table, known = attempt.table, as_headrace_error(error, attempt.table.name)
        errors = table.consecutive_errors + 1
        changes: StreamTableChanges = {"consecutive_errors": errors, "last_error": str(known)}
        if known.code in NEEDS_A_PERSON:
            changes["status"] = Status.ERROR
        elif errors >= self._settings.max_consecutive_errors and table.status is Status.ACTIVE:
            changes["status"] = Status.SUSPENDED
        self._record_failure(attempt, known, changes)
        self._catalog.raise_alert("refresh_failed", str(known), table.name)
        if changes.get("status") is Status.SUSPENDED:
            message = f"{table.name} failed {errors} times in a row and is suspended: {known}"
            self._catalog.raise_alert("auto_suspended", message, table.name)
        return known

    def _record_failure(self, attempt: Attempt, known: HeadraceError, changes: StreamTableChanges) -> None:
        outcome: RefreshOutcome = {
            "data_timestamp": attempt.moment,
            "error_code": known.code,
            "error": str(known),
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
