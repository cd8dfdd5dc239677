"""The change of grouped results by their state: what the groups had, plus what the change adds to them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql.types import LongType, StructField, StructType

from headrace.delta.state import ROWS, StatePlan
from headrace.delta.statements import SIDES, Statements
from headrace.plan.hidden import WEIGHT
from headrace.plan.nodes import Node, State
from headrace.refresh.inputs import Inputs
from headrace.refresh.on_driver import shown_groups
from headrace.refresh.task import Task
from headrace.sources.consolidate import consolidate, weighted
from headrace.sources.files import is_local
from headrace.sources.frames import arrow_frame
from headrace.sql.names import quote
from headrace.storage.apply import FEW_ROWS, TableChange
from headrace.storage.apply.change import Located
from headrace.storage.identity import row_codes
from headrace.storage.marker import Marker
from headrace.storage.snapshot import UnreadableLog
from headrace.storage.state import StateTable


@dataclass(frozen=True)
class StateChange:
    """How a stream table and its state change together; the state follows once the table is committed."""

    table: TableChange
    kept: StateTable
    state: TableChange
    version: int

    def follow(self, marker: Marker, spark: SparkSession) -> None:
        """Move the state on to the frontier of a refresh that is committed."""
        self.kept.apply(self.state, marker, spark, base=self.version)


def state_table(task: Task, plan: StatePlan | None) -> StateTable | None:
    """Find where the state of a stream table is, if its query has one that the driver can keep."""
    if plan is None or not is_local(task.storage.location):
        return None
    return StateTable(task.storage, plan.definition, plan.keys)


@dataclass(frozen=True)
class MovedGroups:
    """The state of the groups that a change touches: what it was with weight -1, what it is now with 1."""

    kept: StateTable
    sides: pa.Table
    version: int
    located: Located | None = None
    """Where the state is that it was."""

    @property
    def change(self) -> TableChange:
        return TableChange(rows=self.sides, key=self.kept.keys, located=self.located)


def change_by_state(statements: Statements, inputs: Inputs, *, most: int) -> StateChange | None:
    """Compute the change from the state; None where no state can serve, or more groups than `most` change."""
    plan = statements.state
    moved = moved_groups(plan, inputs, most=most) if plan is not None else None
    if plan is None or moved is None:
        return None
    shown = shown_groups(plan, moved.sides)
    if shown is None:
        shown = _shown_by_spark(statements, inputs, moved)
    return StateChange(TableChange(rows=shown, key=plan.keys), moved.kept, moved.change, moved.version)


def moved_groups(plan: StatePlan, inputs: Inputs, *, most: int) -> MovedGroups | None:
    """Bring the state to the old frontier, where it is not there, and find what the change makes of it."""
    task, keys = inputs.task, plan.keys
    kept = state_table(task, plan)
    if kept is None:
        return None
    node = plan.input_change(inputs.changed)
    added = _added_groups(plan, node, inputs, most) if node is not None else None
    if node is not None and added is None:
        return None
    version = _built_at(kept, plan, inputs)
    if version is None:
        return None
    try:
        old, located = kept.rows_of(added, keys, version) if added is not None else (None, None)
    except (FileNotFoundError, UnreadableLog):
        # Somebody removed its files: it is lost, and the next refresh finds nothing of it.
        kept.discard()
        return None
    if old is None or added is None:
        return MovedGroups(kept, weighted(kept.no_rows(version), 1), version)
    old = old.select(added.column_names)
    # Outside ANSI mode a sum that overflowed is NULL, and one that overflows now is for Spark to say.
    sides = None if _has_nulls(old, keys) else _sides(old, added, keys)
    if sides is None or _exceeds(sides, plan):
        return None
    return MovedGroups(kept, sides, version, located)


def _built_at(kept: StateTable, plan: StatePlan, inputs: Inputs) -> int | None:
    """Give the version of the state at the old frontier, which is built where there is none.

    None where no Delta table can hold it, as with a key that is an interval.
    """
    task, frontier = inputs.task, inputs.task.table.frontier or {}
    version = kept.version_at(frontier)
    if version is not None:
        return version
    rows = inputs.spark.sql(plan.initial_sql(lambda name, _: inputs.binding(name, State.OLD)))
    # Groups at the root are as many as the stored rows, of those inside the query nothing is known.
    few = plan.is_at_root and task.storage.row_count() <= FEW_ROWS
    task.attempt.ensure_held()
    try:
        kept.build(rows, task.state_marker(frontier), few=few, current=inputs.states)
    except AnalysisException:
        return None
    inputs.built.append(kept.definition)
    return kept.version_at(frontier)


def _added_groups(plan: StatePlan, node: Node, inputs: Inputs, most: int) -> pa.Table | None:
    """What the change adds to each touched group; None where its keys or its sums are not for Arrow."""
    added, inputs = inputs.computed(node, lambda on_driver, root: on_driver.added(plan, root))
    if added is None:
        frame = inputs.spark.sql(plan.change_sql(inputs.changed, inputs.binding) or "")
        if any("collate" in frame.schema[key].dataType.simpleString() for key in plan.keys):
            # Keys that are equal without having the same bytes are for Spark to compare.
            return None
        added = frame.limit(most + 1).toArrow()
    return None if added.num_rows > most or _has_nulls(added, plan.keys) else added


def _shown_by_spark(statements: Statements, inputs: Inputs, moved: MovedGroups) -> pa.Table:
    spark, schema = inputs.spark, moved.kept.schema
    sides = moved.sides.select([*schema.names, WEIGHT])
    schema = StructType([*schema.fields, StructField(WEIGHT, LongType(), nullable=False)])
    both = quote(inputs.views.add(arrow_frame(spark, sides, schema)))
    return consolidate(spark.sql(statements.sql("change", inputs.binding, {SIDES: both})).toArrow())


def _has_nulls(added: pa.Table, keys: Sequence[str]) -> bool:
    """Tell whether some sum came out as NULL, as one that overflows does outside ANSI mode."""
    return any(added[name].null_count for name in added.column_names if name not in keys)


def _exceeds(sides: pa.Table, plan: StatePlan) -> bool:
    """Tell whether a number of some group is larger than its state serves for."""
    if not sides.num_rows:
        return False
    ends = ((pc.min_max(sides[name]), most) for name, most in plan.most.items())
    return any(max(-found["min"].as_py(), found["max"].as_py()) >= most for found, most in ends)


def _sides(old: pa.Table, added: pa.Table, keys: Sequence[str]) -> pa.Table | None:
    """Give the old state of the touched groups with weight -1, the new one with 1; one of no rows is gone.

    None where a sum does not fit its type, or more is taken from a group than it has.
    """
    try:
        return _both_sides(old, added.cast(old.schema), keys)
    except pa.ArrowInvalid:
        return None


def _both_sides(old: pa.Table, added: pa.Table, keys: Sequence[str]) -> pa.Table:
    values = [name for name in old.column_names if name not in keys]
    which = _places(old, added, keys)
    new = added
    for name in values:
        field = old.schema.field(name)
        had = pc.fill_null(old[name].take(which), _zero(field.type))
        new = new.set_column(new.column_names.index(name), field, _added(had, added[name], field.type))
    if pc.any(pc.less(new[ROWS], 0)).as_py():
        raise pa.ArrowInvalid("rows are taken away that were not there")
    if keys:
        new = new.filter(pc.greater(new[ROWS], 0))
    return pa.concat_tables([weighted(old, -1), weighted(new, 1)])


def _places(old: pa.Table, added: pa.Table, keys: Sequence[str]) -> pa.Array:
    """Where each group to which something is added stands in the old state; NULL for a new group."""
    if not keys:
        return pa.array([0 if old.num_rows else None] * added.num_rows, pa.int64())
    codes = row_codes(pa.concat_tables([old.select(keys), added.select(keys)]), keys)
    before, now = codes[: old.num_rows], codes[old.num_rows :]
    order = np.argsort(before, kind="stable")
    place = np.minimum(np.searchsorted(before[order], now), max(old.num_rows - 1, 0))
    known = (before[order][place] == now) if old.num_rows else np.zeros(len(now), dtype=np.bool_)
    return pa.array(order[place] if old.num_rows else place, mask=~known)


def _added(had: pa.ChunkedArray, more: pa.ChunkedArray, type_: pa.DataType) -> pa.ChunkedArray:
    if pa.types.is_decimal(type_):
        # The sum of two decimals has one digit more, which the widest of 128 bits have no room for.
        wide = pa.decimal256(type_.precision + 1, type_.scale)
        had, more = had.cast(wide), more.cast(wide)
    return pc.add_checked(had, more).cast(type_)


def _zero(type_: pa.DataType) -> pa.Scalar:
    return pa.scalar(Decimal(0) if pa.types.is_decimal(type_) else 0, type_)
