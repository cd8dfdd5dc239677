"""A differential refresh: read what changed, run the change query, apply its result in one commit."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from headrace.delta.compile import compile_change
from headrace.delta.kept import state_plans
from headrace.delta.statements import STORED, Route, Statements, tried_statements
from headrace.plan.build import Plan
from headrace.plan.hidden import WEIGHT
from headrace.refresh.by_state import StateChange, change_by_state
from headrace.refresh.first import change_of_first
from headrace.refresh.inputs import ARROW_ROWS, DRIVER_ROWS, Inputs
from headrace.refresh.kept import with_groups
from headrace.refresh.on_driver import OnDriver
from headrace.refresh.stages import Given
from headrace.refresh.task import Task
from headrace.refresh.views import Views
from headrace.sources.changes import SourceChange
from headrace.sources.frames import arrow_frame
from headrace.sources.registry import Sources
from headrace.sql.names import TableName, quote
from headrace.storage.apply import TableChange
from headrace.storage.identity import difference_and_lost
from headrace.storage.read import StoredRows, rows_of_keys, stored_rows

_HELD_BYTES = 64 << 20
_MANY_CHANGED = 50_000


@dataclass(frozen=True)
class ComputedChange:
    """The change of a stream table; None when no change of a source can reach the result."""

    change: TableChange | StateChange | None
    routes: tuple[Route, ...] = ()
    """The way that was taken; more than one where it led over groups inside the query."""
    built: tuple[str, ...] = ()
    """The states that had to be built for it."""

    @property
    def route(self) -> str:
        return ", then ".join(self.routes)


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
    spark: SparkSession,
    sources: Sources,
    task: Task,
    plan: Plan,
    changes: Mapping[TableName, SourceChange],
    views: Views,
) -> ComputedChange:
    """Run the statements of the change by the cheapest route that can be taken.

    What it gives may rest on the views, which stay until it is applied.
    """
    states = frozenset(state.definition for state in state_plans(plan))
    inputs = Inputs(spark, sources, task, changes, views, states=states)
    return replace(_change(plan, inputs), built=tuple(inputs.built))


def _change(plan: Plan, inputs: Inputs) -> ComputedChange:
    for statements in tried_statements(plan, inputs.changed):
        if statements.route is Route.KEPT:
            assert statements.kept is not None
            with_them = with_groups(statements.kept, inputs, most=DRIVER_ROWS)
            if with_them is not None:
                rest = _change(statements.kept.plan, with_them)
                return replace(rest, routes=(Route.KEPT, *rest.routes))
            continue
        change = _by_route(plan, statements, inputs)
        if change is not None:
            return ComputedChange(change, (statements.route,))
    return ComputedChange(None)


def _by_route(plan: Plan, statements: Statements, inputs: Inputs) -> TableChange | StateChange | None:
    """Compute the change by one route; None where it cannot be taken after all."""
    match statements.route:
        case Route.STATE:
            return change_by_state(statements, inputs, most=DRIVER_ROWS)
        case Route.REPLACEMENT:
            return _by_replacement(statements, inputs)
        case Route.FIRST:
            return change_of_first(statements, inputs, most=DRIVER_ROWS)
        case _:
            return _by_change(plan, statements, inputs)


def _by_change(plan: Plan, statements: Statements, inputs: Inputs) -> TableChange:
    node = compile_change(plan, inputs.changed).change
    if node is not None:
        rows, inputs = inputs.changed_rows(node)
        if rows is not None:
            return TableChange(rows=rows.select([*plan.columns, WEIGHT]))
    return _collected(inputs.frame(statements.statement("change")), inputs)


def _by_replacement(statements: Statements, inputs: Inputs) -> TableChange:
    """Find the touched keys first: then both the sources and the stored rows are read by them alone."""
    spark, task, views = inputs.spark, inputs.task, inputs.views
    made: dict[str, str] = {}
    keys, few = _touched_keys(statements, inputs, made)
    made["keys"] = quote(views.add(keys))
    given: Given = {"keys": (few, keys.schema)} if few is not None else {}
    root = statements.rows if given else None
    for_arrow = root is not None and inputs.is_for_arrow(root, given)
    if root is not None:
        inputs = inputs.narrowed(root, given, for_spark=not for_arrow)

    @cache
    def now() -> DataFrame:
        return inputs.frame(statements.statement("now"), made)

    def on_driver(held: pa.Table) -> pa.Table | None:
        rows = inputs.rows(root, given) if root is not None and for_arrow else None
        return None if rows is None else rows.select(held.column_names).cast(held.schema)

    def by_spark(held: pa.Table) -> pa.Table | None:
        # What is too large to come here is computed for nothing, unless Spark keeps it.
        return _fetched(_kept_if_many(now(), inputs)) if _is_small(held) else None

    if few is not None:
        change = _replaced(task, few, statements, [on_driver, by_spark])
        if change is not None:
            return change
    stored = None if few is None else rows_of_keys(spark, task.storage, few, statements.keys)
    made["now"] = quote(views.add(now()))
    made[STORED] = quote(views.add(stored)) if stored is not None else _stored(task)
    return _collected(spark.sql(statements.sql("change", inputs.binding, made)), inputs)


def _replaced(
    task: Task,
    few: pa.Table,
    statements: Statements,
    ways: Sequence[Callable[[pa.Table], pa.Table | None]],
) -> TableChange | None:
    """Net the stored rows of some keys out against those of now, by the first way that gives them.

    None where that is for Spark.
    """
    held: StoredRows | None = None
    # What Arrow has no room for, or what somebody sweeps meanwhile, is for Spark too.
    with suppress(pa.ArrowException, FileNotFoundError):
        held = stored_rows(task.storage, few, statements.keys, most=ARROW_ROWS)
    if held is None:
        return None
    for rows_now in ways:
        with suppress(pa.ArrowException):
            rows = rows_now(held.rows)
            if rows is not None:
                net, lost = difference_and_lost(rows, held.rows)
                return TableChange(rows=net, located=held.located(lost))
    return None


def _fetched(frame: DataFrame) -> pa.Table | None:
    """Bring a frame to the driver, unless it is too large."""
    rows = frame.limit(DRIVER_ROWS + 1).toArrow()
    return rows if rows.num_rows <= DRIVER_ROWS else None


def _touched_keys(
    statements: Statements, inputs: Inputs, made: dict[str, str]
) -> tuple[DataFrame, pa.Table | None]:
    """Give the keys that a change touches as a frame and, where they are few, as Arrow rows too."""
    spark, few, touched = inputs.spark, None, statements.touched
    if touched is not None:
        few, inputs = inputs.computed(touched, OnDriver.rows)
    if few is not None and few.num_rows <= ARROW_ROWS:
        return arrow_frame(spark, few, from_arrow_schema(few.schema)), few
    keys = inputs.frame(statements.statement("keys"), made)
    few = keys.limit(DRIVER_ROWS + 1).toArrow()
    if few.num_rows > DRIVER_ROWS:
        return keys, None
    return arrow_frame(spark, few, keys.schema), few


def _is_small(held: pa.Table) -> bool:
    """Tell whether the rows that stand in the place of these may come to the driver too."""
    return int(held.nbytes) <= _HELD_BYTES


def _stored(task: Task) -> str:
    return f"(SELECT * FROM {task.table.name.sql} VERSION AS OF {task.table.storage_version})"


def _collected(frame: DataFrame, inputs: Inputs) -> TableChange:
    """Bring a small result to the driver, and leave a large one where it is.

    What follows from many rows may be large, and is then not computed a second time.
    """
    rows = _fetched(_kept_if_many(frame, inputs))
    return TableChange(frame=frame, is_held=_are_many(inputs)) if rows is None else TableChange(rows=rows)


def _kept_if_many(frame: DataFrame, inputs: Inputs) -> DataFrame:
    """Let Spark keep what it computes from many changed rows, since it may be read twice."""
    return inputs.views.hold(frame) if _are_many(inputs) else frame


def _are_many(inputs: Inputs) -> bool:
    return inputs.changed_rows_count > _MANY_CHANGED
