"""Windows and first rows over Arrow tables: places in an order, and aggregates of whole partitions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from sqlglot import exp

from headrace.plan.expressions import function_name
from headrace.plan.nodes import Aggregate, TopN, Window
from headrace.refresh.arrow_groups import aggregated
from headrace.refresh.arrow_kinds import NotInArrow, is_known
from headrace.refresh.arrow_values import column_of
from headrace.storage.identity import Integers, row_codes

_CODE = "__hr_code"
_PARTITION = "partition"
# Decimals of so many digits are held in one of their two words.
_MOST_DIGITS = 18
_WIDEST = 2**62


def with_windows(node: Window, rows: pa.Table) -> pa.Table:
    """Add window functions to rows."""
    partition = row_codes(rows, node.partition)
    for name, window in node.items:
        rows = rows.append_column(name, _computed(node, window, rows, partition))
    return rows.select(list(node.columns))


def first_rows(node: TopN, rows: pa.Table) -> pa.Table:
    """The rows of each partition that come at the places wanted."""
    order = _telling(node.order, node.partition)
    place = _Places.of(rows, row_codes(rows, node.partition), order).row_number()
    last = np.inf if node.limit is None else node.offset + node.limit
    return rows.filter(pa.array((place > node.offset) & (place <= last)))


def sorted_places(rows: pa.Table, order: Sequence[exp.Expr], partition: Integers | None = None) -> pa.Array:
    """The places of rows in an order, by partition, with NULLs where each part of the order wants them."""
    columns: dict[str, pa.ChunkedArray | pa.Array] = {}
    keys: list[tuple[str, str]] = []
    if partition is not None:
        columns[_PARTITION] = pa.array(partition)
        keys.append((_PARTITION, "ascending"))
    for place, item in enumerate(order):
        if not isinstance(item, exp.Ordered):
            raise NotInArrow("an order of another kind")
        value = _ordering(item, rows)
        is_descending = bool(item.args.get("desc"))
        nulls_first = item.args.get("nulls_first")
        nulls_first = not is_descending if nulls_first is None else bool(nulls_first)
        if value.null_count:
            columns[f"n{place}"] = pc.is_null(value).cast(pa.int8())
            keys.append((f"n{place}", "descending" if nulls_first else "ascending"))
        columns[f"v{place}"] = value
        keys.append((f"v{place}", "descending" if is_descending else "ascending"))
    code = _as_one_integer(columns, keys) if rows.num_rows else None
    if code is not None:
        return pa.array(np.argsort(code, kind="stable"))
    return pc.sort_indices(pa.table(columns), sort_keys=keys)


def _as_one_integer(
    columns: Mapping[str, pa.ChunkedArray | pa.Array], keys: Sequence[tuple[str, str]]
) -> Integers | None:
    """One integer for each row, in the order of all columns; None where there is no room for it.

    Sorting these takes a fifth of the time that Arrow takes, or numpy, for three columns one after the other.
    """
    code: Integers | None = None
    width = 1
    for name, way in keys:
        values = _as_integers(columns[name], descending=way == "descending")
        if values is None:
            return None
        low, high = int(values.min()), int(values.max())
        width *= high - low + 1
        if width > _WIDEST:
            return None
        code = values - low if code is None else code * (high - low + 1) + (values - low)
    return code


def _as_integers(column: pa.ChunkedArray | pa.Array, *, descending: bool) -> Integers | None:
    """Integers in the order of a column's values, NULLs all alike; None where it has no such."""
    kind = column.type
    if pa.types.is_decimal128(kind) and kind.precision <= _MOST_DIGITS:
        whole = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
        words = np.frombuffer(whole.buffers()[1], "<i8", count=2 * len(whole), offset=16 * whole.offset)
        values: Integers = words[::2].copy()
        if whole.null_count:
            values[np.asarray(whole.is_null())] = 0
    elif pa.types.is_signed_integer(kind) or pa.types.is_timestamp(kind) or pa.types.is_date32(kind):
        plain = column.cast(pa.int32()) if pa.types.is_date32(kind) else column
        plain = plain.cast(pa.int64())
        values = np.asarray(plain.fill_null(0) if plain.null_count else plain)
    else:
        return None
    return ~values if descending else values


def _telling(order: Sequence[exp.Expr], partition: Sequence[str]) -> list[exp.Expr]:
    """Leave out what is the same in all rows of a partition."""
    return [item for item in order if not (isinstance(item.this, exp.Column) and item.this.name in partition)]


def _ordering(item: exp.Expr, rows: pa.Table) -> pa.ChunkedArray:
    value = column_of(item.this, rows)
    if not is_known(value.type):
        raise NotInArrow("values that are ordered otherwise")
    return value


def _computed(node: Window, window: exp.Expr, rows: pa.Table, partition: Integers) -> pa.Array:
    function, order, spec = window.this, window.args.get("order"), window.args.get("spec")
    name = function_name(function)
    if name in _RANKS and order is not None and spec is None and not function.args.get("expressions"):
        found = _RANKS[name](_Places.of(rows, partition, _telling(order.expressions, node.partition)))
        return pa.array(found, pa.int32())
    if order is None and spec is None:
        return _of_partitions(node, function, rows, partition)
    raise NotInArrow(f"the window {name}")


def _of_partitions(node: Window, function: exp.Expr, rows: pa.Table, partition: Integers) -> pa.Array:
    """An aggregate of all rows of each partition, beside each of them."""
    distinct, code = np.unique(partition, return_inverse=True)
    numbered = rows.append_column(_CODE, pa.array(code))
    groups = aggregated(Aggregate(node.child, (_CODE,), (("value", function),)), numbered)
    place = np.empty(len(distinct), dtype=np.int64)
    place[groups[_CODE].to_numpy()] = np.arange(len(distinct))
    return groups["value"].take(pa.array(place[code])).combine_chunks()


class _Places:
    """Rows sorted by partition and order, and where partitions and peers begin among them."""

    def __init__(self, places: Integers, begins: NDArray[np.bool_], differs: NDArray[np.bool_]) -> None:
        self._places, self._differs = places, differs
        self._here = np.arange(len(places))
        self._start = np.maximum.accumulate(np.where(begins, self._here, 0))

    @classmethod
    def of(cls, rows: pa.Table, partition: Integers, order: Sequence[exp.Expr]) -> _Places:
        places = sorted_places(rows, order, partition)
        begins = _steps(pa.chunked_array([pa.array(partition).take(places)]))
        differs = begins.copy()
        for item in order:
            differs |= _steps(_ordering(item, rows).take(places))
        return cls(places.to_numpy(), begins, differs)

    def row_number(self) -> Integers:
        return self._back(self._here - self._start + 1)

    def rank(self) -> Integers:
        peers = np.maximum.accumulate(np.where(self._differs, self._here, 0))
        return self._back(peers - self._start + 1)

    def dense_rank(self) -> Integers:
        peers: Integers = np.cumsum(self._differs, dtype=np.int64)
        return self._back(peers - peers[self._start] + 1)

    def _back(self, values: Integers) -> Integers:
        found = np.empty_like(values)
        found[self._places] = values
        return found


_RANKS = {"row_number": _Places.row_number, "rank": _Places.rank, "dense_rank": _Places.dense_rank}


def _steps(values: pa.ChunkedArray) -> NDArray[np.bool_]:
    """Tell of each value whether it is another than the one before, NULL being one; the first always is."""
    steps = np.ones(len(values), dtype=np.bool_)
    if len(values) > 1:
        before, here = values.slice(0, len(values) - 1), values.slice(1)
        same = pc.fill_null(pc.equal(before, here), fill_value=False)
        both_null = pc.and_(pc.is_null(before), pc.is_null(here))
        steps[1:] = ~np.asarray(pc.or_(same, both_null))
    return steps
