"""When two stored rows are the same: by value, NULL equal to NULL, as Spark's grouping has it.

Rows become numbers so that sets of them are compared at the speed of numpy; equal numbers mean equal values.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from headrace.plan.hidden import WEIGHT
from headrace.sources.arrow_types import integers_for_times

Integers = npt.NDArray[np.int64]

_WIDEST = 2**62
# Integers are close together where they are spread over no more than so many times their number.
_CLOSE = 4


def row_codes(rows: pa.Table, columns: Sequence[str]) -> Integers:
    """Give every row a number; two rows have the same one exactly where they agree in all columns.

    >>> row_codes(pa.table({"a": [1, None, 1, None], "b": ["x", "y", "x", "z"]}), ["a", "b"]).tolist()
    [0, 4, 0, 5]
    """
    codes: Integers = np.zeros(rows.num_rows, dtype=np.int64)
    width = 1
    for column in columns:
        own, size = _column_codes(rows[column])
        if width * size > _WIDEST:
            distinct, codes = np.unique(codes, return_inverse=True)
            width = len(distinct)
        codes = codes * size + own
        width *= size
    return codes


def difference(now: pa.Table, stored: pa.Table) -> pa.Table:
    """The rows of now in, those that are stored out; what is the same to storage cancels."""
    return difference_and_lost(now, stored)[0]


def difference_and_lost(now: pa.Table, stored: pa.Table) -> tuple[pa.Table, Integers]:
    """The difference, and at which places the rows are stored that it takes away.

    >>> stored = pa.table({"a": ["x", "y", "x", "x"]})
    >>> net, lost = difference_and_lost(pa.table({"a": ["z", "x"]}), stored)
    >>> sorted(zip(net["a"].to_pylist(), net["__hr_weight"].to_pylist())), lost.tolist()
    ([('x', -2), ('y', -1), ('z', 1)], [0, 1, 2])
    """
    rows = pa.concat_tables([now.select(stored.column_names).cast(stored.schema), stored])
    _, first, which = np.unique(row_codes(rows, rows.column_names), return_index=True, return_inverse=True)
    signs = np.where(np.arange(len(rows)) < len(now), 1, -1)
    net = np.bincount(which, weights=signs, minlength=len(first)).astype(np.int64)
    kept = np.flatnonzero(net)
    mine = which[len(now) :]
    fewer = np.flatnonzero(net[mine] < 0)
    lost = fewer[rank_among_equals(mine[fewer]) < -net[mine[fewer]]]
    return rows.take(first[kept]).append_column(WEIGHT, pa.array(net[kept])), lost


def rank_among_equals(values: Integers) -> Integers:
    """Number equal values from 0 in their order.

    >>> rank_among_equals(np.array([7, 5, 7, 7, 5])).tolist()
    [0, 0, 1, 2, 1]
    """
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    starts = (
        np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]]) if len(values) else np.zeros(0, np.int64)
    )
    lengths = np.diff(np.r_[starts, len(values)])
    ranks = np.empty(len(values), dtype=np.int64)
    ranks[order] = np.arange(len(values)) - np.repeat(starts, lengths)
    return ranks


def comparable(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Make one value of those that Spark counts as equal: 0.0 and -0.0, and all that is not a number."""
    if pt.is_floating(column.type):
        plain = pc.add(column, pa.scalar(0, column.type))
        return pc.if_else(pc.is_nan(plain), pa.scalar(math.nan, column.type), plain)
    return column


def distinct_count(column: pa.ChunkedArray) -> int:
    """Count a column's distinct values, NULL among them."""
    return _distinct_codes(column)[1]


def is_nested(type_: pa.DataType) -> bool:
    return bool(pt.is_nested(type_))


def _column_codes(column: pa.ChunkedArray) -> tuple[Integers, int]:
    """Number the values of a column, and say below what the numbers are."""
    dense = _dense_codes(column)
    return _distinct_codes(column) if dense is None else dense


def _dense_codes(column: pa.ChunkedArray) -> tuple[Integers, int] | None:
    """Take integers that lie close together for their own numbers, which spares looking each of them up."""
    if not pt.is_signed_integer(column.type):
        return None
    ends = pc.min_max(column)
    low, high = ends["min"].as_py(), ends["max"].as_py()
    if low is None or high - low > _CLOSE * len(column):
        return None
    size = high - low + 1
    filled = column.fill_null(high) if column.null_count else column
    codes = filled.to_numpy().astype(np.int64) - low
    if column.null_count:
        codes[column.is_null().to_numpy()] = size
        size += 1
    return codes, size


def _distinct_codes(column: pa.ChunkedArray) -> tuple[Integers, int]:
    if is_nested(column.type):
        return _nested_codes(column)
    whole = comparable(column).combine_chunks()
    encoded = whole.dictionary_encode(null_encoding="encode")
    indices = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    return indices, max(len(encoded.dictionary), 1)


def _nested_codes(column: pa.ChunkedArray) -> tuple[Integers, int]:
    """Number nested values by their frozen form: Arrow does not hash them."""
    known: dict[Any, int] = {}
    plain = column.cast(integers_for_times(column.type))
    codes = [known.setdefault(_freeze(value), len(known)) for value in plain.to_pylist()]
    return np.asarray(codes, dtype=np.int64), max(len(known), 1)


def _freeze(value: Any) -> Any:
    """Make a nested value hashable, with its types told apart.

    >>> _freeze({"a": [1, None], "b": -0.0}) == _freeze({"a": [1, None], "b": 0.0})
    True
    """
    if isinstance(value, dict):
        return tuple(_freeze(item) for item in value.values())
    if isinstance(value, list):
        if value and isinstance(value[0], tuple):
            # Arrow gives a map as its entries; their order is not part of its value.
            return frozenset((_freeze(key), _freeze(item)) for key, item in value)
        return (list, *(_freeze(item) for item in value))
    if isinstance(value, float):
        return "nan" if math.isnan(value) else value + 0.0
    return value
