"""Arrow rows that hold at least what an operator gives, in the columns that Arrow computes as Spark does.

No row is left out that might be there: where a condition, a column or a pair of types is for Spark alone, it
chooses nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Protocol, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import StructType
from sqlglot import exp

from headrace.plan.expressions import Pairs
from headrace.plan.hidden import WEIGHT
from headrace.plan.nodes import Project, Scan
from headrace.refresh.arrow_kinds import NotInArrow, alike
from headrace.refresh.arrow_values import column_of, truth_of
from headrace.refresh.on_driver import is_plain, too_many
from headrace.sources.search import ROW

Limits: TypeAlias = Mapping[str, pa.Array]
"""Columns that matter only where they have one of the values, NULL being a value."""


class Search(Protocol):
    """A source at its new state, in which rows can be looked up."""

    schema: StructType
    arrow_schema: pa.Schema
    count: int
    """How many rows there are."""

    def rows(self, tests: Limits) -> pa.Table | None:
        """Give the rows that have the values, with the place of each; None where they are too many."""

    def expected(self, tests: Limits) -> float:
        """Estimate how many rows have the values."""


def plain(rows: pa.Table, schema: StructType) -> pa.Table:
    """The columns whose values are equal in Arrow exactly when they are in Spark."""
    names = [
        name
        for name in rows.column_names
        if name not in (WEIGHT, ROW) and is_plain(schema[name], rows.schema.field(name).type)
    ]
    return rows.select(names)


def renamed(rows: pa.Table | None, node: Scan) -> pa.Table | None:
    if rows is None:
        return None
    known = {name: rows[column] for name, column in node.names if column in rows.column_names}
    # Arrow does not count rows without columns.
    return pa.table(known) if known else None


def projected(node: Project, below: pa.Table | None) -> pa.Table | None:
    if below is None:
        return None
    columns = {}
    for name, item in node.items:
        try:
            columns[name] = column_of(item, below)
        except (NotInArrow, pa.ArrowException, KeyError):
            continue
    return pa.table(columns) if columns else None


def filtered(rows: pa.Table | None, conditions: Sequence[exp.Expr]) -> pa.Table | None:
    if rows is None:
        return None
    for condition in conditions:
        try:
            keep = truth_of(condition, rows)
        except (NotInArrow, pa.ArrowException, KeyError):
            continue
        if not isinstance(keep, pa.Scalar):
            rows = rows.filter(keep)
    return rows


def distinct(rows: pa.Table | None, keys: Sequence[str]) -> pa.Table | None:
    if rows is None:
        return None
    names = [name for name in keys if name in rows.column_names]
    return rows.group_by(names, use_threads=False).aggregate([]) if names else None


def together(tables: Sequence[pa.Table | None]) -> pa.Table | None:
    """All rows of all tables, in the columns that all of them know."""
    known = [table for table in tables if table is not None]
    if len(known) < len(tables):
        return None
    names = [
        name
        for name in known[0].column_names
        if all(
            name in table.column_names and table.schema.field(name).type == known[0].schema.field(name).type
            for table in known
        )
    ]
    return pa.concat_tables([table.select(names) for table in known]) if names else None


def paired(left: pa.Table, right: pa.Table, pairs: Pairs) -> pa.Table:
    """Join by what both sides know; the left side alone where that is nothing, or gives too many rows."""
    one, other, names = _keyed(left, right, pairs)
    if not names or too_many(one.select(names), other.select(names), names):
        return left
    return one.join(other, names, join_type="inner").select([*left.column_names, *right.column_names])


def met_by(left: pa.Table, right: pa.Table, pairs: Pairs) -> pa.Table:
    """The left rows that have a partner, by what both sides know."""
    one, other, names = _keyed(left, right, pairs)
    if not names:
        return left
    return one.join(other.select(names), names, join_type="left semi").select(left.column_names)


def _keyed(left: pa.Table, right: pa.Table, pairs: Pairs) -> tuple[pa.Table, pa.Table, list[str]]:
    """Both sides with columns by which Arrow joins them, to which NULL equals nothing."""
    names: list[str] = []
    for a, b, nulls in pairs:
        if a not in left.column_names or b not in right.column_names:
            continue
        try:
            one, other = alike([left[a], right[b]])
        except NotInArrow:
            continue
        if not (nulls and one.null_count and other.null_count):
            names.append(f"__hr_on{len(names)}")
            left, right = left.append_column(names[-1], one), right.append_column(names[-1], other)
    return left, right, names


def tests_of(limits: Limits, source: Search) -> Limits:
    """The limits in the types of the source, without those that Arrow does not compare as Spark does."""
    tests = {}
    for name, values in limits.items():
        kind = source.arrow_schema.field(name).type
        if is_plain(source.schema[name], kind):
            try:
                tests[name] = _cast(values, kind)
            except NotInArrow:
                continue
    return tests


def _cast(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Bring values to a type; those it has no room for occur nowhere."""
    if values.type == kind:
        return values
    if not (pa.types.is_integer(values.type) and pa.types.is_integer(kind)):
        raise NotInArrow("values of another type")
    wide, most = values.cast(pa.int64()), (1 << (kind.bit_width - 1)) - 1
    fits = pc.and_(pc.less_equal(wide, most), pc.greater_equal(wide, -most - 1))
    return wide.filter(pc.or_kleene(fits, pc.is_null(wide))).cast(kind)


def passes(rows: pa.Table, tests: Limits) -> pa.ChunkedArray:
    every = pa.chunked_array([pa.repeat(pa.scalar(value=True), rows.num_rows)], pa.bool_())
    return reduce(pc.and_, (pc.is_in(rows[name], value_set=values) for name, values in tests.items()), every)
