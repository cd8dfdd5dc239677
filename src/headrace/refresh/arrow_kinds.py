"""Which values Arrow and Spark know alike, and the one type in which several are compared."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import pyarrow as pa

from headrace.plan.types import as_decimal, decimal_of

Value: TypeAlias = pa.ChunkedArray | pa.Scalar

_INTEGERS = {"tinyint": pa.int8(), "smallint": pa.int16(), "int": pa.int32(), "bigint": pa.int64()}
INTEGER_NAMES = {type_: name for name, type_ in _INTEGERS.items()}
MOST_DIGITS = 38


class NotInArrow(Exception):  # noqa: N818 - no failure: who hears it asks Spark
    """Something that only Spark computes as Spark does."""


def is_known(type_: pa.DataType) -> bool:
    """Tell whether values of a type are compared and grouped here as Spark does; floats are not."""
    pt = pa.types
    return (
        type_ in INTEGER_NAMES
        or (pt.is_decimal128(type_) and type_.precision <= MOST_DIGITS)
        or pt.is_string(type_)
        or pt.is_large_string(type_)
        or pt.is_boolean(type_)
        or pt.is_date32(type_)
        or pt.is_timestamp(type_)
    )


def type_name(type_: pa.DataType) -> str:
    """The Spark name of a number's type.

    >>> type_name(pa.int32()), type_name(pa.decimal128(10, 2))
    ('int', 'decimal(10,2)')
    """
    if pa.types.is_decimal(type_):
        return f"decimal({type_.precision},{type_.scale})"
    return INTEGER_NAMES.get(type_, "")


def arrow_type(name: str) -> pa.DataType:
    """The Arrow type of a number of a Spark type."""
    decimal = decimal_of(name)
    return pa.decimal128(*decimal) if decimal else _INTEGERS[name]


def alike(values: Sequence[Value]) -> list[Value]:
    """Bring values to the one type in which Spark compares them or chooses among them."""
    kinds = {value.type for value in values}
    if not all(map(is_known, kinds)):
        raise NotInArrow("values that are compared otherwise")
    if len(kinds) == 1:
        return list(values)
    names = [type_name(kind) for kind in kinds]
    if not all(names):
        raise NotInArrow("values of several types")
    if all(kind in INTEGER_NAMES for kind in kinds):
        widest = max(kinds, key=lambda kind: kind.bit_width)
        return [value.cast(widest) for value in values]
    widths = [as_decimal(name) for name in names]
    scale = max(s for _, s in widths)
    digits = max(p - s for p, s in widths) + scale
    if digits > MOST_DIGITS:
        raise NotInArrow("numbers too wide to be compared as one type")
    return [checked_cast(value, pa.decimal128(digits, scale)) for value in values]


def checked_cast(value: Value, type_: pa.DataType) -> Value:
    return checked(lambda: value.cast(type_))


def checked(compute: Callable[[], Value]) -> Value:
    try:
        return compute()
    except pa.ArrowInvalid as overflow:
        raise NotInArrow(str(overflow)) from overflow
