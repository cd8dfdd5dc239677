"""A differential refresh: read what changed, run the change query, apply its result in one commit."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from headrace.delta.compile import compile_change
from headrace.delta.statements import STORED, Route, Statement, Statements, change_statements
from headrace.plan.build import Plan
from headrace.plan.hidden import WEIGHT
from headrace.plan.nodes import State
from headrace.plan.render import Binding
from headrace.refresh.by_state import StateChange, change_by_state
from headrace.refresh.on_driver import OnDriver, ReadSource, Typed
from headrace.refresh.task import Task
from headrace.refresh.views import Views
from headrace.sources.changes import SourceChange
from headrace.sources.frames import arrow_frame, computed
from headrace.sources.pins import Pins
from headrace.sources.registry import Sources
from headrace.sql.names import TableName, quote
from headrace.storage.apply import TableChange
from headrace.storage.identity import row_codes
from headrace.storage.read import rows_of_keys, small_table, stored_rows

# A result beyond this stays in Spark; nothing of ours grows with the table on the driver.
DRIVER_ROWS = 500_000
_HELD_BYTES = 64 << 20


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
    spark: SparkSession, sources: Sources, task: Task, plan: Plan, changes: Mapping[TableName, SourceChange]
) -> TableChange | StateChange | None:
    """Run the statements of the change; None when no change of a source can reach the result."""
    changed, on_driver = frozenset(changes), OnDriver(changes, _reader(sources, task))
    with Views(spark) as views:
        binding = _binding(sources.pins, task, lambda name: views.add(changes[name].to_frame(spark)))
        for statements in change_statements(plan, changed):
            match statements.route:
                case Route.STATE:
                    change = change_by_state(
                        spark, task, statements, binding, on_driver, changed=changed, most=DRIVER_ROWS
                    )
                    if change is not None:
                        return change
                case Route.REPLACEMENT:
                    return _by_replacement(spark, task, statements, binding, on_driver, views)
                case Route.CHANGE:
                    return _by_change(spark, plan, statements, binding, on_driver, views)
    return None


def _by_change(
    spark: SparkSession,
    plan: Plan,
    statements: Statements,
    binding: Binding,
    on_driver: OnDriver,
    views: Views,
) -> TableChange:
    node = compile_change(plan, on_driver.changed).change
    rows = on_driver.change(node) if node is not None else None
    if rows is not None:
        return TableChange(rows=rows.select([*plan.columns, WEIGHT]))
    return _collected(_frame(spark, statements.statement("change"), binding, {}, views))


def _frame(
    spark: SparkSession, statement: Statement, binding: Binding, made: dict[str, str], views: Views
) -> DataFrame:
    """The result of a statement, whose parts are computed first and stay until the views are dropped."""
    for part in statement.parts:
        made[part.name] = quote(views.add(computed(spark, spark.sql(part.write(binding, made)), DRIVER_ROWS)))
    return spark.sql(statement.write(binding, made))


def _by_replacement(
    spark: SparkSession,
    task: Task,
    statements: Statements,
    binding: Binding,
    on_driver: OnDriver,
    views: Views,
) -> TableChange:
    """Find the touched keys first: then both the sources and the stored rows are read by them alone."""
    made: dict[str, str] = {}
    keys, few = _touched_keys(spark, statements, binding, on_driver, made, views)
    made["keys"] = quote(views.add(keys))
    now = _frame(spark, statements.statement("now"), binding, made, views)
    if few is not None:
        # What Arrow has no room for, or what somebody sweeps meanwhile, is for Spark.
        with suppress(pa.ArrowException, FileNotFoundError):
            held = stored_rows(task.storage, few, statements.keys, most=DRIVER_ROWS)
            rows = now.limit(DRIVER_ROWS + 1).toArrow() if held is not None and _is_small(held) else None
            if held is not None and rows is not None and rows.num_rows <= DRIVER_ROWS:
                return TableChange(rows=_difference(rows, held))
    stored = None if few is None else rows_of_keys(spark, task.storage, few, statements.keys)
    made["now"] = quote(views.add(now))
    made[STORED] = quote(views.add(stored)) if stored is not None else _stored(task)
    return _collected(spark.sql(statements.sql("change", binding, made)))


def _touched_keys(
    spark: SparkSession,
    statements: Statements,
    binding: Binding,
    on_driver: OnDriver,
    made: dict[str, str],
    views: Views,
) -> tuple[DataFrame, pa.Table | None]:
    """Give the keys that a change touches as a frame and, where they are few, as Arrow rows too."""
    few = on_driver.rows(statements.touched) if statements.touched is not None else None
    if few is not None and few.num_rows <= DRIVER_ROWS:
        return arrow_frame(spark, few, from_arrow_schema(few.schema)), few
    keys = _frame(spark, statements.statement("keys"), binding, made, views)
    few = keys.limit(DRIVER_ROWS + 1).toArrow()
    if few.num_rows > DRIVER_ROWS:
        return keys, None
    return arrow_frame(spark, few, keys.schema), few


def _is_small(held: pa.Table) -> bool:
    """Tell whether the rows that stand in the place of these may come to the driver too."""
    return int(held.nbytes) <= _HELD_BYTES


def _difference(now: pa.Table, stored: pa.Table) -> pa.Table:
    """The rows of now in, those that are stored out; what is the same to storage cancels."""
    rows = pa.concat_tables([now.select(stored.column_names).cast(stored.schema), stored])
    _, first, which = np.unique(row_codes(rows, rows.column_names), return_index=True, return_inverse=True)
    signs = np.where(np.arange(len(rows)) < len(now), 1, -1)
    net = np.bincount(which, weights=signs, minlength=len(first)).astype(np.int64)
    kept = np.flatnonzero(net)
    return rows.take(first[kept]).append_column(WEIGHT, pa.array(net[kept]))


def _stored(task: Task) -> str:
    return f"(SELECT * FROM {task.table.name.sql} VERSION AS OF {task.table.storage_version})"


def _collected(frame: DataFrame) -> TableChange:
    """Bring a small result to the driver, and leave a large one where it is."""
    rows = frame.limit(DRIVER_ROWS + 1).toArrow()
    if rows.num_rows <= DRIVER_ROWS:
        return TableChange(rows=rows)
    return TableChange(frame=frame)


def _reader(sources: Sources, task: Task) -> ReadSource:
    """Read small sources into Arrow."""

    def read(name: TableName, columns: Sequence[str]) -> Typed | None:
        return small_table(sources.find(name).log, task.frontier[str(name)], columns)

    return read


def _binding(pins: Pins, task: Task, view: Callable[[TableName], str]) -> Binding:
    """Bind the sources at both states and their changes; a change becomes a view when it is asked for."""
    old, new = task.table.frontier or {}, task.frontier
    named = cache(view)

    def bind(name: TableName, state: State) -> str:
        if state is State.CHANGE:
            return quote(named(name))
        frontier = old if state is State.OLD else new
        return pins.relation(name, frontier[str(name)])

    return bind
