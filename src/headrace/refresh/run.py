"""One refresh of one stream table: look, decide, write data and frontier in one commit, record."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from headrace.catalog import (
    Action,
    Catalog,
    Frontier,
    Lease,
    SourceVersion,
    StreamTable,
    this_owner,
)
from headrace.config import Settings
from headrace.delta.kept import state_plans
from headrace.errors import HeadraceError
from headrace.plan.repeatable import unrepeatable
from headrace.refresh.arrow_functions import in_session
from headrace.refresh.blame import Blame, blame
from headrace.refresh.by_state import StateChange, state_table
from headrace.refresh.decide import Decider, load_anew
from headrace.refresh.definition import Definitions
from headrace.refresh.differential import ComputedChange, compute_change, read_source_changes
from headrace.refresh.estimate import Estimates
from headrace.refresh.failure import as_headrace_error, root_cause
from headrace.refresh.intent import RefreshPlan, plan_refresh
from headrace.refresh.jobs import count_jobs
from headrace.refresh.poison import name_poisoned_row
from headrace.refresh.recompute import Recomputation
from headrace.refresh.record import Recorder, ahead
from headrace.refresh.recover import recover
from headrace.refresh.result import RefreshResult
from headrace.refresh.task import Attempt, Decision, Gate, Task, Withheld
from headrace.refresh.views import Views
from headrace.sources.registry import Sources
from headrace.sources.search import decoded_columns
from headrace.sql.analysis import Analysis
from headrace.sql.names import TableName
from headrace.storage.apply import Limits, apply_change
from headrace.storage.maintain import maintain
from headrace.storage.read import source_rows
from headrace.storage.state import has_state
from headrace.storage.table import Storage

_log = logging.getLogger(__name__)


class Refresher:
    """Refreshes the stream tables of one connection."""

    def __init__(self, spark: SparkSession, catalog: Catalog, settings: Settings) -> None:
        self._spark = spark
        self._catalog = catalog
        self._settings = settings
        self._owner = this_owner()
        self.sources = Sources(spark, source_rows)
        self.definitions = Definitions(spark, self.sources.pins, self._columns_recorded)
        self._estimates = Estimates(catalog, self.sources)
        self._decider = Decider(catalog, settings, self.sources, self.definitions, self._estimates)
        self._recorder = Recorder(catalog)
        self._recomputation = Recomputation(
            spark, catalog, settings, self.sources, self.definitions, self._estimates, self._recorder
        )

    def use(self, settings: Settings) -> None:
        """Take other settings from now on."""
        self._settings = self._decider.settings = self._recomputation.settings = settings

    def refresh(
        self,
        name: TableName,
        *,
        full: bool = False,
        moment: datetime | None = None,
        pins: Frontier | None = None,
        gate: Gate | None = None,
        will_retry: bool = False,
        lease: Lease | None = None,
    ) -> RefreshResult:
        """Bring one stream table up to date, unless somebody else is at it.

        With a `moment` its contents shall be of that data timestamp; `pins` are versions of sources that
        hold for it, so that several tables refreshed for one moment read the same. A `gate` is passed
        right before the commit, with the action, and may withhold it. Who `will_retry` after a failure of
        the system lets nobody be alerted to it yet. Who holds the table's lease already gives it.
        """
        clock = time.perf_counter()
        decoded_columns.forget_idle()
        with nullcontext(lease) if lease is not None else self._lease(name) as held:
            if held is None:
                return self._recorder.skip(name, clock)
            known = self._catalog.find(name)
            base = Storage(known.location, known.id).log.newest_version()
            table = recover(self._catalog, known)
            if moment is not None and table.data_timestamp is not None and table.data_timestamp > moment:
                return ahead(table, clock)
            if table.reinitialize_reason is None and table.storage_version is not None:
                base = table.storage_version
            attempt = Attempt(table, held, moment or _moment_by_hand(table), clock, gate, will_retry, base)
            try:
                with self.sources.found_once(), in_session(self._setting):
                    task = self._prepare(attempt, pins or {})
                    return self._carry_out_or_rebuild(task, self._decider.decide(task, full=full))
            except Withheld as withheld:
                return self._recorder.withhold(attempt, withheld)
            except Exception as error:
                raise self._failed(attempt, error) from error

    def _failed(self, attempt: Attempt, error: Exception) -> HeadraceError:
        """Record a failure and say what failed, with the row where it can be found; the old contents stay."""
        table = attempt.table
        known = as_headrace_error(error, table.name)
        if known.code == "refresh_failed" and (gone := self._source_gone(table)) is not None:
            error = known = gone
        elif known.code == "refresh_failed":
            known = name_poisoned_row(self._spark, self.definitions.of(table), known)
        self._recorder.fail(attempt, error, known, most_errors=self._settings.max_consecutive_errors)
        return known

    def _source_gone(self, table: StreamTable) -> HeadraceError | None:
        """Find out whether a source went while it was read, which explains whatever failed."""
        try:
            for name in self.definitions.of(table).sources:
                self.sources.find(name)
        except HeadraceError as error:
            return error if error.code == "source_missing" else None
        return None

    def _setting(self, name: str) -> str:
        return self._spark.conf.get(name) or ""

    def _lease(self, name: TableName) -> AbstractContextManager[Lease | None]:
        ttl = timedelta(seconds=self._settings.lease_ttl_seconds)
        return self._catalog.lease(name, owner=self._owner, ttl=ttl)

    def intend(self, name: TableName, *, full: bool = False) -> RefreshPlan:
        """Tell what a refresh would do now, and do nothing."""
        table = self._catalog.find(name)
        attempt = Attempt(table, None, _moment_by_hand(table), time.perf_counter())
        task = self._prepare(attempt, {})
        decision = self._decider.decide(task, full=full)
        return plan_refresh(task, decision, self.definitions.plan)

    def _prepare(self, attempt: Attempt, pins: Frontier) -> Task:
        analysis = self.definitions.current(attempt.table)
        try:
            frontier = self._pin(analysis, attempt, pins)
        except HeadraceError as error:
            if error.code != "unsupported_source":
                raise
            # A view may have taken the name of a table, which moved to another.
            analysis = self.definitions.of(attempt.table, fresh=True)
            frontier = self._pin(analysis, attempt, pins)
        if frontier != attempt.table.frontier:
            analysis = self.definitions.at(
                attempt.table,
                analysis,
                lambda name: self.sources.find(name).state(frontier[str(name)].version),
            )
        return Task(
            attempt=attempt,
            analysis=analysis,
            frontier=frontier,
            storage=Storage(attempt.table.location, attempt.table.id),
        )

    def _pin(self, analysis: Analysis, attempt: Attempt, pins: Frontier) -> dict[str, SourceVersion]:
        """Give the version of each source that the refresh will reflect."""
        pinned = {str(name): pins[str(name)] for name in analysis.sources if str(name) in pins}
        free = [name for name in analysis.sources if str(name) not in pinned]
        return {**pinned, **self.sources.pin(free, attempt.moment)}

    def _columns_recorded(self, name: TableName) -> Mapping[TableName, Sequence[str]]:
        return {one.source: one.columns_used for one in self._catalog.dependencies(name)}

    def _carry_out_or_rebuild(self, task: Task, decision: Decision) -> RefreshResult:
        """Carry out a decision; where a change cannot be computed or applied but the query can, load anew."""
        table = task.table
        if decision.alert:
            self._catalog.raise_alert(decision.alert, f"{table.name}: {decision.reason}", table.name)
        try:
            return self._carry_out(task, decision)
        except HeadraceError as error:
            if error.code == "history_lost":
                return self._carry_out_or_rebuild(task, load_anew(error))
            if error.code != "storage_lacks_rows":
                raise
            doubtful = ", ".join(unrepeatable(self.definitions.plan(table, task.analysis)))
            why = "rows to be taken away are stored with other values"
            reason = f"{why}, as {doubtful} may give computed again" if doubtful else why
            self._recorder.record_failure(task.attempt, error, {}, Blame.INTERNAL)
            task.attempt.refresh = None
            self._catalog.raise_alert("reinitialize_needed", f"{table.name}: {reason}", table.name)
            return self._carry_out(task, Decision(Action.REINITIALIZE, reason))
        except (PySparkException, Py4JJavaError) as error:
            is_change = decision.action is Action.DIFFERENTIAL and not task.attempt.committed
            if not is_change or blame(error) is Blame.SYSTEM:
                raise
            return self._carry_out_in_full(task, decision, error)

    def _carry_out_in_full(self, task: Task, decision: Decision, error: Exception) -> RefreshResult:
        """Let the query itself decide whether it fails.

        In the terms of a change an old row of one source meets a new row of another. No state of the query
        holds such a pair, and the pairs cancel in the sum, but an expression may fail on one of them.
        """
        reason = f"{decision.reason}; its change fails where the query does not: {root_cause(error)}"
        took = (time.perf_counter() - task.attempt.clock) * 1000
        result = self._carry_out(
            task, replace(decision, action=Action.FULL, reason=reason, failed_change_ms=took)
        )
        self._catalog.raise_alert("fell_back_to_full", f"{task.table.name}: {reason}", task.table.name)
        return result

    def _carry_out(self, task: Task, decision: Decision) -> RefreshResult:
        task.attempt.tried = decision.action
        if decision.action is Action.NO_DATA:
            self._move_state(task)
            return self._recorder.note_no_data(task, decision)
        if decision.action is Action.DIFFERENTIAL:
            return self._apply_change(task, decision)
        fell_back = decision.is_choice and self._was_changed_last(task.table)
        result = self._recomputation.carry_out(task, decision)
        self._keep_house(task)
        if fell_back:
            message = f"{task.table.name} was recomputed in place of being changed: {decision.reason}"
            self._catalog.raise_alert("fell_back_to_full", message, task.table.name)
        return result

    def _was_changed_last(self, table: StreamTable) -> bool:
        """Tell whether the contents were last maintained by their changes."""
        ways = (Action.DIFFERENTIAL, Action.FULL, Action.REINITIALIZE)
        last = self._catalog.completed(table.id, table.name, ways, 1)
        return bool(last) and last[0].action is Action.DIFFERENTIAL

    def _apply_change(self, task: Task, decision: Decision) -> RefreshResult:
        """Compute the change of the result from the changes of the sources, and apply it."""
        table = task.table
        marker = task.marker(self._recorder.start(task, decision), decision)
        with count_jobs(self._spark, f"refresh {table.name}") as jobs, Views(self._spark) as views:
            changes = read_source_changes(self._spark, self.sources, task, list(decision.changed))
            plan = self.definitions.plan(table, task.analysis)
            done = ComputedChange(None)
            if changes:
                done = compute_change(self._spark, self.sources, task, plan, changes, views)
            computed, applied = done.change, None
            if computed is not None:
                task.attempt.pass_gate(decision.action)
                applied = apply_change(
                    task.storage,
                    computed.table if isinstance(computed, StateChange) else computed,
                    marker,
                    spark=self._spark,
                    base=table.storage_version,
                    writer=self._settings.apply,
                    limits=Limits(vectors=self._settings.deletion_vectors),
                )
                task.attempt.committed = applied.commit is not None
            if isinstance(computed, StateChange):
                computed.follow(task.state_marker(task.frontier), self._spark)
            elif computed is None:
                self._move_state(task)
        inserted, deleted = (applied.inserted, applied.deleted) if applied else (0, 0)
        how = (
            f"; by {done.route}; {applied.path}: {applied.reason}"
            if applied
            else "; no column that the query uses changed"
        )
        decision = replace(decision, reason=decision.reason + how)
        result = task.result(decision, inserted=inserted, deleted=deleted, jobs=jobs.count)
        changes_made = task.progress()
        if applied is not None and applied.commit is not None:
            changes_made["storage_version"] = applied.commit.version
        self._recorder.finish(
            marker, result, changes_made, decision, {"states_built": len(done.built), "route": done.route}
        )
        if applied is not None and applied.commit is not None:
            self._keep_house(task)
        return result

    def _move_state(self, task: Task) -> None:
        """Note that the hidden state, where there is one, holds at the new frontier too."""
        old = task.table.frontier
        if old is None or old == task.frontier or not has_state(task.storage):
            return
        for state in state_plans(self.definitions.plan(task.table, task.analysis)):
            kept = state_table(task, state)
            if kept is not None and kept.is_at(old):
                kept.move(task.state_marker(task.frontier))

    def _keep_house(self, task: Task) -> None:
        """Compact and sweep the storage where that is due; versions that readers downstream need stay.

        The refresh is complete: what fails here is tried again after the next one.
        """
        needed = [
            reader.frontier[str(task.table.name)].version
            for name in self._catalog.dependents(task.table.name)
            if (reader := self._catalog.get(name))
            and reader.frontier
            and str(task.table.name) in reader.frontier
        ]
        try:
            maintain(task.storage, spark=self._spark, oldest_needed=min(needed, default=None))
        except Exception as error:  # noqa: BLE001 - no failure of housekeeping undoes a refresh
            _log.warning("%s is refreshed, but its storage was not tidied: %s", task.table.name, error)


def _moment_by_hand(table: StreamTable) -> datetime:
    """Give the moment of now, or that of the contents where a clock was set back since."""
    now = datetime.now(UTC)
    return max(now, table.data_timestamp or now)
