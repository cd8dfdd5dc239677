"""Data files of a table, read a slice of rows at a time into the table's own types."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from headrace.plan.hidden import WEIGHT
from headrace.sources.arrow_types import UndecodableError, arrow_type, conform, is_padded_inside, pad
from headrace.sources.difference import Piece
from headrace.sources.files import open_file
from headrace.sources.state import Field, TableState

CHANGE_TYPE = "_change_type"
# Files up to so many rows are read at once, and others in slices.
_AT_ONCE = 1_000_000
_SLICE = 1 << 17
_TEXT_BYTES = 32
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
            if is_padded_inside(field):
                raise UndecodableError(f"CHAR inside column {field.name}")
        return cls(tuple(names), tuple(fields), frozenset(state.partition_columns))

    def field(self, name: str) -> Field:
        return self.fields[self.names.index(name)]


@dataclass(frozen=True)
class Slice:
    """Some rows of a file as they are stored, and the place of the first."""

    start: int
    count: int
    rows: pa.Table


@dataclass(frozen=True)
class DataFile:
    """An open file, read a slice of rows at a time, so that memory does not grow with it."""

    file: pq.ParquetFile
    piece: Piece
    wanted: Wanted

    @property
    def count(self) -> int:
        return int(self.file.metadata.num_rows)

    @property
    def stored_bytes(self) -> int:
        """What the wanted columns take on disk."""
        return sum(int(chunk.total_compressed_size) for chunk in self._chunks())

    def _chunks(self) -> Iterator[pq.ColumnChunkMetaData]:
        names = set(self._stored.values())
        for place in range(self.file.num_row_groups):
            group = self.file.metadata.row_group(place)
            chunks = (group.column(column) for column in range(group.num_columns))
            yield from (chunk for chunk in chunks if chunk.path_in_schema.split(".")[0] in names)

    @property
    def decoded_bytes(self) -> int:
        """Estimate what the wanted columns take in memory."""
        widths = (_width(arrow_type(column.type)) for column in self.wanted.fields)
        stored = sum(int(chunk.total_uncompressed_size) for chunk in self._chunks())
        return max(self.count * sum(widths), stored)

    def whole(self) -> Slice:
        """Give all rows as they are stored."""
        return Slice(0, self.count, self.file.read(columns=self._read_columns()))

    def _read_columns(self) -> list[str] | None:
        extra = [CHANGE_TYPE] if self.piece.is_change_file else []
        names = sorted({*self._stored.values(), *extra})
        # A dot in a name would be read as a path into a struct.
        return names if not any("." in name for name in names) else None

    def slices(self) -> Iterator[Slice]:
        """Yield the rows as they are stored."""
        columns = self._read_columns()
        if columns == [] or self.count <= _AT_ONCE:
            yield self.whole()
            return
        start = 0
        for batch in self.file.iter_batches(batch_size=_SLICE, columns=columns):
            yield Slice(start, batch.num_rows, pa.Table.from_batches([batch]))
            start += batch.num_rows

    def column(self, part: Slice, field: Field) -> pa.ChunkedArray:
        """Give one column of a slice in the table's type."""
        kind, count = arrow_type(field.type), part.count
        if field.name in self.wanted.partitions:
            value = partition_value(self.piece.partition.get(field.physical), field.type)
            return pad(pa.chunked_array([pa.repeat(pa.scalar(value, kind), count)]), field)
        stored = self._stored.get(field.physical)
        return (
            pa.chunked_array([pa.nulls(count, kind)]) if stored is None else conform(part.rows[stored], field)
        )

    @cached_property
    def _stored(self) -> dict[str, str]:
        """Map physical names to the file's own; the case of a name may have changed since it was written."""
        names = self.file.schema_arrow.names
        present, exact = {name.casefold(): name for name in names}, set(names)
        found = {}
        for field in self.wanted.fields:
            physical = field.physical
            stored = physical if physical in exact else present.get(physical.casefold())
            if stored is not None and field.name not in self.wanted.partitions:
                found[physical] = stored
        return found


def _width(kind: pa.DataType) -> int:
    """How many bytes a value takes."""
    is_fixed = pa.types.is_primitive(kind) or pa.types.is_decimal(kind)
    return int(kind.bit_width) // 8 if is_fixed else _TEXT_BYTES


@contextmanager
def opened(location: str, piece: Piece, wanted: Wanted) -> Iterator[DataFile]:
    with open_file(location, piece.path) as stream:
        file = pq.ParquetFile(stream, coerce_int96_timestamp_unit="us")
        _refuse_old_calendar(file, wanted)
        yield DataFile(file, piece, wanted)


def empty_rows(names: Sequence[str], fields: Sequence[Field]) -> pa.Table:
    """Give the change of a table that did not change."""
    columns = [pa.field(name, _type_or_null(field)) for name, field in zip(names, fields, strict=True)]
    return pa.schema([*columns, pa.field(WEIGHT, pa.int64())]).empty_table()


def _type_or_null(field: Field) -> pa.DataType:
    try:
        return arrow_type(field.type)
    except UndecodableError:
        return pa.null()


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
