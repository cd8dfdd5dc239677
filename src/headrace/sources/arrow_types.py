"""Delta's types in Arrow: what the driver can decode exactly, and files of older schemas brought to it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headrace.sources.state import Field, fields_inside, fields_of

_PRIMITIVES: Mapping[str, pa.DataType] = {
    "string": pa.string(),
    "long": pa.int64(),
    "integer": pa.int32(),
    "short": pa.int16(),
    "byte": pa.int8(),
    "float": pa.float32(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
_VARIANT = pa.struct([pa.field("value", pa.binary()), pa.field("metadata", pa.binary())])
_DECIMAL = re.compile(r"decimal\((\d+),\s*(\d+)\)")
# Where Spark notes the declared type of a column that it stores as a string.
CHAR_TYPE = "__CHAR_VARCHAR_TYPE_STRING"
_PADDED = re.compile(r"char\((\d+)\)")


class UndecodableError(Exception):
    """The driver cannot decode this exactly, so that Spark must read it; the text says why."""


def arrow_type(kind: Any) -> pa.DataType:
    """Give the Arrow type of a Delta type.

    >>> arrow_type("decimal(38,4)"), arrow_type({"type": "array", "elementType": "long"})
    (Decimal128Type(decimal128(38, 4)), ListType(list<item: int64>))
    """
    if isinstance(kind, str):
        return _primitive(kind)
    match kind["type"]:
        case "struct":
            return pa.struct([pa.field(one.name, arrow_type(one.type)) for one in fields_of(kind)])
        case "array":
            return pa.list_(arrow_type(kind["elementType"]))
        case "map":
            return pa.map_(arrow_type(kind["keyType"]), arrow_type(kind["valueType"]))
    raise UndecodableError(f"type {kind['type']}")


def _primitive(kind: str) -> pa.DataType:
    if kind == "variant":
        return _VARIANT
    if decimal := _DECIMAL.fullmatch(kind):
        return pa.decimal128(int(decimal[1]), int(decimal[2]))
    if kind not in _PRIMITIVES:
        raise UndecodableError(f"type {kind}")
    return _PRIMITIVES[kind]


def conform(column: pa.ChunkedArray, field: Field) -> pa.ChunkedArray:
    """Bring a column as a file holds it to the table's type: widened, renamed, padded."""
    chunks = [conform_array(chunk, field.type) for chunk in column.chunks]
    whole = pa.chunked_array(chunks, arrow_type(field.type))
    return pad(whole, field)


def pad(column: pa.ChunkedArray, field: Field) -> pa.ChunkedArray:
    """Pad CHAR(n) as Spark does when it reads one."""
    declared = _PADDED.fullmatch(str(field.metadata.get(CHAR_TYPE, "")))
    return pc.utf8_rpad(column, width=int(declared[1]), padding=" ") if declared else column


def is_padded_inside(field: Field) -> bool:
    """Tell whether a column has CHAR within another type, which Spark pads when it reads it.

    >>> [is_padded_inside(Field("a", "x", {CHAR_TYPE: kind})) for kind in ("char(3)", "array<char(3)>")]
    [False, True]
    """
    declared = str(field.metadata.get(CHAR_TYPE, ""))
    own = re.search(r"\bchar\(", declared) is not None and not _PADDED.fullmatch(declared)
    return own or any(CHAR_TYPE in one.metadata or is_padded_inside(one) for one in fields_inside(field.type))


def conform_array(array: pa.Array, kind: Any) -> pa.Array:
    """Bring one array to a Delta type, matching the fields of structs by their physical names."""
    if isinstance(kind, str):
        return _conform_variant(array) if kind == "variant" else _cast(array, arrow_type(kind))
    match kind["type"]:
        case "struct":
            return _conform_struct(array, kind)
        case "array":
            offsets, items = _list_parts(array)
            values = conform_array(items, kind["elementType"])
            return pa.ListArray.from_arrays(offsets, values, pa.list_(values.type), mask=_nulls(array))
        case "map":
            return _conform_map(array, kind)
    raise UndecodableError(f"type {kind['type']}")


def _conform_struct(array: pa.Array, kind: Mapping[str, Any]) -> pa.Array:
    present = {array.type.field(index).name: index for index in range(array.type.num_fields)}
    columns, fields = [], []
    for one in fields_of(kind):
        wanted = arrow_type(one.type)
        index = present.get(one.physical)
        found = pa.nulls(len(array), wanted) if index is None else conform_array(array.field(index), one.type)
        columns.append(found)
        fields.append(pa.field(one.name, wanted))
    return pa.StructArray.from_arrays(columns, fields=fields, mask=_nulls(array))


def _conform_map(array: pa.Array, kind: Mapping[str, Any]) -> pa.Array:
    if array.offset:
        array = pa.concat_arrays([array])
    keys = conform_array(array.keys, kind["keyType"])
    items = conform_array(array.items, kind["valueType"])
    return pa.MapArray.from_arrays(
        array.offsets, keys, items, pa.map_(keys.type, items.type), mask=_nulls(array)
    )


def _conform_variant(array: pa.Array) -> pa.Array:
    names = {array.type.field(index).name for index in range(array.type.num_fields)}
    if names != {"value", "metadata"}:
        raise UndecodableError("shredded variant")
    columns = [array.field("value").cast(pa.binary()), array.field("metadata").cast(pa.binary())]
    return pa.StructArray.from_arrays(columns, fields=list(_VARIANT), mask=_nulls(array))


def _list_parts(array: pa.Array) -> tuple[pa.Array, pa.Array]:
    if array.offset:
        array = pa.concat_arrays([array])
    return array.offsets, array.values


def _nulls(array: pa.Array) -> pa.Array | None:
    return array.is_null() if array.null_count else None


def _cast(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    if array.type == wanted:
        return array
    if pa.types.is_timestamp(array.type) and pa.types.is_timestamp(wanted) and array.type.tz is None:
        # INT96 carries no zone: what it holds is UTC.
        return array.cast(pa.timestamp("us")).cast(wanted)
    try:
        return array.cast(wanted)
    except pa.ArrowException as error:
        raise UndecodableError(f"{array.type} stored for {wanted}: {error}") from error


def integers_for_times(type_: pa.DataType) -> pa.DataType:
    """Replace times by their integers: Python has no year beyond 9999."""
    if pa.types.is_timestamp(type_):
        return pa.int64()
    if pa.types.is_date32(type_):
        return pa.int32()
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        return pa.list_(type_.value_field.with_type(integers_for_times(type_.value_type)))
    if pa.types.is_map(type_):
        return pa.map_(integers_for_times(type_.key_type), integers_for_times(type_.item_type))
    if pa.types.is_struct(type_):
        return pa.struct([field.with_type(integers_for_times(field.type)) for field in type_])
    return type_
