"""Taking rows that were only rewritten out of a change, before it is netted out.

A file rewritten for a few of its rows gives every other row twice, lost and gained. Pairing those by a
fingerprint and comparing each pair in full is several times faster than grouping all rows by all columns. The
fingerprint only proposes pairs: what does not pair up is left to the grouping, which is exact.
"""

from __future__ import annotations

from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc

from headrace.plan.hidden import WEIGHT

_WORTH_IT = 20_000
_SAMPLE = 10_000
_MIX = pa.scalar(1_000_003, pa.int64())


def cancel_rewritten(rows: pa.Table) -> pa.Table:
    """Drop pairs of equal rows of which one was lost and one gained.

    >>> both = pa.table({"a": [1, 2, 3, 1], WEIGHT: [-1, -1, 1, 1]})
    >>> pair_off(both).to_pylist()
    [{'a': 2, '__hr_weight': -1}, {'a': 3, '__hr_weight': 1}]
    """
    nested = any(pa.types.is_nested(field.type) for field in rows.schema)
    if rows.num_rows < _WORTH_IT or rows.num_columns < 2 or nested:
        return rows
    return pair_off(rows)


def pair_off(rows: pa.Table) -> pa.Table:
    """Pair lost with gained rows by fingerprint, and drop the pairs that are equal in full."""
    weights = rows[WEIGHT]
    is_lost, is_gained = pc.equal(weights, -1), pc.equal(weights, 1)
    others = pc.invert(pc.or_(is_lost, is_gained))
    marks = _fingerprint(rows)
    lost, gained = rows.filter(is_lost), rows.filter(is_gained)
    partner = pc.index_in(marks.filter(is_lost), value_set=marks.filter(is_gained))
    partner = _once_each(partner.combine_chunks())
    equal = _equal_rows(lost, gained.take(partner))
    taken = partner.filter(equal)
    left_over = pc.invert(pc.is_in(_count(gained.num_rows), value_set=taken))
    return pa.concat_tables([rows.filter(others), lost.filter(pc.invert(equal)), gained.filter(left_over)])


def _once_each(partner: pa.Array) -> pa.Array:
    """Let every gained row pair with one lost row only."""
    if pc.count_distinct(partner).as_py() == len(partner) - partner.null_count:
        return partner
    numbered = pa.table({"p": partner, "i": _count(len(partner))})
    first = numbered.group_by("p").aggregate([("i", "min")])["i_min"]
    is_first = pc.is_in(numbered["i"], value_set=first.combine_chunks()).combine_chunks()
    return pc.if_else(is_first, partner, pa.scalar(None, partner.type))


def _equal_rows(left: pa.Table, right: pa.Table) -> pa.ChunkedArray:
    """Compare two tables row by row, bit for bit; a row without a partner equals nothing."""
    names = [name for name in left.column_names if name != WEIGHT]
    has_partner = pc.is_valid(right[WEIGHT])
    return reduce(pc.and_, (_equal(left[name], right[name]) for name in names), has_partner)


def _equal(left: pa.ChunkedArray, right: pa.ChunkedArray) -> pa.ChunkedArray:
    same = pc.equal(_bits(left), _bits(right))
    both_null = pc.and_(pc.is_null(left), pc.is_null(right))
    return pc.fill_null(same, False) if not left.null_count else pc.coalesce(same, both_null)


def _fingerprint(rows: pa.Table) -> pa.ChunkedArray:
    """Mix the columns of fixed width into one number, and the others where those tell few rows apart."""
    columns = [rows[name] for name in rows.column_names if name != WEIGHT]
    fixed = [column for column in columns if _is_fixed(column.type)]
    marks = reduce(_mix, (_number(column) for column in fixed), None)
    if marks is None or _repeats(marks):
        others = [column for column in columns if not _is_fixed(column.type)]
        marks = reduce(_mix, (_code(column) for column in others), marks)
    assert marks is not None
    return marks


def _mix(marks: pa.ChunkedArray | None, column: pa.ChunkedArray) -> pa.ChunkedArray:
    return column if marks is None else pc.add(pc.multiply(marks, _MIX), column)


def _repeats(marks: pa.ChunkedArray) -> bool:
    sample = marks.slice(0, _SAMPLE)
    distinct: int = pc.count_distinct(sample).as_py()
    return distinct < 0.9 * len(sample)


def _is_fixed(kind: pa.DataType) -> bool:
    is_number = pa.types.is_integer(kind) or pa.types.is_floating(kind)
    return bool(is_number or pa.types.is_timestamp(kind) or pa.types.is_date(kind))


def _number(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.fill_null(_bits(column).cast(pa.int64()), 0)


def _code(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Number the distinct values of a column."""
    encoded = column.combine_chunks().dictionary_encode()
    return pa.chunked_array([pc.fill_null(encoded.indices.cast(pa.int64()), -1)])


def _bits(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """See numbers of fixed width as integers of the same bits."""
    if not _is_fixed(column.type) or pa.types.is_integer(column.type):
        return column
    whole = pa.int64() if column.type.bit_width == 64 else pa.int32()
    return pa.chunked_array([chunk.view(whole) for chunk in column.chunks], whole)


def _count(number: int) -> pa.Array:
    ones = pa.repeat(pa.scalar(1, pa.int32()), number)
    return pc.subtract(pc.cumulative_sum(ones), pa.scalar(1, pa.int32()))
