"""Weighted rows in Spark: what is gained, what is lost, and what survives of rows stored several times."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import date, timedelta
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DateType,
    IntegralType,
    MapType,
    StringType,
    StructField,
    StructType,
    VariantType,
)

from headrace.sql.names import quote
from headrace.storage.apply.change import WEIGHT, TableChange, rows_missing
from headrace.storage.table import Storage

# A change of so few rows is sent whole to every task that looks for them.
_BROADCAST_ROWS = 200_000

_COPIES = "__hr_copies"


@dataclass(frozen=True, kw_only=True)
class WeightedFrame:
    """A change in Spark with its counts; `bounds` hold the lost rows' least and greatest values.

    `is_held` tells a frame that Spark keeps in its cache from rows that it has at hand.
    """

    spark: SparkSession
    frame: DataFrame
    schema: StructType
    key: tuple[str, ...]
    inserted: int
    deleted: int
    bounds: Mapping[str, tuple[Any, Any]]
    is_held: bool

    @property
    def columns(self) -> list[str]:
        return self.schema.fieldNames()

    @property
    def match(self) -> list[str]:
        """The columns that tell a row."""
        return list(self.key) or self.columns

    @property
    def gains(self) -> DataFrame:
        return self.frame.where(F.col(WEIGHT) > 0)

    @property
    def losses(self) -> DataFrame:
        lost = self.frame.where(F.col(WEIGHT) < 0).withColumn(WEIGHT, -F.col(WEIGHT))
        return F.broadcast(lost) if self.deleted <= _BROADCAST_ROWS else lost

    def stored(self, storage: Storage, version: int) -> DataFrame:
        """Read the table at the version that the change belongs to."""
        return read_version(self.spark, storage, version).select(
            [F.col(quote(name)) for name in self.columns]
        )


def read_version(spark: SparkSession, storage: Storage, version: int) -> DataFrame:
    return spark.read.format("delta").option("versionAsOf", version).load(storage.location)


@contextmanager
def weighted_frame(spark: SparkSession, storage: Storage, change: TableChange) -> Iterator[WeightedFrame]:
    """Hold a change in Spark, in the table's types, with its counts."""
    schema = spark.read.format("delta").load(storage.location).schema
    if change.frame is None:
        yield _from_arrow(spark, change, schema)
        return
    weighted = _conform(change.frame, schema)
    if change.is_held:
        yield _counted(spark, weighted, schema, change.key)
        return
    # A frame is read several times, and must give the same rows every time.
    held = weighted.persist()
    try:
        yield _counted(spark, held, schema, change.key)
    finally:
        held.unpersist()


def repeated(weighted: DataFrame) -> DataFrame:
    """Write every row out as often as its weight says, without the weight."""
    copies = F.explode(F.expr(f"sequence(1L, {WEIGHT})"))
    return weighted.withColumn(_COPIES, copies).drop(_COPIES, WEIGHT)


def same_rows(match: list[str], schema: StructType) -> Column:
    """Compare the rows t and s by value, NULL equal to NULL."""
    return reduce(
        lambda a, b: a & b, [_value("t", n, schema).eqNullSafe(_value("s", n, schema)) for n in match]
    )


@contextmanager
def unsettled(storage: Storage, change: WeightedFrame, version: int) -> Iterator[DataFrame | None]:
    """Count the stored copies of every lost row and give those that remain, weighted, or None.

    Raises before anything is written where more copies are lost than are stored.
    """
    match, schema = change.match, change.schema
    names = [f"__hr_{place}" for place in range(len(match))]
    stored = change.stored(storage, version).alias("t")
    found = stored.join(change.losses.alias("s"), same_rows(match, schema), "left_semi")
    lost = change.losses.alias("t")
    # One shuffle of the few rows that matter: stored copies count up, lost ones count down.
    both = found.withColumn(WEIGHT, F.lit(1)).alias("t").select(*_identity(names, change), "t.*")
    both = both.unionAll(
        lost.withColumn(WEIGHT, -F.col(WEIGHT)).alias("t").select(*_identity(names, change), "t.*")
    )
    rows = [F.first(F.col(quote(name))).alias(name) for name in change.columns]
    left = both.groupBy(*names).agg(*rows, F.sum(WEIGHT).alias(WEIGHT)).where(F.col(WEIGHT) != 0)
    held = left.drop(*names).persist()
    try:
        missing, extra = held.agg(
            F.sum(F.greatest(-F.col(WEIGHT), F.lit(0))), F.sum(F.greatest(F.col(WEIGHT), F.lit(0)))
        ).collect()[0]
        if missing or (extra and change.key):
            raise rows_missing(storage.location, missing or extra)
        yield held if extra else None
    finally:
        held.unpersist()


def _identity(names: list[str], change: WeightedFrame) -> list[Column]:
    return [
        _value("t", column, change.schema).alias(name)
        for name, column in zip(names, change.match, strict=True)
    ]


def _value(side: str, name: str, schema: StructType) -> Column:
    return _comparable(F.col(f"{side}.{quote(name)}"), schema[name].dataType)


def _comparable(column: Column, type_: DataType) -> Column:
    """Turn what Spark does not compare into something it compares by value."""
    if (
        isinstance(type_, MapType)
        and not _is_incomparable(type_.keyType)
        and not _is_incomparable(type_.valueType)
    ):
        return F.array_sort(F.map_entries(column))
    if _is_incomparable(type_):
        return F.when(column.isNotNull(), F.to_json(F.struct(column), {"ignoreNullFields": "false"}))
    return column


def _is_incomparable(type_: DataType) -> bool:
    """Tell whether a type holds a map or a variant."""
    if isinstance(type_, ArrayType):
        return _is_incomparable(type_.elementType)
    if isinstance(type_, StructType):
        return any(_is_incomparable(field.dataType) for field in type_.fields)
    return isinstance(type_, (MapType, VariantType))


def _counted(spark: SparkSession, held: DataFrame, schema: StructType, key: tuple[str, ...]) -> WeightedFrame:
    """Count gains and losses and find the bounds of the lost rows, in one job."""
    lost = F.col(WEIGHT) < 0
    ranged = [name for name in key or schema.fieldNames() if _has_order(schema[name].dataType)]
    measures = [F.sum(F.when(~lost, F.col(WEIGHT))), F.sum(F.when(lost, -F.col(WEIGHT)))]
    for name in ranged:
        value = F.when(lost, _plain_number(F.col(quote(name)), schema[name].dataType))
        measures += [F.min(value), F.max(value), F.count(F.when(lost & F.col(quote(name)).isNull(), True))]
    row = held.agg(*[measure.alias(f"m{place}") for place, measure in enumerate(measures)]).collect()[0]
    bounds = {}
    for place, name in enumerate(ranged):
        low, high, nulls = row[2 + 3 * place : 5 + 3 * place]
        # A row with NULL lies between no bounds.
        if low is not None and not nulls:
            with suppress(OverflowError):
                bounds[name] = (_of_number(low, schema[name]), _of_number(high, schema[name]))
    return WeightedFrame(
        spark=spark,
        frame=held,
        schema=schema,
        key=key,
        inserted=row[0] or 0,
        deleted=row[1] or 0,
        bounds=bounds,
        is_held=True,
    )


def _has_order(type_: DataType) -> bool:
    """Take the types whose literals are exact and whose statistics are too."""
    return isinstance(type_, (StringType, IntegralType, DateType))


def _plain_number(column: Column, type_: DataType) -> Column:
    """Give dates as days: Spark knows dates that Python does not."""
    return F.unix_date(column) if isinstance(type_, DateType) else column


def _of_number(value: Any, field: StructField) -> Any:
    return date(1970, 1, 1) + timedelta(days=value) if isinstance(field.dataType, DateType) else value


def _conform(frame: DataFrame, schema: StructType) -> DataFrame:
    columns = [F.col(quote(field.name)).cast(field.dataType).alias(field.name) for field in schema.fields]
    return frame.select(*columns, F.col(WEIGHT).cast("long").alias(WEIGHT))


def _from_arrow(spark: SparkSession, change: TableChange, schema: StructType) -> WeightedFrame:
    """Count on the driver what is there already: no job, and nothing to hold."""
    assert change.rows is not None
    losses = change.losses
    ranged = [name for name in change.key or schema.fieldNames() if _has_order(schema[name].dataType)]
    bounds = {}
    for name in ranged:
        if losses.num_rows and not losses[name].null_count:
            found = pc.min_max(losses[name])
            # Spark knows dates that Python does not.
            with suppress(OverflowError, ValueError):
                bounds[name] = (found["min"].as_py(), found["max"].as_py())
    rows = _plain(change.rows)
    # Without its types Spark would take local times for moments, and some of them are none.
    frame = spark.createDataFrame(rows, from_arrow_schema(rows.schema))
    return WeightedFrame(
        spark=spark,
        frame=_conform(frame, schema),
        schema=schema,
        key=change.key,
        inserted=change.gains.num_rows,
        deleted=int(pc.sum(losses[WEIGHT]).as_py() or 0),
        bounds=bounds,
        is_held=False,
    )


def _plain(rows: pa.Table) -> pa.Table:
    """Replace the Arrow types that Spark's conversion does not take."""
    fields = [field.with_type(_plain_type(field.type)) for field in rows.schema]
    return rows.cast(pa.schema(fields))


def _plain_type(type_: pa.DataType) -> pa.DataType:
    if pt.is_string_view(type_):
        return pa.string()
    if pt.is_binary_view(type_):
        return pa.binary()
    return pa.int64() if pt.is_uint64(type_) else type_
