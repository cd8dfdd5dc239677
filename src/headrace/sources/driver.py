"""Reading a small difference on the driver: Parquet files into weighted Arrow rows, without a Spark job."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headrace.plan.hidden import WEIGHT
from headrace.sources.arrow_types import UndecodableError, arrow_type, conform, pad
from headrace.sources.difference import Difference, Piece
from headrace.sources.files import open_file
from headrace.sources.state import Field, TableState

_READERS = 4
_CHANGE_TYPE = "_change_type"
_WEIGHTS = {"insert": 1, "update_postimage": 1, "delete": -1, "update_preimage": -1}
_KNOWN_FEATURES = frozenset(
    {
        "columnMapping",
        "deletionVectors",
        "timestampNtz",
        "typeWidening",
        "typeWidening-preview",
        "v2Checkpoint",
        "vacuumProtocolCheck",
        "variantType",
        "variantType-preview",
    }
)
# Spark before 3.0 wrote days and instants of another calendar, and newer ones can be told to.
_OLD_CALENDAR = (b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96")


@dataclass(frozen=True)
class Wanted:
    """The columns to read, under the names that were asked for."""

    names: tuple[str, ...]
    fields: tuple[Field, ...]
    partitions: frozenset[str]

    @classmethod
    def of(cls, state: TableState, names: Sequence[str], fields: Sequence[Field]) -> Wanted:
        """Find the columns in a table, or say why the driver cannot read them exactly."""
        unknown = state.reader_features - _KNOWN_FEATURES
        if unknown:
            raise UndecodableError(f"table feature {', '.join(sorted(unknown))}")
        if state.mapping_mode == "id":
            raise UndecodableError("column mapping by id")
        for field in fields:
            arrow_type(field.type)
            if "EXISTS_DEFAULT" in field.metadata:
                raise UndecodableError(f"default of the added column {field.name}")
        return cls(tuple(names), tuple(fields), frozenset(state.partition_columns))


def read_rows(location: str, difference: Difference, wanted: Wanted) -> pa.Table:
    """Read all pieces of a difference: the wanted columns and the weight, not yet netted out."""
    groups = list(difference.by_path())

    def read(group: tuple[Piece, ...]) -> pa.Table:
        return _read_file(location, group, wanted)

    if len(groups) < 2:
        tables = [read(group) for group in groups]
    else:
        with ThreadPoolExecutor(_READERS) as readers:
            tables = list(readers.map(read, groups))
    return pa.concat_tables([empty_rows(wanted.names, wanted.fields), *tables])


def _read_file(location: str, group: tuple[Piece, ...], wanted: Wanted) -> pa.Table:
    with open_file(location, group[0].path) as stream:
        file = pq.ParquetFile(stream, coerce_int96_timestamp_unit="us")
        _refuse_old_calendar(file, wanted)
        stored = _stored_names(file, wanted)
        extra = [_CHANGE_TYPE] if group[0].is_change_file else []
        names = sorted({*stored.values(), *extra})
        # A dot in a name would be read as a path into a struct.
        rows = file.read(columns=names if not any("." in name for name in names) else None)
        count = file.metadata.num_rows
    weights = _change_weights(rows) if extra else _file_weights(location, group, count)
    columns = [
        _column(rows, field, stored.get(field.physical), group[0], wanted, count) for field in wanted.fields
    ]
    table = pa.table([*columns, weights], schema=empty_rows(wanted.names, wanted.fields).schema)
    return table.filter(pc.not_equal(weights, 0)) if len(group) > 1 or group[0].vector else table


def empty_rows(names: Sequence[str], fields: Sequence[Field]) -> pa.Table:
    """Give the change of a table that did not change."""
    columns = [pa.field(name, _type_or_null(field)) for name, field in zip(names, fields, strict=True)]
    return pa.schema([*columns, pa.field(WEIGHT, pa.int64())]).empty_table()


def _type_or_null(field: Field) -> pa.DataType:
    try:
        return arrow_type(field.type)
    except UndecodableError:
        return pa.null()


def _stored_names(file: pq.ParquetFile, wanted: Wanted) -> dict[str, str]:
    """Map physical names to the file's own; the case of a name may have changed since it was written."""
    present = {name.casefold(): name for name in file.schema_arrow.names}
    exact = set(file.schema_arrow.names)
    found = {}
    for field in wanted.fields:
        physical = field.physical
        stored = physical if physical in exact else present.get(physical.casefold())
        if stored is not None and field.name not in wanted.partitions:
            found[physical] = stored
    return found


def _column(
    rows: pa.Table, field: Field, stored: str | None, piece: Piece, wanted: Wanted, count: int
) -> pa.ChunkedArray:
    kind = arrow_type(field.type)
    if field.name in wanted.partitions:
        value = partition_value(piece.partition.get(field.physical), field.type)
        return pad(pa.chunked_array([pa.repeat(pa.scalar(value, kind), count)]), field)
    if stored is None:
        return pa.chunked_array([pa.nulls(count, kind)])
    return conform(rows[stored], field)


def _file_weights(location: str, group: tuple[Piece, ...], count: int) -> pa.Array:
    """Weigh every row of a file by the versions in which it lives."""
    return reduce(pc.add, (_live_weights(location, piece, count) for piece in group))


def _live_weights(location: str, piece: Piece, count: int) -> pa.Array:
    weight = pa.scalar(piece.weight, pa.int64())
    if piece.vector is None:
        return pa.repeat(weight, count)
    deleted = piece.vector.deleted(location, count)
    return pc.if_else(deleted, pa.scalar(0, pa.int64()), weight)


def _change_weights(rows: pa.Table) -> pa.ChunkedArray:
    kinds = pa.array(list(_WEIGHTS))
    found = pc.index_in(rows[_CHANGE_TYPE].cast(pa.string()), kinds)
    if found.null_count:
        raise UndecodableError("unknown kind of change in the change feed")
    return pc.take(pa.array(_WEIGHTS.values(), pa.int64()), found)


def _refuse_old_calendar(file: pq.ParquetFile, wanted: Wanted) -> None:
    notes: Mapping[bytes, bytes] = file.metadata.metadata or {}
    old = any(key in notes for key in _OLD_CALENDAR)
    if old or notes.get(b"org.apache.spark.version", b"").startswith(b"2."):
        kinds = str([field.type for field in wanted.fields])
        if "date" in kinds or "timestamp" in kinds:
            raise UndecodableError("days of the old calendar")


def partition_value(text: str | None, kind: Any) -> Any:
    """Read a partition's value from its text in the log; an empty text is NULL.

    >>> partition_value("2026-03-01", "date"), partition_value("", "string"), partition_value("7", "long")
    (datetime.date(2026, 3, 1), None, 7)
    """
    if not text:
        return None
    if not isinstance(kind, str):
        raise UndecodableError(f"partition of type {kind}")
    read = Decimal if kind.startswith("decimal") else _PARTITIONS.get(kind)
    if read is None:
        raise UndecodableError(f"partition of type {kind}")
    try:
        return read(text)
    except (ValueError, ArithmeticError) as error:
        raise UndecodableError(f"partition value {text!r} of type {kind}") from error


def _instant(text: str) -> datetime:
    # Without a zone the value is in the time zone of whoever wrote it, which Spark decides.
    if not text.endswith("Z"):
        raise ValueError(text)
    return datetime.fromisoformat(text)


_PARTITIONS: Mapping[str, Callable[[str], Any]] = {
    "string": str,
    "long": int,
    "integer": int,
    "short": int,
    "byte": int,
    "boolean": {"true": True, "false": False}.__getitem__,
    "date": date.fromisoformat,
    "timestamp": _instant,
    "timestamp_ntz": datetime.fromisoformat,
}
