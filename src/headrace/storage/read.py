"""Read the rows of a table of few files with Spark by the files that its log names.

Delta rebuilds its state of a version that it has not seen with three Spark jobs, and every query asks that
state for its files with one more; on a small table these take longer than all else. Our reading of the log
knows the files already, and leaves out those that cannot hold the rows asked for.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.types as pt
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from headrace.catalog import SourceVersion
from headrace.plan.hidden import WEIGHT
from headrace.sources.arrow_types import UndecodableError
from headrace.sources.difference import whole_table
from headrace.sources.driver import Wanted, read_rows
from headrace.sources.frames import spark_schema
from headrace.sources.log import DeltaLog
from headrace.sources.state import TableState
from headrace.sql.names import TableName
from headrace.storage.apply.search import find_rows
from headrace.storage.apply.skipping import FileFilter
from headrace.storage.data_files import rows_at as file_rows
from headrace.storage.reach import driver_obstacle, reading_obstacle
from headrace.storage.snapshot import UnreadableLog, read_snapshot
from headrace.storage.table import Storage

# Spark takes these in a path for a pattern or a code.
_PATTERNS = set("*?[]{}%\\")
# Beyond this Spark lists files with a job of its own.
_MOST_FILES = 32
# What the driver reads whole, to join a change with it.
_SMALL_BYTES = 16 << 20
_SMALL_ROWS = 500_000
# What the driver looks through for the rows of some keys, compressed.
_SEARCHED_BYTES = 64 << 20
# The state of a table with a checkpoint beyond this is Spark's to read.
_LARGEST_CHECKPOINT = 1 << 20


def rows_of_keys(
    spark: SparkSession, storage: Storage, keys: pa.Table, columns: Sequence[str]
) -> DataFrame | None:
    """Give a frame that holds all rows of the given keys, and others; None where only Delta can read them."""
    return _frame(spark, storage.log, FileFilter(keys, columns), None)


def stored_rows(storage: Storage, keys: pa.Table, columns: Sequence[str], *, most: int) -> pa.Table | None:
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
    return pa.concat_tables(parts) if parts else snapshot.arrow_schema.empty_table()


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
    """Read columns of a small source at its newest version into Arrow; None where it is not that."""
    if not _has_small_log(log, at.version):
        return None
    try:
        snapshot = read_snapshot(log)
    except UnreadableLog:
        return None
    if at.version != snapshot.version or at.table_id != snapshot.metadata["id"]:
        return None
    whole = whole_table((file.add for file in snapshot.files), snapshot.version)
    if whole.bytes > _SMALL_BYTES or whole.rows_read > _SMALL_ROWS or len(whole.pieces) > _MOST_FILES:
        return None
    state = TableState(snapshot.metadata, snapshot.protocol)
    fields = [field for name in columns if (field := state.field(name)) is not None]
    try:
        rows = read_rows(log.location, whole, Wanted.of(state, columns, fields))
    except (UndecodableError, FileNotFoundError):
        return None
    return rows.drop_columns([WEIGHT]), spark_schema(columns, fields)


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
    if len(files) > _MOST_FILES:
        return None
    schema = StructType.fromJson(json.loads(snapshot.metadata["schemaString"]))
    if not files:
        return spark.createDataFrame([], schema)
    return spark.read.schema(schema).parquet(*(f"{log.location}/{file.path}" for file in files))
