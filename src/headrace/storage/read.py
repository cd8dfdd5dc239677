"""Read a stream table's own rows with Spark by the files that its log names.

Delta would rebuild its state of a version that the driver has just committed, with Spark jobs of its own; our
own reading of the log knows the files already, and leaves out those that cannot hold the rows asked for.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from headrace.sql.names import TableName
from headrace.storage.apply.skipping import FileFilter
from headrace.storage.reach import driver_obstacle
from headrace.storage.snapshot import UnreadableLog, read_snapshot
from headrace.storage.table import Storage

# Spark takes these in a path for a pattern or a code.
_PATTERNS = set("*?[]{}%\\")
# Beyond this Spark lists files with a job of its own.
_MOST_FILES = 32


def rows_of_keys(
    spark: SparkSession, storage: Storage, keys: pa.Table, columns: Sequence[str]
) -> DataFrame | None:
    """Give a frame that holds all rows of the given keys, and others; None where only Delta can read them."""
    return _frame(spark, storage, FileFilter(keys, columns), None)


def rows_at(spark: SparkSession, storage: Storage, name: TableName, version: int) -> DataFrame:
    """Give all rows of a version, by its files where it is the newest and they are few."""
    frame = _frame(spark, storage, None, version)
    return spark.sql(f"SELECT * FROM {name.sql} VERSION AS OF {version}") if frame is None else frame


def _frame(
    spark: SparkSession, storage: Storage, wanted: FileFilter | None, version: int | None
) -> DataFrame | None:
    if _PATTERNS & set(storage.location):
        return None
    try:
        snapshot = read_snapshot(storage.log)
    except UnreadableLog:
        return None
    if version not in {None, snapshot.version}:
        return None
    if driver_obstacle(snapshot) or any(file.vector for file in snapshot.files):
        return None
    files = wanted.select(snapshot.files) if wanted is not None else snapshot.files
    if len(files) > _MOST_FILES:
        return None
    schema = StructType.fromJson(json.loads(snapshot.metadata["schemaString"]))
    if not files:
        return spark.createDataFrame([], schema)
    return spark.read.schema(schema).parquet(*(f"{storage.location}/{file.path}" for file in files))
