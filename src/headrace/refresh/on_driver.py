"""Small changes of simple queries on the driver: row by row and by the state of groups, without a Spark job.

Spark takes a fifth of a second to plan and run a query over a handful of rows. A change that is in Arrow
already is filtered, projected and summed here in milliseconds, where `arrow_values` knows every expression.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import StringType, StructField

from headrace.delta.state import StateColumn, StatePlan
from headrace.plan.hidden import WEIGHT
from headrace.plan.nodes import Filter, Node, Project, Scan, State
from headrace.plan.types import decimal_of
from headrace.refresh.arrow_values import NotInArrow, arrow_type, column_of, is_known, truth_of
from headrace.sources.changes import SourceChange
from headrace.sources.consolidate import consolidate
from headrace.sql.names import TableName

_PADDED = "__CHAR_VARCHAR_TYPE_STRING"
# Far from where Arrow's sums, which do not check, would wrap around.
_MOST_INTEGER = 1 << 62
_MOST_DECIMAL = 10**37


class OnDriver:
    """The changes of the sources as Arrow rows, and what follows from them alone."""

    def __init__(self, changes: Mapping[TableName, SourceChange]) -> None:
        self._changes = changes

    def change(self, node: Node) -> pa.Table | None:
        """Compute a change from those of the sources, netted out; None where that is for Spark."""
        try:
            return consolidate(self._rows(node))
        except NotInArrow:
            return None

    def added(self, plan: StatePlan, node: Node) -> pa.Table | None:
        """Compute what a change of the input adds to the state of each group."""
        try:
            return _summed(plan, self._rows(node))
        except NotInArrow:
            return None

    def _rows(self, node: Node) -> pa.Table:
        match node:
            case Scan(state=State.CHANGE):
                return self._scanned(node)
            case Project():
                below = self._rows(node.child)
                return pa.table({name: column_of(item, below) for name, item in node.items})
            case Filter():
                below = self._rows(node.child)
                keep = truth_of(node.condition, below)
                if isinstance(keep, pa.Scalar):
                    raise NotInArrow("a condition without columns")
                return below.filter(keep)
        raise NotInArrow(type(node).__name__)

    def _scanned(self, node: Scan) -> pa.Table:
        change = self._changes[node.source]
        if change.rows is None:
            raise NotInArrow("a change that Spark holds")
        for _, column in node.names:
            if not _is_plain(change.schema[column], change.rows.schema.field(column).type):
                raise NotInArrow("a type that is compared otherwise")
        columns = {name: change.rows[column] for name, column in node.names}
        return pa.table(columns | {WEIGHT: change.rows[WEIGHT]})


def shown_groups(plan: StatePlan, sides: pa.Table) -> pa.Table | None:
    """Compute the rows that the groups show from their states, old and new, netted out."""
    try:
        if plan.having is not None:
            keep = truth_of(plan.having, sides)
            if isinstance(keep, pa.Scalar):
                return None
            sides = sides.filter(keep)
        shown = {name: column_of(item, sides) for name, item in plan.outputs}
        return consolidate(pa.table(shown | {WEIGHT: sides[WEIGHT]}))
    except NotInArrow:
        return None


def _is_plain(field: StructField, type_: pa.DataType) -> bool:
    """Tell whether a column's values are the same exactly when Spark says so: no collation, no padding."""
    is_collated = isinstance(field.dataType, StringType) and field.dataType.simpleString() != "string"
    return is_known(type_) and not is_collated and _PADDED not in (field.metadata or {})


def _summed(plan: StatePlan, rows: pa.Table) -> pa.Table:
    keys = {shown: rows[key] for shown, key in zip(plan.keys, plan.group_keys, strict=True)}
    sums = {column.name: _weighted(column, rows) for column in plan.columns}
    if not keys:
        # The sum of no rows is 0, since the one group is there.
        totals = {name: pa.array([pc.sum(values, min_count=0).as_py()]) for name, values in sums.items()}
        return _in_types(pa.table(totals), plan)
    grouped = pa.table(keys | sums).group_by(list(keys), use_threads=False)
    summed = grouped.aggregate([(name, "sum") for name in sums])
    totals = {name: summed[f"{name}_sum"] for name in sums}
    return _in_types(pa.table({name: summed[name] for name in keys} | totals), plan)


def _weighted(column: StateColumn, rows: pa.Table) -> pa.ChunkedArray:
    """What each row adds to a column of the state, in a type whose sum has room."""
    adds, weights = column_of(column.adds, rows), rows[WEIGHT]
    if rows.num_rows == 0:
        return adds
    if decimal_of(column.type) is None:
        wide = adds.cast(pa.int64())
        largest = max(abs(int(pc.min(wide).as_py())), abs(int(pc.max(wide).as_py())))
        heaviest = int(np.abs(weights.to_numpy()).max())
        if largest * heaviest * rows.num_rows >= _MOST_INTEGER:
            raise NotInArrow("a sum that may not fit")
        return pc.multiply(wide, weights)
    if int(np.abs(weights.to_numpy()).max()) != 1:
        raise NotInArrow("decimals times weights")
    exact = adds if pa.types.is_decimal(adds.type) else adds.cast(pa.decimal128(19, 0))
    wide = exact.cast(pa.decimal128(38, exact.type.scale))
    largest_exact = max(abs(pc.min(wide).as_py()), abs(pc.max(wide).as_py()))
    if largest_exact * rows.num_rows * 10**wide.type.scale >= _MOST_DECIMAL:
        raise NotInArrow("a sum that may not fit")
    return pc.if_else(pc.greater(weights, 0), wide, pc.negate(wide))


def _in_types(totals: pa.Table, plan: StatePlan) -> pa.Table:
    schema = totals.schema
    for column in plan.columns:
        place = schema.get_field_index(column.name)
        schema = schema.set(place, pa.field(column.name, arrow_type(column.type)))
    try:
        return totals.cast(schema)
    except pa.ArrowInvalid as overflow:
        raise NotInArrow(str(overflow)) from overflow
