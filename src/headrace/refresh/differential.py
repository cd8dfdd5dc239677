"""A differential refresh: read what changed, run the change query, apply its result in one commit."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame, SparkSession

from headrace.catalog import Frontier
from headrace.delta.compile import compile_change
from headrace.delta.keyed import KeyedChange, keyed_change
from headrace.delta.state import state_plan
from headrace.plan.build import Plan
from headrace.plan.hidden import WEIGHT
from headrace.plan.nodes import State
from headrace.plan.render import Binding
from headrace.refresh.by_state import StateChange, change_by_state
from headrace.refresh.task import Task
from headrace.refresh.views import Views
from headrace.sources.changes import SourceChange
from headrace.sources.frames import arrow_frame
from headrace.sources.pins import Pins
from headrace.sources.registry import Sources
from headrace.sql.names import TableName, quote
from headrace.storage.apply import TableChange
from headrace.storage.read import rows_of_keys

# A result beyond this stays in Spark; nothing of ours grows with the table on the driver.
DRIVER_ROWS = 500_000


def read_source_changes(
    spark: SparkSession, sources: Sources, task: Task, changed: list[TableName]
) -> dict[TableName, SourceChange]:
    """Read what the used columns of every changed source gained and lost; an empty change is left out."""
    old = task.table.frontier or {}
    changes = {}
    for name in changed:
        columns = task.analysis.sources[name]
        source, at = sources.find(name), task.frontier[str(name)]
        change = sources.changes.read(spark, source, old[str(name)], at, columns)
        if not change.is_empty:
            changes[name] = change
    return changes


def compute_change(
    spark: SparkSession, pins: Pins, task: Task, plan: Plan, changes: Mapping[TableName, SourceChange]
) -> TableChange | StateChange | None:
    """Run the change query; None when no change of a source can reach the result."""
    changed = frozenset(changes)
    compiled = compile_change(plan, changed)
    if compiled.empty:
        return None
    with Views(spark) as views:
        names = {name: views.add(change.to_frame(spark)) for name, change in changes.items()}
        binding = _binding(pins, task.table.frontier or {}, task.frontier, names)
        by_state = state_plan(plan)
        if by_state is not None:
            change = change_by_state(spark, pins, task, by_state, changed, binding, most=DRIVER_ROWS)
            if change is not None:
                return change
        keyed = keyed_change(plan, changed)
        if keyed is not None:
            return _by_replacement(spark, task, keyed, binding, views)
        return _collected(spark.sql(compiled.sql(binding)).select(*_quoted(task, WEIGHT)))


def _by_replacement(
    spark: SparkSession, task: Task, keyed: KeyedChange, binding: Binding, views: Views
) -> TableChange:
    """Find the touched keys first: then both the sources and the stored rows are read by them alone."""
    keys = spark.sql(keyed.keys_sql(binding))
    few = keys.limit(DRIVER_ROWS + 1).toArrow()
    stored = None
    if few.num_rows <= DRIVER_ROWS:
        keys = arrow_frame(spark, few, keys.schema)
        stored = rows_of_keys(spark, task.storage, few, keyed.keys)
    view = views.add(keys)
    now = views.add(spark.sql(keyed.rows_sql(binding, keys=view)))
    relation = quote(views.add(stored)) if stored is not None else _stored(task)
    return _collected(spark.sql(_replacement_sql(task, keyed.keys, view, now, relation)))


def _stored(task: Task) -> str:
    return f"(SELECT * FROM {task.table.name.sql} VERSION AS OF {task.table.storage_version})"


def _replacement_sql(task: Task, keys: tuple[str, ...], touched: str, now: str, stored: str) -> str:
    """Take the stored rows of the touched keys away and add their rows of now, netted out."""
    columns = ", ".join(_quoted(task))
    same = " AND ".join(f"t.{quote(key)} <=> k.{quote(key)}" for key in keys)
    return (
        f"SELECT {columns}, SUM({WEIGHT}) AS {WEIGHT} FROM ("
        f"SELECT {columns}, 1 AS {WEIGHT} FROM {quote(now)} UNION ALL "
        f"SELECT {columns}, -1 AS {WEIGHT} FROM {stored} AS t "
        f"LEFT SEMI JOIN {quote(touched)} AS k ON {same}) GROUP BY {columns} HAVING SUM({WEIGHT}) <> 0"
    )


def _quoted(task: Task, *more: str) -> list[str]:
    return [quote(name) for name in (*(name for name, _ in task.table.columns), *more)]


def _collected(frame: DataFrame) -> TableChange:
    """Bring a small result to the driver, and leave a large one where it is."""
    rows = frame.limit(DRIVER_ROWS + 1).toArrow()
    if rows.num_rows <= DRIVER_ROWS:
        return TableChange(rows=rows)
    return TableChange(frame=frame)


def _binding(pins: Pins, old: Frontier, new: Frontier, views: Mapping[TableName, str]) -> Binding:
    def bind(name: TableName, state: State) -> str:
        if state is State.CHANGE:
            return quote(views[name])
        frontier = old if state is State.OLD else new
        return pins.relation(name, frontier[str(name)])

    return bind
