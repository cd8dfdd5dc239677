"""A differential refresh: read what changed, run the change query, apply its result in one commit."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession

from headrace.catalog import Frontier
from headrace.delta.compile import ChangePlan, compile_change
from headrace.plan.build import Plan
from headrace.plan.hidden import WEIGHT
from headrace.plan.nodes import State
from headrace.plan.render import Binding
from headrace.refresh.task import Task
from headrace.sources.changes import SourceChange, read_changes
from headrace.sources.registry import Sources
from headrace.sql.names import TableName, quote
from headrace.storage.apply import TableChange

# A result beyond this stays in Spark; nothing of ours grows with the table on the driver.
DRIVER_ROWS = 500_000


@dataclass(frozen=True)
class Statement:
    """One step of a refresh, as run, explained and dry-run show it."""

    what: str
    sql: str

    def __str__(self) -> str:
        return f"-- {self.what}\n{self.sql}"


def read_source_changes(
    spark: SparkSession, sources: Sources, task: Task, changed: list[TableName]
) -> dict[TableName, SourceChange]:
    """Read what the used columns of every changed source gained and lost; an empty change is left out."""
    old = task.table.frontier or {}
    changes = {}
    for name in changed:
        columns = task.analysis.sources[name]
        change = read_changes(spark, sources.find(name), old[str(name)], task.frontier[str(name)], columns)
        if not change.is_empty:
            changes[name] = change
    return changes


def change_statement(
    plan: Plan, changed: frozenset[TableName], old: Frontier, new: Frontier, views: Mapping[TableName, str]
) -> Statement:
    """Write the change query, every read of it pinned."""
    compiled = compile_change(plan, changed)
    return Statement("the change of the result", compiled.sql(_binding(old, new, views)))


def compute_change(
    spark: SparkSession, task: Task, plan: Plan, changes: Mapping[TableName, SourceChange]
) -> TableChange | None:
    """Run the change query; None when no change of a source can reach the result."""
    compiled = compile_change(plan, frozenset(changes))
    if compiled.empty:
        return None
    with _views(spark, changes, compiled) as views:
        sql = compiled.sql(_binding(task.table.frontier or {}, task.frontier, views))
        frame = spark.sql(sql)
        return _collected(frame.select(*(quote(name) for name in (*_columns(task), WEIGHT))))


def _columns(task: Task) -> tuple[str, ...]:
    return tuple(name for name, _ in task.table.columns)


def _collected(frame: DataFrame) -> TableChange:
    """Bring a small result to the driver, and leave a large one where it is."""
    rows = frame.limit(DRIVER_ROWS + 1).toArrow()
    if rows.num_rows <= DRIVER_ROWS:
        return TableChange(rows=rows)
    return TableChange(frame=frame)


def _binding(old: Frontier, new: Frontier, views: Mapping[TableName, str]) -> Binding:
    def bind(name: TableName, state: State) -> str:
        if state is State.CHANGE:
            return quote(views[name])
        frontier = old if state is State.OLD else new
        return f"{name.sql} VERSION AS OF {frontier[str(name)].version}"

    return bind


@contextmanager
def _views(
    spark: SparkSession, changes: Mapping[TableName, SourceChange], compiled: ChangePlan
) -> Iterator[dict[TableName, str]]:
    """Give every source change a name for the length of one query."""
    wanted = {name for name, state in compiled.reads if state is State.CHANGE}
    views = {name: f"__hr_change_{uuid.uuid4().hex}" for name in changes if name in wanted}
    for name, view in views.items():
        changes[name].to_frame(spark).createOrReplaceTempView(view)
    try:
        yield views
    finally:
        for view in views.values():
            spark.catalog.dropTempView(view)
