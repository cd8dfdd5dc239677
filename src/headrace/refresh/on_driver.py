"""Small changes of simple queries on the driver: row by row, joined with small tables, summed by group.

Spark takes a fifth of a second to plan and run a query over a handful of rows. A change that is in Arrow
already is computed here in milliseconds, where `arrow_values` knows every expression.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import StringType, StructField, StructType
from sqlglot import exp

from headrace.delta.bilinear import flatten, is_join_tree, joined
from headrace.delta.state import StateColumn, StatePlan
from headrace.plan.expressions import conjuncts, equal_columns, perhaps_equal_columns
from headrace.plan.hidden import SIDE, WEIGHT
from headrace.plan.nodes import (
    Aggregate,
    Constant,
    Filter,
    Join,
    Node,
    Project,
    Scan,
    State,
    TopN,
    UnionAll,
    Window,
)
from headrace.plan.types import decimal_of
from headrace.refresh.arrow_groups import aggregated
from headrace.refresh.arrow_kinds import NotInArrow, alike, arrow_type, is_known
from headrace.refresh.arrow_values import column_of, truth_of
from headrace.refresh.arrow_windows import first_rows, with_windows
from headrace.sources.arrow_types import CHAR_TYPE
from headrace.sources.changes import SourceChange
from headrace.sources.consolidate import consolidate, weighted
from headrace.sql.names import TableName

# Far from where Arrow's sums, which do not check, would wrap around.
_MOST_INTEGER = 1 << 62
_MOST_DECIMAL = 10**37
_MOST_JOINED = 2_000_000
_PLACE = "__hr_place"
# An old state is the new one less the change, which counts every row.
_MOST_TAKEN_BACK = 100_000


Typed: TypeAlias = tuple[pa.Table, StructType]
ReadSource: TypeAlias = Callable[[TableName, Sequence[str], State], Typed | None]
"""Gives columns of a source at a state, where it is small, with their Spark types."""


class OnDriver:
    """The changes of the sources as Arrow rows, and what follows from them and from small tables alone."""

    def __init__(
        self,
        changes: Mapping[TableName, SourceChange],
        read: ReadSource,
        given: Mapping[TableName, Typed] | None = None,
    ) -> None:
        self._changes = changes
        self._read = read
        self._given = given or {}
        self._done: dict[int, tuple[Node, pa.Table]] = {}
        self._held: list[Node] = []

    def without_rows(self) -> OnDriver:
        """The same sources without any row: what is for Spark then, is so with any rows."""
        changes = {
            name: replace(change, rows=change.rows.slice(0, 0) if change.rows is not None else None)
            for name, change in self._changes.items()
        }
        given = {name: (rows.slice(0, 0), schema) for name, (rows, schema) in self._given.items()}

        def read(name: TableName, columns: Sequence[str], state: State) -> Typed | None:
            found = self._read(name, columns, state)
            return found if found is None else (found[0].slice(0, 0), found[1])

        return OnDriver(changes, read, given)

    def change(self, node: Node) -> pa.Table | None:
        """Compute a change from those of the sources, netted out; None where that is for Spark."""
        try:
            return consolidate(self._rows(node))
        except (NotInArrow, KeyError, pa.ArrowException):
            return None

    def rows(self, node: Node) -> pa.Table | None:
        """Compute rows that follow from the changes, as they are; None where that is for Spark."""
        try:
            return self._rows(node)
        except (NotInArrow, KeyError, pa.ArrowException):
            return None

    def added(self, plan: StatePlan, node: Node) -> pa.Table | None:
        """Compute what a change of the input adds to the state of each group."""
        try:
            return _summed(plan, self._rows(node))
        except (NotInArrow, KeyError, pa.ArrowException):
            return None

    def _rows(self, node: Node) -> pa.Table:
        """The rows of a node, which several others may read."""
        if id(node) not in self._done:
            self._done[id(node)] = node, self._computed(node)
        return self._done[id(node)][1]

    def _computed(self, node: Node) -> pa.Table:
        match node:
            case Scan():
                return self._scanned(node)
            case Project() if node.items:
                # Arrow does not count rows without columns.
                below = self._rows(node.child)
                return pa.table({name: _item(name, item, below) for name, item in node.items})
            case UnionAll():
                return _together([self._rows(branch) for branch in node.branches])
            case Constant(names=(name,), relation=exp.Values()) if name == SIDE:
                signs = [int(row.expressions[0].sql()) for row in node.relation.expressions]
                return pa.table({SIDE: pa.array(signs, pa.int64())})
            case Filter() | Join(kind="inner") if is_join_tree(node):
                return self._joined_tree(node)
            case Filter():
                return _filtered(self._rows(node.child), node.condition)
            case Join(kind="left" | "semi" | "anti", matches=None):
                left, right = self._each(node.inputs)
                return _joined(node, left, right)
            case Aggregate():
                return aggregated(node, self._rows(node.child))
            case Window():
                return with_windows(node, self._rows(node.child))
            case TopN():
                return first_rows(node, self._rows(node.child))
        raise NotInArrow(type(node).__name__)

    def _each(self, inputs: Sequence[Node]) -> list[pa.Table]:
        """The rows of all inputs, the change first: where that is for Spark, no table is read in vain."""
        rows = {id(one): self._rows(one) for one in sorted(inputs, key=lambda one: WEIGHT not in one.columns)}
        return [rows[id(one)] for one in inputs]

    def _joined_tree(self, node: Node) -> pa.Table:
        """Join the smallest input first with what a condition connects to it; products come last."""
        flat = flatten(node)
        sizes = [rows.num_rows for rows in self._each(flat.inputs)]
        first = flat.inputs[sizes.index(min(sizes))]
        others = [one for one in flat.inputs if one is not first]
        tree = joined(first, others, flat.known_conditions())
        self._held.append(tree)
        return self._in_order(tree).select(list(node.columns))

    def _in_order(self, node: Node) -> pa.Table:
        """The rows of joins as they are, and of their inputs, which are known already."""
        match node:
            case Join() if id(node) not in self._done:
                return _joined(node, self._in_order(node.left), self._in_order(node.right))
            case Filter() if id(node) not in self._done:
                return _filtered(self._in_order(node.child), node.condition)
        return self._rows(node)

    def _scanned(self, node: Scan) -> pa.Table:
        columns = [column for _, column in node.names]
        rows, schema = self._change(node) if node.state is State.CHANGE else self._table(node, columns)
        for column in columns:
            if not is_plain(schema[column], rows.schema.field(column).type):
                raise NotInArrow("a type that is compared otherwise")
        weights = {WEIGHT: rows[WEIGHT]} if node.state is State.CHANGE else {}
        return pa.table({name: rows[column] for name, column in node.names} | weights)

    def _change(self, node: Scan) -> Typed:
        change = self._changes[node.source]
        if change.rows is None:
            raise NotInArrow("a change that Spark holds")
        return change.rows, change.schema

    def _table(self, node: Scan, columns: Sequence[str]) -> Typed:
        if node.source in self._given:
            return self._given[node.source]
        found = self._read(node.source, columns, node.state) if columns else None
        if found is not None:
            return found
        now = self._read(node.source, columns, State.NEW) if columns and node.state is State.OLD else None
        if now is None:
            raise NotInArrow("a large table")
        rows, schema = now
        return before(rows, self._change(node)[0].select([*columns, WEIGHT])), schema


def before(rows: pa.Table, change: pa.Table, most: int = _MOST_TAKEN_BACK) -> pa.Table:
    """Take a change back."""
    if rows.num_rows + change.num_rows > most:
        raise NotInArrow("an old state of many rows")
    now = weighted(rows, 1)
    place = change.column_names.index(WEIGHT)
    back = change.set_column(place, WEIGHT, pc.negate(change[WEIGHT])).cast(now.schema)
    net = consolidate(pa.concat_tables([now, back]))
    counts = net[WEIGHT].to_numpy()
    if (counts < 0).any():
        raise NotInArrow("a change that is not of these rows")
    return net.drop_columns([WEIGHT]).take(np.repeat(np.arange(len(counts)), counts))


def _item(name: str, item: exp.Expr, rows: pa.Table) -> pa.ChunkedArray:
    """A column of a projection; those that count rows have one type wherever they come from."""
    column = column_of(item, rows)
    return column.cast(pa.int64()) if name in (WEIGHT, SIDE) else column


def _together(tables: Sequence[pa.Table]) -> pa.Table:
    first = tables[0].schema
    if any(table.schema.types != first.types for table in tables):
        raise NotInArrow("a union of several types")
    return pa.concat_tables([table.rename_columns(first.names) for table in tables])


def shown_groups(plan: StatePlan, sides: pa.Table) -> pa.Table | None:
    """Compute the rows that the groups show from their states, old and new, netted out."""
    try:
        if plan.having is not None:
            sides = _filtered(sides, plan.having)
        shown = {name: column_of(item, sides) for name, item in plan.outputs}
        return consolidate(pa.table(shown | {WEIGHT: sides[WEIGHT]}))
    except (NotInArrow, KeyError, pa.ArrowException):
        return None


def _filtered(rows: pa.Table, condition: exp.Expr) -> pa.Table:
    keep = truth_of(condition, rows)
    if isinstance(keep, pa.Scalar):
        return rows if keep.as_py() else rows.slice(0, 0)
    return rows.filter(keep)


def _joined(node: Join, left: pa.Table, right: pa.Table) -> pa.Table:
    """Join by equal columns; other conditions choose among the pairs."""
    pairs, others = _conditions(node, left, right)
    if not pairs:
        pairs, others = _perhaps_equal(others, left, right)
    if node.kind == "inner":
        return _chosen_pairs(_pairs(left, right, pairs), others)
    if not pairs or (node.kind == "left" and WEIGHT in right.column_names):
        raise NotInArrow("a join that is not by equal columns")
    if node.kind in ("semi", "anti") and not others:
        one, other, names = _keyed(left, right, pairs)
        return one.join(other.select(names), names, join_type=f"left {node.kind}").select(left.column_names)
    numbered = left.append_column(_PLACE, pa.array(np.arange(left.num_rows)))
    met = _chosen_pairs(_pairs(numbered, right, pairs), others)
    with_partner = np.zeros(left.num_rows, dtype=np.bool_)
    with_partner[met[_PLACE].to_numpy()] = True
    if node.kind == "semi":
        return left.filter(pa.array(with_partner))
    alone = left.filter(pa.array(~with_partner))
    if node.kind == "anti":
        return alone
    for field in right.schema:
        alone = alone.append_column(field, pa.nulls(alone.num_rows, field.type))
    met = met.drop_columns([_PLACE])
    return pa.concat_tables([met, alone.select(met.column_names).cast(met.schema)])


def _pairs(left: pa.Table, right: pa.Table, equal: Sequence[tuple[str, str, bool]]) -> pa.Table:
    if not equal:
        return _paired(left, right)
    one, other, names = _keyed(left, right, equal)
    if too_many(one.select(names), other.select(names), names):
        raise NotInArrow("a join of many rows")
    return one.join(other, names, join_type="inner").select([*left.column_names, *right.column_names])


def _keyed(
    left: pa.Table, right: pa.Table, equal: Sequence[tuple[str, str, bool]]
) -> tuple[pa.Table, pa.Table, list[str]]:
    """Both sides with the columns by which Arrow joins them."""
    keys = [key for a, b, nulls in equal for key in _keys(left[a], right[b], nulls=nulls)]
    names = [f"__hr_on{place}" for place in range(len(keys))]
    for name, (a, b) in zip(names, keys, strict=True):
        left, right = left.append_column(name, a), right.append_column(name, b)
    return left, right, names


def _keys(left: pa.ChunkedArray, right: pa.ChunkedArray, *, nulls: bool) -> list[Sequence[pa.ChunkedArray]]:
    """Columns by which Arrow joins, to which NULL equals nothing; where it should, being NULL is one more."""
    both = alike([left, right])
    if not nulls or not (left.null_count and right.null_count):
        return [both]
    some = next((value for value in both[0].drop_null().slice(0, 1)), pa.scalar(0))
    filled = [pc.fill_null(side, some.cast(side.type)) for side in both]
    return [filled, [pc.is_null(side) for side in both]]


def _paired(left: pa.Table, right: pa.Table) -> pa.Table:
    """Every row of one with every row of the other."""
    if left.num_rows * right.num_rows > _MOST_JOINED:
        raise NotInArrow("a product of many rows")
    pairs = left.take(np.repeat(np.arange(left.num_rows), right.num_rows))
    others = right.take(np.tile(np.arange(right.num_rows), left.num_rows))
    for name in others.column_names:
        pairs = pairs.append_column(name, others[name])
    return pairs


def _chosen_pairs(pairs: pa.Table, conditions: Sequence[exp.Expr]) -> pa.Table:
    for condition in conditions:
        pairs = _filtered(pairs, condition)
    return pairs


def _conditions(
    node: Join, left: pa.Table, right: pa.Table
) -> tuple[list[tuple[str, str, bool]], list[exp.Expr]]:
    """Tell the columns of both sides that must be equal from the other conditions."""

    def across(part: exp.Expr) -> list[tuple[str, str, bool]]:
        found = equal_columns([part])
        both = [*found, *((b, a, nulls) for a, b, nulls in found)]
        return [pair for pair in both if pair[0] in left.column_names and pair[1] in right.column_names]

    parts = conjuncts(node.on)
    pairs = dict.fromkeys(pair for part in parts for pair in across(part))
    # What is true of every alternative does not say which of them is.
    return list(pairs), [part for part in parts if isinstance(part, exp.Or) or not across(part)]


def _perhaps_equal(
    parts: Sequence[exp.Expr], left: pa.Table, right: pa.Table
) -> tuple[list[tuple[str, str, bool]], list[exp.Expr]]:
    """Take a comparison as NOT IN makes it for a plain one, where neither side has a NULL."""
    pairs: list[tuple[str, str, bool]] = []
    others: list[exp.Expr] = []
    for part in parts:
        found = perhaps_equal_columns([part])
        both = [*found, *((b, a) for a, b in found)]
        known = [(a, b) for a, b in both if a in left.column_names and b in right.column_names]
        if known and not any(left[a].null_count or right[b].null_count for a, b in known):
            pairs += ((a, b, False) for a, b in known)
        else:
            others.append(part)
    return pairs, others


def too_many(left: pa.Table, right: pa.Table, names: list[str]) -> bool:
    """Tell whether a join gives more rows than the driver should hold."""
    counts = right.group_by(names, use_threads=False).aggregate([([], "count_all")])
    found = left.join(counts, names, join_type="inner")["count_all"]
    pairs = int(pc.sum(found).as_py() or 0)
    return bool(pairs + left.num_rows > _MOST_JOINED)


def is_plain(field: StructField, type_: pa.DataType) -> bool:
    """Tell whether a column's values are the same exactly when Spark says so: no collation, no padding."""
    is_collated = isinstance(field.dataType, StringType) and field.dataType.simpleString() != "string"
    return is_known(type_) and not is_collated and CHAR_TYPE not in (field.metadata or {})


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
    exact = adds if pa.types.is_decimal(adds.type) else adds.cast(pa.decimal128(19, 0))
    wide = exact.cast(pa.decimal128(38, exact.type.scale))
    largest_exact = max(abs(pc.min(wide).as_py()), abs(pc.max(wide).as_py()))
    heaviest = int(np.abs(weights.to_numpy()).max())
    if largest_exact * heaviest * rows.num_rows * 10**wide.type.scale >= _MOST_DECIMAL:
        raise NotInArrow("a sum that may not fit")
    if heaviest == 1:
        return pc.if_else(pc.greater(weights, 0), wide, pc.negate(wide))
    # A product of decimals has room for all digits of both.
    product = pc.multiply(exact.cast(pa.decimal256(38, exact.type.scale)), weights.cast(pa.decimal256(19, 0)))
    return product.cast(wide.type)


def _in_types(totals: pa.Table, plan: StatePlan) -> pa.Table:
    schema = totals.schema
    for column in plan.columns:
        place = schema.get_field_index(column.name)
        schema = schema.set(place, pa.field(column.name, arrow_type(column.type)))
    try:
        return totals.cast(schema)
    except pa.ArrowInvalid as overflow:
        raise NotInArrow(str(overflow)) from overflow
