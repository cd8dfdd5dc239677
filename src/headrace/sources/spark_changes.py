"""Reading a difference with Spark: for what is large, and for what the driver cannot decode exactly."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import reduce
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import expr
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DoubleType,
    FloatType,
    MapType,
    StringType,
    StructField,
    StructType,
    VariantType,
)

from headrace.errors import HeadraceError
from headrace.plan.hidden import WEIGHT
from headrace.runtime.session import has_jvm
from headrace.sources.delta import DeltaSource
from headrace.sources.difference import Difference, Piece
from headrace.sources.driver import counted
from headrace.sources.files import is_local, locate
from headrace.sql.names import quote

_KEY = "__hr_key"
# Spark gives the address of a row's file URL-encoded, where a plus stands for itself.
_FILE = "url_decode(replace(_metadata.file_path, '+', '%2B'))"


def read_feed(spark: SparkSession, source: DeltaSource, old: int, new: int) -> DataFrame:
    """Read the change data feed of the versions after `old` up to `new`, weighted."""
    feed = (
        spark.read.format("delta")
        .option("readChangeFeed", "true")
        .option("startingVersion", old + 1)
        .option("endingVersion", new)
        .load(source.location)
    )
    gains = "_change_type IN ('insert', 'update_postimage')"
    return feed.selectExpr("*", f"CASE WHEN {gains} THEN 1L ELSE -1L END AS {WEIGHT}")


def read_files(
    spark: SparkSession, source: DeltaSource, difference: Difference, new: int, columns: Sequence[str]
) -> DataFrame:
    """Read the live rows of a difference's files, weighted."""
    reader = _read_by_jvm if has_jvm(spark) else _read_by_sql
    frames = list(reader(spark, source, difference, new, columns))
    if frames:
        return reduce(DataFrame.unionAll, frames)
    names = ", ".join(quote(column) for column in columns)
    rows = spark.read.format("delta").option("versionAsOf", new).load(source.location)
    return rows.selectExpr(*filter(None, [names]), f"1L AS {WEIGHT}").limit(0)


def _read_by_jvm(
    spark: SparkSession, source: DeltaSource, difference: Difference, new: int, columns: Sequence[str]
) -> Iterator[DataFrame]:
    """Hand Delta the very files to read: a filter on their names would scan the whole table."""
    jvm: Any = spark._jvm
    # Delta makes frames in the active session, and a thread may have another one, or none.
    SparkSession._get_j_spark_session_class(jvm).setActiveSession(spark._jsparkSession)
    log = jvm.org.apache.spark.sql.delta.DeltaLog.forTable(spark._jsparkSession, source.location)
    none = jvm.scala.Option.empty()
    snapshot = log.getSnapshotAt(new, none, none, False)
    for weight, pieces in _by_weight(difference.data_files):
        files = jvm.java.util.ArrayList()
        for piece in pieces:
            files.add(jvm.org.apache.spark.sql.delta.actions.Action.fromJson(add_action(piece)))
        listed = jvm.scala.jdk.javaapi.CollectionConverters.asScala(files).toSeq()
        rows = DataFrame(log.createDataFrame(snapshot, listed, False, none), spark)
        yield _weighted(rows, columns, weight)


def _read_by_sql(
    spark: SparkSession, source: DeltaSource, difference: Difference, _: int, columns: Sequence[str]
) -> Iterator[DataFrame]:
    """Read each file at a version that shows it; Spark Connect offers no other way to single files out."""
    groups: dict[tuple[int, int], list[Piece]] = {}
    for piece in counted(source.location, difference).data_files:
        groups.setdefault((piece.version, piece.weight), []).append(piece)
    for (version, weight), pieces in groups.items():
        rows = spark.read.format("delta").option("versionAsOf", version).load(source.location)
        names = ", ".join(_literal(address) for piece in pieces for address in _addresses(source, piece))
        chosen = rows.where(f"{_FILE} IN ({names})")
        expected = sum((piece.records or 0) - piece.deleted for piece in pieces)
        found = chosen.count()
        if found != expected:
            # A file that Spark calls by another name would be left out without a word.
            raise HeadraceError(
                "source_unreadable",
                f"Spark finds {found} of the {expected} rows of files of version {version} of {source.name}.",
                hint="Refresh in full, and report this with the location of the table.",
            )
        yield _weighted(chosen, columns, weight)


def consolidate_frame(frame: DataFrame, columns: Sequence[str]) -> DataFrame:
    """Sum the weights of equal rows, where equal means the same bytes: Spark's grouping alone is coarser.

    Grouping takes -0.0 for 0.0 and follows collations, so that such columns are grouped by more than
    their value, and the value is taken from the rows of the group.
    """
    kinds = {field.name.casefold(): field.dataType for field in frame.schema.fields}
    keys = {column: _keys(column, kinds[column.casefold()]) for column in columns}
    # A column that is its own key needs no value beside it: of strings such values would have to be sorted.
    plain = [
        quote(column)
        for column, own in keys.items()
        # Grouping puts the entries of a map in order.
        if own == [quote(column)] and not _contains(kinds[column.casefold()], MapType)
    ]
    others = [column for column in columns if quote(column) not in plain]
    named = {f"{_KEY}_{index}": key for index, key in enumerate(k for name in others for k in keys[name])}
    values = [f"any_value({quote(column)}) AS {quote(column)}" for column in others]
    keyed = frame.selectExpr("*", *(f"{key} AS {name}" for name, key in named.items()))
    outputs = [*values, f"SUM({WEIGHT}) AS {WEIGHT}"]
    grouped = keyed.groupBy(*plain, *named).agg(*(expr(output) for output in outputs))
    return grouped.where(f"{WEIGHT} <> 0").select(*(quote(column) for column in columns), WEIGHT)


def add_action(piece: Piece) -> str:
    """Write a file as the add action by which Delta reads it.

    >>> json.loads(add_action(Piece("a.parquet", 9, {}, None, -1, 3)))["add"]["path"]
    'a.parquet'
    """
    action: dict[str, Any] = {
        "path": piece.path,
        "partitionValues": dict(piece.partition),
        "size": piece.size,
        "modificationTime": 0,
        "dataChange": True,
    }
    if piece.vector is not None:
        action["deletionVector"] = piece.vector.descriptor()
    return json.dumps({"add": action})


def _by_weight(pieces: Iterable[Piece]) -> Iterator[tuple[int, list[Piece]]]:
    """Group files by weight; a file wanted with two deletion vectors takes two reads."""
    groups: dict[tuple[int, int], list[Piece]] = {}
    seen: Counter[tuple[int, str]] = Counter()
    for piece in pieces:
        groups.setdefault((piece.weight, seen[piece.weight, piece.path]), []).append(piece)
        seen[piece.weight, piece.path] += 1
    return ((weight, group) for (weight, _), group in groups.items())


def _weighted(rows: DataFrame, columns: Sequence[str], weight: int) -> DataFrame:
    chosen = [f"{quote(column)}" for column in columns]
    return rows.selectExpr(*chosen, f"CAST({weight} AS BIGINT) AS {WEIGHT}")


def _keys(column: str, kind: DataType) -> list[str]:
    """List the expressions by which rows group exactly as their values are the same."""
    name = quote(column)
    if isinstance(kind, VariantType):
        return [f"schema_of_variant({name})", f"to_json({name})"]
    if isinstance(kind, FloatType | DoubleType):
        return [name, f"{name} = 0 AND CAST({name} AS STRING) = '-0.0'"]
    if _contains(kind, VariantType):
        raise HeadraceError(
            "unsupported_column_type",
            f"Column {column} holds VARIANT inside {kind.simpleString()}: its changes cannot be netted out.",
            hint="Keep the VARIANT in a column of its own, or leave this column out of the query.",
        )
    exact = _without_collation(kind)
    keys = [name if exact == kind else f"CAST({name} AS {exact.simpleString()})"]
    if _contains(kind, FloatType | DoubleType):
        keys.append(f"CAST({name} AS STRING)")
    return keys


def _contains(kind: DataType, wanted: Any) -> bool:
    if isinstance(kind, wanted):
        return True
    return any(_contains(part, wanted) for part in _parts(kind))


def _parts(kind: DataType) -> tuple[DataType, ...]:
    match kind:
        case StructType():
            return tuple(field.dataType for field in kind.fields)
        case ArrayType():
            return (kind.elementType,)
        case MapType():
            return kind.keyType, kind.valueType
    return ()


def _without_collation(kind: DataType) -> DataType:
    match kind:
        case StringType():
            return StringType()
        case StructType():
            fields = [
                StructField(field.name, _without_collation(field.dataType), field.nullable, field.metadata)
                for field in kind.fields
            ]
            return StructType(fields)
        case ArrayType():
            return ArrayType(_without_collation(kind.elementType), kind.containsNull)
        case MapType():
            key, value = _without_collation(kind.keyType), _without_collation(kind.valueType)
            return MapType(key, value, kind.valueContainsNull)
    return kind


def _addresses(source: DeltaSource, piece: Piece) -> list[str]:
    """List how Spark may write the address of a file."""
    store, path = locate(source.location, piece.path)
    if store.type_name == "local":
        return [f"file://{path}", f"file:{path}"]
    scheme = source.location.split("://")[0] if not is_local(source.location) else "file"
    return [f"{scheme}://{path}"]


def _literal(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
