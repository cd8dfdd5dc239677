"""A full refresh: the query over its pinned sources takes the place of the old contents, in one commit."""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass, replace

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import lit

from headrace.catalog import Action, Catalog, StreamTable
from headrace.catalog.records import StreamTableChanges
from headrace.config import Settings
from headrace.errors import HeadraceError
from headrace.plan.hidden import WEIGHT
from headrace.refresh.blame import Blame, blame, lacks_room
from headrace.refresh.checks import dependencies_of, effective_mode
from headrace.refresh.definition import Definitions
from headrace.refresh.estimate import Estimates
from headrace.refresh.failure import root_cause
from headrace.refresh.guard import misread
from headrace.refresh.jobs import count_jobs
from headrace.refresh.record import Recorder
from headrace.refresh.result import RefreshResult
from headrace.refresh.sizes import Stored, stored_size
from headrace.refresh.task import Decision, Task
from headrace.refresh.views import Views
from headrace.refresh.watch import cannot_follow
from headrace.runtime.relations import describe
from headrace.sources.registry import Sources
from headrace.sources.spark_changes import consolidate_frame
from headrace.sql.analysis import Analysis
from headrace.sql.names import TableName, quote
from headrace.storage.apply import FEW_ROWS, Limits, TableChange, apply_change, replace_rows
from headrace.storage.marker import Marker
from headrace.storage.table import create_storage

_log = logging.getLogger(__name__)

# Files of sources up to this size, compressed, are small however wide their rows.
_FEW_BYTES = 32 << 20
# A difference comes to the driver up to so many characters of its rows as JSON.
_HELD_CHARACTERS = 64 << 20
# Comparing takes a few microseconds a row: little beside a query that reads so many times the rows stored.
# Where it reads less, it pays while readers save as much, up to so large a part of the rows; beyond, so many
# refreshes write the whole unasked.
_TIMES = 4
_MOST = 0.05
_WRITTEN_WHOLE = 8
# Whether comparing did not pay, or did not work: what the next refreshes go by.
_NOT_COMPARED = "written_whole"
# Distinct rows of a difference, all of its rows, and the most copies of one.
_SIZES = ("count(*)", f"sum(abs({WEIGHT}))", f"max(abs({WEIGHT}))")


@dataclass(frozen=True)
class _Written:
    """What came of writing; no version where nothing was."""

    version: int | None
    inserted: int
    deleted: int
    how: str


class Recomputation:
    """Recomputes the stream tables of one connection."""

    def __init__(
        self,
        spark: SparkSession,
        catalog: Catalog,
        settings: Settings,
        sources: Sources,
        definitions: Definitions,
        estimates: Estimates,
        recorder: Recorder,
    ) -> None:
        self._spark = spark
        self._catalog = catalog
        self.settings = settings
        self._sources = sources
        self._definitions = definitions
        self._estimates = estimates
        self._recorder = recorder

    def carry_out(self, task: Task, decision: Decision) -> RefreshResult:
        """Recompute the contents in full, replace what is stored by them, and record it."""
        table = task.table
        marker = task.marker(self._recorder.start(task, decision), decision)
        details = self._estimates.of_full(task, decision)
        before = task.storage.row_count()
        if not task.storage.exists() and describe(self._spark, table.name) is None:
            create_storage(self._spark, table.name, table.columns, cluster_by=table.cluster_by)
            task.attempt.base = task.storage.log.newest_version()
        new_schema = decision.action is Action.REINITIALIZE
        with count_jobs(self._spark, f"refresh {table.name}") as jobs, Views(self._spark) as views:
            analysis = self._definitions.of(table, fresh=True)
            table = self._redescribe(task, analysis, decision.reason) if new_schema else table
            rows = self._definitions.rows_at(table, analysis, task.frontier)
            task.attempt.pass_gate(decision.action)
            why_large = self._why_large(task, before)
            written = None
            if why_large and self._hands_on(task, decision, before):
                most = math.inf if self._is_small(task, before) else _MOST * before
                change = self._change(task, rows, views, most)
                details[_NOT_COMPARED] = change is None
                written = self._write_difference(task, change, marker) if change is not None else None
            if written is None:
                written = self._write_whole(task, rows, decision, marker, why_large, before)
        changes = task.progress()
        decision = replace(decision, reason=f"{decision.reason}; {written.how}")
        result = task.result(decision, inserted=written.inserted, deleted=written.deleted, jobs=jobs.count)
        if written.version is not None:
            changes |= {
                "storage_version": written.version,
                "table_id": task.storage.table_id(),
                "reinitialize_reason": None,
            }
        self._recorder.finish(marker, result, changes, decision, details, answered=table.reinitialize_reason)
        if table.effective_mode == "DIFFERENTIAL" and (table.frontier is None or new_schema):
            self._guard_plan(table.name, analysis)
        return result

    def _write_whole(
        self, task: Task, rows: DataFrame, decision: Decision, marker: Marker, why_large: str, before: int
    ) -> _Written:
        replaced = replace_rows(
            task.storage,
            rows,
            marker,
            base=task.attempt.base,
            spark_only=why_large,
            new_schema=decision.action is Action.REINITIALIZE,
            has_readers=bool(self._catalog.dependents(task.table.name)),
            only_if_other=decision.action is Action.FULL and task.table.frontier is not None,
        )
        how, commit = f"{replaced.path}: {replaced.reason}", replaced.commit
        if commit is None:
            return _Written(None, 0, 0, how)
        return _Written(commit.version, commit.metric("numOutputRows"), before, how)

    def _write_difference(self, task: Task, change: TableChange, marker: Marker) -> _Written:
        applied = apply_change(
            task.storage,
            change,
            marker,
            spark=self._spark,
            base=task.attempt.base,
            writer=self.settings.apply,
            limits=Limits(vectors=self.settings.deletion_vectors),
        )
        version = applied.commit.version if applied.commit is not None else None
        how = f"what differs, for its readers; {applied.path}: {applied.reason}"
        return _Written(version, applied.inserted, applied.deleted, how)

    def _hands_on(self, task: Task, decision: Decision, stored: int) -> bool:
        """Tell whether only what differs is to be written, so that the table's readers are handed no more.

        Otherwise they net it out by themselves, and the driver tells them of a small table how many rows
        changed. What another computation would give again otherwise is not compared.
        """
        table = task.table
        if decision.action is not Action.FULL or table.frontier is None or task.attempt.base is None:
            return False
        if not self._catalog.dependents(table.name) or not task.storage.exists():
            return False
        # Neither is told apart by every byte that a reader may see of it.
        if any("map<" in type_ or "variant" in type_ for _, type_ in table.columns):
            return False
        if not self._definitions.follows_from_values(task.analysis):
            return False
        if self._is_small(task, stored):
            return True
        last = self._catalog.completed(table.id, table.name, (Action.FULL,), _WRITTEN_WHOLE)
        return not any(one.details.get(_NOT_COMPARED) for one in last)

    def _is_small(self, task: Task, stored: int) -> bool:
        """Tell whether the result has far fewer rows than its sources."""
        in_sources = self._estimates.rows_in_sources(task)
        return in_sources is not None and _TIMES * stored <= in_sources

    def _change(self, task: Task, rows: DataFrame, views: Views, most: float) -> TableChange | None:
        """Net the rows of the query out against those stored; None where that does not work or does not pay.

        What is stored may be damaged, or not be comparable, and there may be no room to compare it. Where it
        is the query that fails, it will fail once more when the whole is written.
        """
        try:
            net = views.hold(self._net(task, rows))
            found = net.selectExpr(*(f"coalesce({text}, 0)" for text in _SIZES)).collect()[0]
            others, changed, copies = (int(number) for number in found)
            if changed > most or copies > FEW_ROWS:
                return None
            if changed <= FEW_ROWS and (not others or _characters(net) <= _HELD_CHARACTERS):
                return TableChange(rows=net.toArrow())
            return TableChange(frame=net, is_held=True)
        except (HeadraceError, PySparkException, Py4JJavaError, pa.ArrowException) as error:
            if blame(error) is Blame.SYSTEM and not lacks_room(error):
                raise
            _log.info("%s is written whole: %s", task.table.name, root_cause(error))
            return None

    def _net(self, task: Task, rows: DataFrame) -> DataFrame:
        reader = self._spark.read.format("delta").option("versionAsOf", task.attempt.base or 0)
        stored = reader.load(task.storage.location).select(*(quote(name) for name in rows.columns))
        return consolidate_frame(_weighted(rows, 1).unionAll(_weighted(stored, -1)), rows.columns)

    def _why_large(self, task: Task, rows: int) -> str:
        """Say why the whole contents may not fit the driver, by what is stored and what it comes from."""
        if self.settings.apply == "spark":
            return "the setting apply is spark"
        if rows > FEW_ROWS:
            return f"the table has {rows:,} rows"
        total = Stored()
        for name in task.analysis.sources:
            total += stored_size(self._sources.find(name).location, task.frontier[str(name)].version)
        return "" if total.is_within(FEW_ROWS, _FEW_BYTES) else "its sources are large"

    def _redescribe(self, task: Task, analysis: Analysis, reason: str) -> StreamTable:
        """Follow what the query means by now: the columns keep their names and take their new types.

        The reason is written down with it, so that no failure from here on leaves the old contents taken for
        those of the new definition.
        """
        table = task.table
        now = self._definitions.columns_at(analysis, task.frontier)
        columns = tuple((name, now.get(name.lower(), type_)) for name, type_ in table.columns)
        plan = self._definitions.plan(replace(table, columns=columns), analysis)
        refusals = self._definitions.refusals(analysis)
        try:
            dependencies = dependencies_of(self._spark, self._catalog, table.name, analysis)
            mode, mode_reason = effective_mode(table.refresh_mode, refusals, plan, columns)
        except HeadraceError as error:
            raise cannot_follow(table, error) from error
        changes: StreamTableChanges = {
            "columns": columns,
            "expanded_query": analysis.expanded,
            "effective_mode": mode,
            "mode_reason": mode_reason,
            "reinitialize_reason": reason,
        }
        return self._catalog.redefine(table.name, changes, dependencies)

    def _guard_plan(self, name: TableName, analysis: Analysis) -> None:
        """Never maintain by a plan that does not mean what the user's text means."""
        table = self._catalog.find(name)
        finding = misread(self._spark, self._sources.pins, table, self._definitions.plan(table, analysis))
        if finding:
            reason = f"the plan of the query is not to be trusted: {finding}"
            self._catalog.update(name, effective_mode="FULL", mode_reason=reason)
            self._catalog.raise_alert("fell_back_to_full", f"{name}: {reason}", name)


def _weighted(rows: DataFrame, weight: int) -> DataFrame:
    return rows.withColumn(WEIGHT, lit(weight).cast("bigint"))


def _characters(net: DataFrame) -> int:
    return int(net.selectExpr("coalesce(sum(length(to_json(struct(*)))), 0)").collect()[0][0])
