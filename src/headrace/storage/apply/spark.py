"""Apply a change with Spark: for what is large, and for tables that only Spark writes exactly."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce

from delta.tables import DeltaTable
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from delta import exceptions
from headrace.sources.log import Commit
from headrace.sql.names import quote
from headrace.storage.apply.change import WEIGHT
from headrace.storage.apply.weights import WeightedFrame, repeated, same_rows, unsettled
from headrace.storage.layout import rows_per_file
from headrace.storage.marker import APP_ID, Marker
from headrace.storage.table import Storage

_LOST = "__hr_lost"
_COMMIT_NOTE = "spark.databricks.delta.commitInfo.userMetadata"
_TRANSACTION = "spark.databricks.delta.write"
_MATERIALIZE = "spark.databricks.delta.merge.materializeSource"

# What Delta raises where another commit came between; in Python the first is no base class of the others.
CONFLICTS = (
    exceptions.DeltaConcurrentModificationException,
    exceptions.ConcurrentAppendException,
    exceptions.ConcurrentDeleteDeleteException,
    exceptions.ConcurrentDeleteReadException,
    exceptions.ConcurrentTransactionException,
    exceptions.ConcurrentWriteException,
    exceptions.MetadataChangedException,
    exceptions.ProtocolChangedException,
)

Apply = Callable[[Storage, WeightedFrame, Marker, int], Commit]


def append_by_spark(storage: Storage, change: WeightedFrame, marker: Marker, version: int) -> Commit:
    """Add the gained rows."""
    _save(storage, repeated(change.gains), marker, version, mode="append")
    return storage.commit_of(marker)


def rewrite_by_spark(storage: Storage, change: WeightedFrame, marker: Marker, version: int) -> Commit:
    """Write the table anew from itself without what is lost and with what is gained."""
    stored = change.stored(storage, version)
    kept = stored.alias("t").join(
        change.losses.alias("s"), same_rows(change.match, change.schema), "left_anti"
    )
    with unsettled(storage, change, version) as survivors:
        parts = [kept, repeated(change.gains), *([repeated(survivors)] if survivors is not None else [])]
        rows = reduce(DataFrame.unionAll, parts)
        _save(storage, rows, marker, version, mode="overwrite", rows=storage.row_count())
    return storage.commit_of(marker)


def merge_by_spark(storage: Storage, change: WeightedFrame, marker: Marker, version: int) -> Commit:
    """Copy only the files that hold lost rows, by MERGE."""
    with unsettled(storage, change, version) as survivors:
        gained = change.gains if survivors is None else change.gains.unionAll(survivors)
        source = change.losses.drop(WEIGHT).withColumn(_LOST, F.lit(True))
        source = source.unionAll(repeated(gained).withColumn(_LOST, F.lit(False)))
        session = _session_with_note(change.spark, marker, version)
        # MERGE reads its source twice; it refuses a cached one that it has not copied.
        is_cached = change.is_held or survivors is not None
        session.conf.set(_MATERIALIZE, "all" if is_cached else "none")
        condition = same_rows(change.match, change.schema) & F.col(f"s.{_LOST}") & _within(change)
        values: dict[str, str | Column] = {quote(name): F.col(f"s.{quote(name)}") for name in change.columns}
        merge = DeltaTable.forPath(session, storage.location).alias("t").merge(source.alias("s"), condition)
        merge.whenMatchedDelete().whenNotMatchedInsert(~F.col(f"s.{_LOST}"), values).execute()
    return storage.commit_of(marker)


def _save(
    storage: Storage, frame: DataFrame, marker: Marker, version: int, *, mode: str, rows: int = 0
) -> None:
    writer = frame.write.format("delta").mode(mode).option("userMetadata", marker.encode())
    writer = writer.option("maxRecordsPerFile", rows_per_file(rows))
    # Of two writers that carry this identifier and overlap, Delta lets one through.
    writer.option("txnAppId", APP_ID).option("txnVersion", version + 1).save(storage.location)


def _session_with_note(spark: SparkSession, marker: Marker, version: int) -> SparkSession:
    """Make a session for one MERGE: its commit note is a session's setting, and threads share sessions."""
    session = SparkSession(spark.sparkContext, spark._jsparkSession.cloneSession())
    session.conf.set(_COMMIT_NOTE, marker.encode())
    session.conf.set(f"{_TRANSACTION}.txnAppId", APP_ID)
    session.conf.set(f"{_TRANSACTION}.txnVersion", str(version + 1))
    return session


def _within(change: WeightedFrame) -> Column:
    """Say between which values the lost rows lie, so that MERGE skips files by their statistics."""
    ranges = [
        F.col(f"t.{quote(name)}").between(F.lit(low), F.lit(high))
        for name, (low, high) in change.bounds.items()
    ]
    return reduce(lambda a, b: a & b, ranges, F.lit(True))
