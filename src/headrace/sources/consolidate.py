"""Netting a change out in Arrow: one row per distinct value, its weights summed, zeros dropped."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headrace.plan.hidden import WEIGHT
from headrace.sources.arrow_types import integers_for_times
from headrace.sources.cancel import cancel_rewritten

_NAN = float("nan")


def consolidate(rows: pa.Table) -> pa.Table:
    """Sum the weights of equal rows; NULL equals NULL, NaN equals NaN, and -0.0 differs from 0.0.

    >>> rows = pa.table({"a": [1, None, 1, None], WEIGHT: [1, 1, -1, 1]})
    >>> consolidate(rows).to_pylist()
    [{'a': None, '__hr_weight': 2}]
    """
    rows = cancel_rewritten(rows)
    names = [name for name in rows.column_names if name != WEIGHT]
    keys = {f"k{index}": _key(rows[name]) for index, name in enumerate(names)}
    grouped = (
        pa.table({**keys, "w": rows[WEIGHT], "i": _positions(len(rows))})
        .group_by(list(keys), use_threads=len(rows) > 10_000)
        .aggregate([("w", "sum"), ("i", "min")])
    )
    # A group of no columns is one group even when there are no rows, and then its sum is NULL.
    kept = grouped.filter(pc.not_equal(pc.fill_null(grouped["w_sum"], 0), 0)).sort_by("i_min")
    places = pc.subtract(kept["i_min"], 1)
    values = {name: rows[name].take(places) for name in names}
    return pa.table({**values, WEIGHT: kept["w_sum"].cast(pa.int64())}, schema=rows.schema)


def weighted(rows: pa.Table, weight: int) -> pa.Table:
    """Rows as a change that adds or takes away each of them.

    >>> weighted(pa.table({"a": [1]}), -1).to_pylist()
    [{'a': 1, '__hr_weight': -1}]
    """
    weights = pa.repeat(pa.scalar(weight, pa.int64()), rows.num_rows)
    return rows.append_column(WEIGHT, weights)


def _positions(rows: int) -> pa.Array:
    return pc.cumulative_sum(pa.repeat(pa.scalar(1, pa.int64()), rows))


def _key(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Give values by which Arrow groups exactly as rows are the same."""
    if pa.types.is_nested(column.type):
        plain = column.cast(integers_for_times(column.type))
        return pa.chunked_array([pa.array([_text(value) for value in plain], pa.string())])
    if pa.types.is_floating(column.type):
        return pc.if_else(pc.is_nan(column), pa.scalar(_NAN, column.type), column)
    return column


def _text(value: pa.Scalar) -> str | None:
    return None if not value.is_valid else _write(value.as_py(), value.type)


def _write(value: Any, kind: pa.DataType) -> str:
    """Write a nested value so that two values have one text exactly when they are the same.

    >>> _write({"a": [1, None]}, pa.struct([("a", pa.list_(pa.int64()))]))
    '{[1,None]}'
    """
    if value is None:
        return "None"
    if pa.types.is_struct(kind):
        return "{" + ",".join(_write(value[field.name], field.type) for field in kind) + "}"
    if pa.types.is_map(kind):
        entries = (f"{_write(key, kind.key_type)}:{_write(item, kind.item_type)}" for key, item in value)
        # Equal maps may list their entries in another order.
        return "<" + ",".join(sorted(entries)) + ">"
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return "[" + ",".join(_write(item, kind.value_type) for item in value) + "]"
    return repr(value)
