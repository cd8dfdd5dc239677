"""The exact net change of a Delta table between two versions, cheap when little changed."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from headrace.catalog import SourceVersion
from headrace.errors import HeadraceError
from headrace.plan.hidden import WEIGHT
from headrace.sources.arrow_types import UndecodableError
from headrace.sources.consolidate import consolidate
from headrace.sources.delta import DeltaSource
from headrace.sources.difference import Difference, commit_difference, net_difference
from headrace.sources.driver import counted, read_rows
from headrace.sources.feeds import has_exact_feed, usable_feeds
from headrace.sources.frames import arrow_frame, spark_schema
from headrace.sources.log import Commit
from headrace.sources.parquet import Wanted, empty_rows
from headrace.sources.spark_changes import consolidate_frame, read_feed, read_files
from headrace.sources.state import Field, TableState
from headrace.sources.stated import stated_rows

FEED = "change feed"
FILES = "file difference"
DRIVER = "driver"
SPARK = "spark"
# Commit by commit fewer rows are netted out, so that a few bytes more to read are no loss.
_WORTH_IT = 1 << 20
# Of so many files the ends are read for an estimate where the log does not say how many rows they have.
_FEW_FILES = 64


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What the driver may read by itself; beyond, or where `driver` is false, Spark reads."""

    rows: int = 24_000_000
    bytes: int = 512 << 20
    kept: int = 2_500_000
    """Rows of the change itself, of which the driver holds all; files it reads by slices."""
    driver: bool = True
    feed: bool = True


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """How much a change touches, told by the log alone."""

    gained: int
    lost: int
    bytes: int
    files: int
    only_adds: bool

    @property
    def rows(self) -> int:
        return self.gained + self.lost

    @property
    def is_empty(self) -> bool:
        return self.files == 0


@dataclass(frozen=True, kw_only=True)
class SourceChange:
    """A signed multiset, columns and `__hr_weight`: Arrow rows where it is small, else a Spark frame."""

    columns: tuple[str, ...]
    rows: pa.Table | None
    frame: DataFrame | None
    gained: int
    lost: int
    only_adds: bool
    method: str
    place: str
    schema: StructType
    reason: str = ""

    @property
    def is_empty(self) -> bool:
        """Tell that nothing changed; of a change in Spark this is known only where no file was touched."""
        return self.rows is not None and self.rows.num_rows == 0

    def to_frame(self, spark: SparkSession) -> DataFrame:
        """Give the change as a Spark frame with the source's types."""
        if self.rows is None:
            assert self.frame is not None
            return self.frame
        return arrow_frame(spark, self.rows, self.schema)

    def over(self, columns: Sequence[str]) -> SourceChange:
        """Give what some of its columns gained and lost, of a change that the driver holds."""
        assert self.rows is not None
        rows = consolidate(self.rows.select([*columns, WEIGHT]))
        schema = StructType([self.schema[name] for name in (*columns, WEIGHT)])
        return _held_change(rows, columns, schema, self.method)


@dataclass(frozen=True)
class _Range:
    """Two versions of one table and the commits between them."""

    source: DeltaSource
    old: int
    new: int
    commits: tuple[Commit, ...]
    before: TableState | None
    after: TableState

    @property
    def feed_covers_all(self) -> bool:
        """Tell whether every commit wrote its changes, under one schema, so that Spark can read the feed."""
        if self.before is None:
            return False
        states = [self.before, *(self.before.after(commit) for commit in self.commits if commit.metadata)]
        schemas = {state.metadata["schemaString"] for state in states}
        exact = all(has_exact_feed(commit) for commit in self.commits if commit.change_files)
        return exact and all(state.has_change_feed for state in states) and len(schemas) == 1


def read_changes(
    spark: SparkSession,
    source: DeltaSource,
    old: SourceVersion,
    new: SourceVersion,
    columns: Sequence[str],
    *,
    limits: Limits | None = None,
) -> SourceChange:
    """Read what `columns` of a table gained and lost from one version to another, netted out."""
    limits = limits or Limits()
    found = held_changes(source, old, new, columns, limits=limits)
    if isinstance(found, SourceChange):
        return found
    return changes_in_spark(spark, source, old, new, columns, reason=found, feed=limits.feed)


def held_changes(
    source: DeltaSource,
    old: SourceVersion,
    new: SourceVersion,
    columns: Sequence[str],
    *,
    limits: Limits | None = None,
) -> SourceChange | str:
    """Read the same on the driver, or say why that is for Spark."""
    limits = limits or Limits()
    span = _range(source, old, new)
    fields = _fields(source, span.after, columns)
    best = _cheapest(span, fields, feed=limits.feed)
    if not best.pieces:
        return _empty_change(columns, fields)
    if not limits.driver:
        return "the driver may not read sources"
    try:
        best = counted(source.location, best)
        return _why_too_much(best, limits) or _read_on_driver(span, best, columns, fields)
    except UndecodableError as undecodable:
        return str(undecodable)
    except FileNotFoundError as gone:
        raise history_lost(source, str(gone)) from gone


def changes_in_spark(
    spark: SparkSession,
    source: DeltaSource,
    old: SourceVersion,
    new: SourceVersion,
    columns: Sequence[str],
    *,
    reason: str,
    feed: bool = True,
) -> SourceChange:
    """Leave the same to Spark, for a reason."""
    span = _range(source, old, new)
    fields = _fields(source, span.after, columns)
    return _read_in_spark(spark, span, columns, fields, feed=feed, reason=reason)


def estimate_changes(source: DeltaSource, old: SourceVersion, new: SourceVersion) -> Estimate:
    """Tell how much lies between two versions, from the log alone."""
    span = _range(source, old, new)
    best = _cheapest(span, (), feed=True)
    stated = stated_rows(span.commits)
    if not best.is_counted and len(best.pieces) <= _FEW_FILES:
        with suppress(OSError, pa.ArrowException):
            best = counted(source.location, best)
    gained, lost = best.rows()
    # By the size of a file nothing is known of its rows: a column of one value takes no room.
    if stated is not None and (sum(stated) < gained + lost or not best.is_counted):
        gained, lost = stated
    return Estimate(
        gained=gained,
        lost=lost,
        bytes=best.bytes,
        files=sum(1 for _ in best.by_path()),
        only_adds=best.only_adds,
    )


def _range(source: DeltaSource, old: SourceVersion, new: SourceVersion) -> _Range:
    if old.table_id != new.table_id:
        raise history_lost(source, "the table was created anew")
    if new.version < old.version:
        raise history_lost(source, f"version {new.version} is older than version {old.version}")
    commits = tuple(source.log.commits(old.version, new.version))
    kept = tuple(commit for commit in commits if commit is not None)
    if len(kept) < len(commits):
        raise history_lost(source, "commits after it are gone from the log")
    before = source.state_or_none(old.version)
    return _Range(source, old.version, new.version, kept, before, source.state(new.version))


def _fields(source: DeltaSource, state: TableState, columns: Sequence[str]) -> tuple[Field, ...]:
    found = tuple(state.field(column) for column in columns)
    missing = [name for name, field in zip(columns, found, strict=True) if field is None]
    if missing:
        raise HeadraceError(
            "schema_changed",
            f"{source.name} has no column {', '.join(missing)}.",
            hint="Bring the column back, or change the query with ALTER STREAM TABLE … AS.",
        )
    return tuple(field for field in found if field is not None)


def _cheapest(span: _Range, fields: Sequence[Field], *, feed: bool) -> Difference:
    """Choose the sum that reads clearly fewer bytes, of those whose files are all there."""
    feeds = usable_feeds(span.before, span.after, span.commits, fields) if feed else frozenset[int]()
    by_commit, net = commit_difference(span.commits, feeds=feeds), net_difference(span.commits)
    net_is_cheaper = net.bytes + _WORTH_IT < by_commit.bytes
    for difference in (net, by_commit) if net_is_cheaper else (by_commit, net):
        if not difference.missing(span.source.location):
            return difference
    raise history_lost(span.source, "files that it needs were vacuumed")


def _why_too_much(difference: Difference, limits: Limits) -> str:
    """Say what of a difference is beyond the driver, all of whose files were counted."""
    rows = difference.rows_read
    if rows > limits.rows:
        return f"{rows:,} rows to read are more than {limits.rows:,}"
    if difference.bytes > limits.bytes:
        return f"{difference.bytes:,} bytes to read are more than {limits.bytes:,}"
    held = sum(difference.rows())
    if held > limits.kept:
        return f"{held:,} rows to net out are more than {limits.kept:,}"
    return ""


def _read_on_driver(
    span: _Range, difference: Difference, columns: Sequence[str], fields: Sequence[Field]
) -> SourceChange:
    wanted = Wanted.of(span.after, columns, fields)
    rows = consolidate(read_rows(span.source.location, difference, wanted))
    method = FEED if difference.change_files else FILES
    return _held_change(rows, columns, spark_schema(columns, fields), method)


def _held_change(rows: pa.Table, columns: Sequence[str], schema: StructType, method: str) -> SourceChange:
    """Describe a change of which the driver holds all rows, netted out."""
    weights = rows[WEIGHT]
    gained = pc.sum(pc.if_else(pc.greater(weights, 0), weights, 0)).as_py() or 0
    lost = pc.sum(pc.if_else(pc.less(weights, 0), pc.negate(weights), 0)).as_py() or 0
    return SourceChange(
        columns=tuple(columns),
        rows=rows,
        frame=None,
        gained=gained,
        lost=lost,
        only_adds=lost == 0,
        method=method,
        place=DRIVER,
        schema=schema,
    )


def _read_in_spark(
    spark: SparkSession,
    span: _Range,
    columns: Sequence[str],
    fields: Sequence[Field],
    *,
    feed: bool,
    reason: str,
) -> SourceChange:
    best = _cheapest(span, fields, feed=feed and span.feed_covers_all)
    from_feed = bool(best.change_files)
    if from_feed:
        rows = read_feed(spark, span.source, span.old, span.new)
    else:
        rows = read_files(spark, span.source, best, span.new, columns)
    gained, lost = best.rows()
    return SourceChange(
        columns=tuple(columns),
        rows=None,
        frame=consolidate_frame(rows, columns),
        gained=gained,
        lost=lost,
        only_adds=best.only_adds,
        method=FEED if from_feed else FILES,
        place=SPARK,
        schema=spark_schema(columns, fields),
        reason=reason,
    )


def _empty_change(columns: Sequence[str], fields: Sequence[Field]) -> SourceChange:
    return _held_change(empty_rows(columns, fields), columns, spark_schema(columns, fields), FILES)


def history_lost(source: DeltaSource, reason: str) -> HeadraceError:
    return HeadraceError(
        "history_lost",
        f"The changes of {source.name} since the version last read cannot be told: {reason}.",
        hint="Refresh in full; keep history longer with delta.logRetentionDuration and "
        "delta.deletedFileRetentionDuration.",
    )
