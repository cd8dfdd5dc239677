"""Parquet files of a stream table: written with the statistics that let readers skip them, and read back."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyarrow.types as pt

from headrace.sources.search import Key, decoded_columns
from headrace.storage.identity import Integers, distinct_count
from headrace.storage.layout import INDEXED_COLUMNS, ROW_GROUP_ROWS, STATISTICS_PREFIX
from headrace.storage.snapshot import Action, DataFile, Snapshot
from headrace.storage.vectors import read_vector

CHANGE_FOLDER = "_change_data"

# Rows that tell whether a column repeats itself.
_SAMPLE_ROWS = 4096
# The next refresh is likely to read a small file again that this one writes.
_KEPT_BYTES = 32 << 20
_STORED = "stored"


def write_data_file(location: str, rows: pa.Table, *, data_change: bool = True) -> dict[str, Any]:
    """Write one data file and give the action that would add it; without a commit nobody sees it."""
    path = f"part-00000-{uuid.uuid4()}-c000.zstd.parquet"
    is_kept = rows.nbytes <= _KEPT_BYTES
    if is_kept:
        # What is copied from refresh to refresh would fall into more pieces with each.
        rows = rows.combine_chunks()
    size = _write(Path(location) / path, rows)
    for name, key in _keys(Path(location) / path, rows.schema).items() if is_kept else ():
        decoded_columns.keep(key, rows[name])
    return {
        "path": path,
        "partitionValues": {},
        "size": size,
        "modificationTime": _now(),
        "dataChange": data_change,
        "stats": file_statistics(rows),
    }


def write_change_file(location: str, rows: pa.Table) -> dict[str, Any]:
    """Write rows with their `_change_type` for readers of the change feed."""
    path = f"{CHANGE_FOLDER}/cdc-00000-{uuid.uuid4()}.c000.zstd.parquet"
    (Path(location) / CHANGE_FOLDER).mkdir(exist_ok=True)
    size = _write(Path(location) / path, rows)
    return {"path": path, "partitionValues": {}, "size": size, "dataChange": False}


def removal(add: Action, *, data_change: bool = True) -> dict[str, Any]:
    """Give the action that removes a live file."""
    kept = {key: add[key] for key in ("path", "partitionValues", "size", "deletionVector") if add.get(key)}
    kept.setdefault("partitionValues", {})
    return kept | {"deletionTimestamp": _now(), "dataChange": data_change, "extendedFileMetadata": True}


def read_columns(snapshot: Snapshot, path: str, columns: list[str]) -> pa.Table:
    """Read columns of one file in the table's types; a column younger than the file is NULL.

    They are kept for a while: one refresh looks at a file to find rows and again to copy it, and the next
    one finds most files as they were.
    """
    schema = pa.schema([snapshot.arrow_schema.field(column) for column in columns])
    keys = _keys(Path(snapshot.location) / path, schema)
    found = {name: decoded_columns.get(key) for name, key in keys.items()}
    missing = [field for field in schema if found[field.name] is None]
    if missing:
        rows = _decoded(Path(snapshot.location) / path, pa.schema(missing))
        for field in missing:
            found[field.name] = rows[field.name]
            decoded_columns.keep(keys[field.name], rows[field.name])
    return pa.table([found[name] for name in columns], schema=schema)


def forget_columns(location: str, paths: Collection[str]) -> None:
    """Keep no columns of files that a commit has removed."""
    if not paths:
        return
    gone = {str(Path(location) / path) for path in paths}
    decoded_columns.forget_those(lambda key: key[0] == _STORED and key[1] in gone)


def _decoded(path: Path, schema: pa.Schema) -> pa.Table:
    # Spark may write times as INT96, which Arrow would take for nanoseconds and overflow.
    file = pq.ParquetFile(path, pre_buffer=True, coerce_int96_timestamp_unit="us")
    present = [name for name in schema.names if name in file.schema_arrow.names]
    rows = file.read(columns=present)
    arrays = [rows[f.name] if f.name in present else pa.nulls(rows.num_rows, f.type) for f in schema]
    return pa.table(arrays, names=schema.names).cast(schema)


def _keys(path: Path, schema: pa.Schema) -> dict[str, Key]:
    """What tells the columns of a file from all others."""
    stat = path.stat()
    return {
        field.name: (_STORED, str(path), stat.st_mtime_ns, stat.st_size, field.name, str(field.type))
        for field in schema
    }


def rows_at(snapshot: Snapshot, path: str, positions: Integers) -> pa.Table:
    """Read the rows of a file at given positions."""
    return read_columns(snapshot, path, snapshot.arrow_schema.names).take(pa.array(positions))


def visible_rows(snapshot: Snapshot, file: DataFile, *, hide: Integers | None = None) -> pa.Table:
    """Read a file without the rows that its vector hides, and without further ones."""
    rows = read_columns(snapshot, file.path, snapshot.arrow_schema.names)
    keep = np.ones(rows.num_rows, dtype=np.bool_)
    if hide is not None:
        keep[hide] = False
    if file.vector is not None:
        keep[read_vector(snapshot.location, file.vector)] = False
    return rows if keep.all() else rows.filter(pa.array(keep))


def stored_rows(location: str, add: Action) -> int:
    """Count the rows of a file, hidden ones too."""
    stated = json.loads(add.get("stats") or "{}").get("numRecords")
    return int(stated if stated is not None else pq.read_metadata(Path(location) / add["path"]).num_rows)


def conform(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Bring rows into the table's columns and types, refusing any loss."""
    return rows.select(schema.names).cast(schema)


def file_statistics(rows: pa.Table) -> str:
    """Write Delta's statistics of a file: how many rows, and per column the bounds and the NULLs.

    >>> file_statistics(pa.table({"id": [3, 1], "name": [None, "x"]}))
    '{"numRecords":2,"minValues":{"id":1,"name":"x"},"maxValues":{"id":3,"name":"x"},"nullCount":{"id":0,"name":1}}'
    """
    low: dict[str, Any] = {}
    high: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    for name in rows.column_names[:INDEXED_COLUMNS]:
        column = rows[name]
        if pt.is_nested(column.type):
            continue
        nulls[name] = column.null_count
        for bounds in _bounds(column):
            low[name], high[name] = bounds
    body = {"numRecords": rows.num_rows, "minValues": low, "maxValues": high, "nullCount": nulls}
    return _to_json(body)


def _write(path: Path, rows: pa.Table) -> int:
    pq.write_table(
        rows,
        path,
        # At its lowest level a third smaller than Snappy for a tenth more time.
        compression="zstd",
        compression_level=1,
        use_dictionary=_repetitive(rows),
        row_group_size=ROW_GROUP_ROWS,
        store_schema=False,
    )
    return path.stat().st_size


def _repetitive(rows: pa.Table) -> list[str]:
    """Name the columns worth a dictionary: building one for distinct values doubles the time of writing.

    >>> _repetitive(pa.table({"id": range(100), "region": ["north", "south"] * 50}))
    ['region']
    """
    sample = rows.slice(0, _SAMPLE_ROWS)
    return [
        name
        for name in rows.column_names
        if not pt.is_nested(sample[name].type) and distinct_count(sample[name]) * 4 <= sample.num_rows
    ]


def _now() -> int:
    return int(time.time() * 1000)


def _bounds(column: pa.ChunkedArray) -> Iterator[tuple[Any, Any]]:
    """Yield the bounds of a column, or nothing where it has none that every reader compares alike."""
    if not _has_bounds(column.type) or column.null_count == len(column):
        return
    if pt.is_floating(column.type) and not pc.all(pc.is_finite(column)).as_py():
        return
    if pt.is_date(column.type) or pt.is_timestamp(column.type):
        # Spark knows years beyond 9999, and the last moment of that one rounds up to the next.
        with suppress(OverflowError):
            yield _time_bounds(column)
        return
    found = pc.min_max(column)
    low, high = found["min"].as_py(), found["max"].as_py()
    if isinstance(low, str):
        yield low[:STATISTICS_PREFIX], _cut_up(high)
    else:
        yield low, high


def _has_bounds(type_: pa.DataType) -> bool:
    ordered = (pt.is_integer, pt.is_floating, pt.is_decimal, pt.is_date, pt.is_timestamp, pt.is_string)
    return any(is_of(type_) for is_of in ordered)


def _cut_up(text: str) -> str:
    """Shorten an upper bound to one that is still above.

    >>> _cut_up("a" * 40) > "a" * 40
    True
    """
    return text if len(text) <= STATISTICS_PREFIX else text[:STATISTICS_PREFIX] + "\U0010ffff"


def _time_bounds(column: pa.ChunkedArray) -> tuple[str, str]:
    """Write bounds in days, or in milliseconds, the upper one rounded up, as Delta keeps no finer ones."""
    if pt.is_date(column.type):
        days = pc.min_max(column.cast(pa.int32()))
        return _day(days["min"].as_py()), _day(days["max"].as_py())
    found = pc.min_max(column.cast(pa.int64()))
    zone = "Z" if column.type.tz else ""
    low, high = found["min"].as_py() // 1000, -(-found["max"].as_py() // 1000)
    return _milliseconds(low) + zone, _milliseconds(high) + zone


def _day(value: int) -> str:
    return (date(1970, 1, 1) + timedelta(days=value)).isoformat()


def _milliseconds(value: int) -> str:
    moment = datetime(1970, 1, 1) + timedelta(milliseconds=value)  # noqa: DTZ001 - the caller names the zone
    return moment.isoformat(timespec="milliseconds")


def _to_json(body: Mapping[str, Any]) -> str:
    """Write decimals as the numbers they are, digit by digit.

    >>> _to_json({"x": Decimal("12345678901234567890.10")})
    '{"x":12345678901234567890.10}'
    """
    marks: dict[str, str] = {}

    def encode(value: Any) -> str:
        if isinstance(value, Decimal):
            mark = f"@{uuid.uuid4().hex}@"
            marks[f'"{mark}"'] = format(value, "f")
            return mark
        if isinstance(value, date):
            return value.isoformat()
        raise TypeError(f"{type(value).__name__} has no place in statistics")

    text = json.dumps(body, separators=(",", ":"), ensure_ascii=False, default=encode)
    for mark, number in marks.items():
        text = text.replace(mark, number)
    return text
