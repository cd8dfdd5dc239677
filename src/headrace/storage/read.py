"""Read the rows of a table of few files with Spark by the files that its log names.

Delta rebuilds its state of a version that it has not seen with three Spark jobs, and every query asks that
state for its files with one more; on a small table these take longer than all else. Our reading of the log
knows the files already, and leaves out those that cannot hold the rows asked for.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.types as pt
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from headrace.catalog import SourceVersion
from headrace.plan.hidden import WEIGHT
from headrace.sources.arrow_types import CHAR_TYPE, UndecodableError
from headrace.sources.difference import whole_table
from headrace.sources.driver import counted, read_rows
from headrace.sources.frames import read_files, spark_schema
from headrace.sources.log import DeltaLog
from headrace.sources.parquet import Wanted, empty_rows
from headrace.sources.search import read_matching
from headrace.sources.state import TableState
from headrace.sql.names import TableName
from headrace.storage.apply.change import Located
from headrace.storage.apply.search import find_rows
from headrace.storage.apply.skipping import FileFilter
from headrace.storage.data_files import rows_at as file_rows
from headrace.storage.data_files import visible_rows
from headrace.storage.identity import Integers
from headrace.storage.reach import driver_obstacle, reading_obstacle
from headrace.storage.snapshot import Snapshot, UnreadableLog, read_snapshot
from headrace.storage.table import Storage

# Spark takes these in a path for a pattern or a code.
_PATTERNS = set("*?[]{}%\\")
# Beyond this Spark lists files with a job of its own.
_LISTED_AT_ONCE = "spark.sql.sources.parallelPartitionDiscovery.threshold"
_MOST_FILES = 32
# What the driver reads whole, to join a change with it.
_SMALL_BYTES = 16 << 20
_SMALL_ROWS = 500_000
# The rows found that the driver holds; what it makes of them takes a few times as much.
_FOUND_BYTES = 256 << 20
# What the driver looks through for the rows of some keys, compressed.
_SEARCHED_BYTES = 64 << 20
# What the driver looks through for the rows that a change can meet, compressed, column by column.
_SEARCHED_COLUMN_BYTES = 256 << 20
_SEARCHED_TABLE_BYTES = 2 << 30
_ENDS = ("minValues", "maxValues")
# The state of a table with a checkpoint beyond this is Spark's to read.
_LARGEST_CHECKPOINT = 1 << 20


def rows_of_keys(
    spark: SparkSession, storage: Storage, keys: pa.Table, columns: Sequence[str]
) -> DataFrame | None:
    """Give a frame that holds all rows of the given keys, and others; None where only Delta can read them."""
    return _frame(spark, storage.log, FileFilter(keys, columns), None)


@dataclass(frozen=True)
class StoredRows:
    """Rows of a stream table, one file after the other, and where each is stored."""

    rows: pa.Table
    version: int
    positions: Mapping[str, Integers]

    def located(self, places: Integers) -> Located:
        """Say where some of these rows are, given by their places among all, in order."""
        found, start = {}, 0
        for path, positions in self.positions.items():
            first, last = np.searchsorted(places, [start, start + len(positions)])
            if last > first:
                found[path] = positions[places[first:last] - start]
            start += len(positions)
        return Located(self.version, found)


def stored_rows(storage: Storage, keys: pa.Table, columns: Sequence[str], *, most: int) -> StoredRows | None:
    """Read all rows of the given keys into Arrow; None where that is for Spark, or `most` is exceeded."""
    try:
        snapshot = read_snapshot(storage.log)
    except UnreadableLog:
        return None
    if driver_obstacle(snapshot):
        return None
    schema = pa.schema([snapshot.arrow_schema.field(column) for column in columns])
    # Spark takes -0.0 for 0.0 in a key, and looks into nested values.
    if any(pt.is_floating(kind) or pt.is_nested(kind) for kind in schema.types):
        return None
    wanted = keys.select(list(columns)).cast(schema)
    if sum(file.size for file in FileFilter(wanted, columns).select(snapshot.files)) > _SEARCHED_BYTES:
        return None
    # Any number of rows may have one key.
    wanted = wanted.append_column(WEIGHT, pa.array(np.full(len(wanted), most + 1, dtype=np.int64)))
    positions = find_rows(snapshot, wanted, columns).positions if len(wanted) else {}
    if sum(map(len, positions.values())) > most:
        return None
    parts = [file_rows(snapshot, path, places) for path, places in positions.items()]
    rows = pa.concat_tables(parts) if parts else snapshot.arrow_schema.empty_table()
    return StoredRows(rows, snapshot.version, positions) if rows.nbytes <= _FOUND_BYTES else None


def all_rows(storage: Storage, *, most: int) -> pa.Table | None:
    """Read a whole stream table into Arrow; None where that is for Spark, or `most` rows are exceeded."""
    try:
        snapshot = read_snapshot(storage.log)
        if driver_obstacle(snapshot) or snapshot.rows > most or snapshot.size > _SMALL_BYTES:
            return None
        parts = [visible_rows(snapshot, file) for file in snapshot.files]
    except (UnreadableLog, FileNotFoundError):
        return None
    rows = pa.concat_tables([snapshot.arrow_schema.empty_table(), *parts])
    return rows if rows.num_rows <= most else None


def rows_at(spark: SparkSession, storage: Storage, name: TableName, version: int) -> DataFrame:
    """Give all rows of a version, by its files where it is the newest and they are few."""
    frame = _frame(spark, storage.log, None, version)
    return spark.sql(f"SELECT * FROM {name.sql} VERSION AS OF {version}") if frame is None else frame


def source_rows(spark: SparkSession, log: DeltaLog, at: SourceVersion) -> DataFrame | None:
    """Give all rows of a source at its newest version; None for another version, or where Delta must read."""
    return _frame(spark, log, None, at.version, at.table_id) if _has_small_log(log, at.version) else None


def _has_small_log(log: DeltaLog, version: int) -> bool:
    """Tell whether the driver may read all that a log says of a version."""
    if "://" in log.location:
        return False
    checkpoint = log.newest_checkpoint(version)
    names = checkpoint[1] if checkpoint is not None else []
    return sum(os.path.getsize(f"{log.location}/_delta_log/{name}") for name in names) <= _LARGEST_CHECKPOINT


def small_table(
    log: DeltaLog, at: SourceVersion, columns: Sequence[str]
) -> tuple[pa.Table, StructType] | None:
    """Read columns of a small source at a version into Arrow; None where it is not that."""
    snapshot = _at(log, at)
    if snapshot is None:
        return None
    whole = whole_table((file.add for file in snapshot.files), snapshot.version)
    if whole.bytes > _SMALL_BYTES or len(whole.pieces) > _MOST_FILES:
        return None
    try:
        if counted(log.location, whole).rows_read > _SMALL_ROWS:
            return None
        wanted = _wanted(snapshot, columns)
        rows = read_rows(log.location, whole, wanted)
    except (UndecodableError, FileNotFoundError):
        return None
    return rows.drop_columns([WEIGHT]), spark_schema(columns, wanted.fields)


def searchable(log: DeltaLog, at: SourceVersion, columns: Sequence[str], *, most: int) -> Searchable | None:
    """Open a source for looking rows up in it; None where only Spark can read it, or should."""
    snapshot = _at(log, at)
    if snapshot is None or snapshot.size > _SEARCHED_TABLE_BYTES or not columns:
        return None
    try:
        wanted = _wanted(snapshot, columns)
    except UndecodableError:
        return None
    # How Spark compares CHAR depends on the table being named itself, and Arrow has no VARIANT.
    if any(CHAR_TYPE in field.metadata or "variant" in str(field.type) for field in wanted.fields):
        return None
    return Searchable(snapshot, wanted, most)


class Searchable:
    """A version of a source, looked through by Arrow on the driver."""

    def __init__(self, snapshot: Snapshot, wanted: Wanted, most: int) -> None:
        self._snapshot, self._wanted, self._most = snapshot, wanted, most
        self._pieces = whole_table((file.add for file in snapshot.files), snapshot.version).pieces
        self.schema = StructType(spark_schema(wanted.names, wanted.fields).fields[:-1])
        self.arrow_schema = empty_rows(wanted.names, wanted.fields).schema
        self.count = snapshot.rows

    def rows(self, tests: Mapping[str, pa.Array]) -> pa.Table | None:
        """Give the rows whose columns all have one of the values, with their places, if they are few."""
        files = list(self._snapshot.files)
        for name, values in tests.items():
            physical = self._wanted.field(name).physical
            files = FileFilter(pa.table({physical: values}), [physical]).select(files) if len(values) else []
        paths = {file.path for file in files}
        pieces = {number: piece for number, piece in enumerate(self._pieces) if piece.path in paths}
        try:
            found = read_matching(
                self._snapshot.location,
                pieces,
                self._wanted,
                tests,
                most_bytes=_SEARCHED_COLUMN_BYTES,
            )
        except (UndecodableError, OSError, pa.ArrowException):
            return None
        if found is None or found.num_rows > self._most or found.nbytes > _FOUND_BYTES:
            return None
        return found

    def expected(self, tests: Mapping[str, pa.Array]) -> float:
        """Estimate how many rows have the values, by the range of each column as if all were as frequent."""
        shares = [len(values) / self._span(name) for name, values in tests.items()]
        return self._snapshot.rows * min([1.0, *shares])

    def _span(self, name: str) -> int:
        """How many values an integer column may have; a column of another type is taken for a key."""
        physical = self._wanted.field(name).physical
        ends = [file.stats.get(end) or {} for file in self._snapshot.files for end in _ENDS]
        known = [bound for bounds in ends if isinstance(bound := bounds.get(physical), int)]
        return max(known) - min(known) + 1 if known else max(self._snapshot.rows, 1)


def _at(log: DeltaLog, at: SourceVersion) -> Snapshot | None:
    """Give a version as the log tells it, where the driver may read all of that."""
    try:
        if not _has_small_log(log, at.version):
            return None
        snapshot = read_snapshot(log, at.version)
    except (UnreadableLog, FileNotFoundError):
        # Also where somebody sweeps the log.
        return None
    is_it = at.version == snapshot.version and at.table_id == snapshot.metadata["id"]
    return snapshot if is_it else None


def _wanted(snapshot: Snapshot, columns: Sequence[str]) -> Wanted:
    state = TableState(snapshot.metadata, snapshot.protocol)
    return Wanted.of(state, columns, [field for name in columns if (field := state.field(name)) is not None])


def _frame(
    spark: SparkSession,
    log: DeltaLog,
    wanted: FileFilter | None,
    version: int | None,
    table_id: str | None = None,
) -> DataFrame | None:
    if _PATTERNS & set(log.location):
        return None
    try:
        snapshot = read_snapshot(log)
    except UnreadableLog:
        return None
    if version not in {None, snapshot.version} or table_id not in {None, snapshot.metadata["id"]}:
        return None
    if reading_obstacle(snapshot):
        return None
    files = wanted.select(snapshot.files) if wanted is not None else snapshot.files
    if len(files) > _MOST_FILES and len(files) > int(spark.conf.get(_LISTED_AT_ONCE) or 0):
        return None
    schema = StructType.fromJson(json.loads(snapshot.metadata["schemaString"]))
    if not files:
        return spark.createDataFrame([], schema)
    return read_files(spark, schema, [f"{log.location}/{file.path}" for file in files])
