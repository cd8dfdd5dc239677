"""A stream table's storage to write to, a model of its rows, and readers to compare both."""

from __future__ import annotations

import math
import random
from collections import Counter
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path as FilePath
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from headrace import Headrace
from headrace.catalog import SourceVersion
from headrace.runtime.relations import describe
from headrace.sql.names import TableName
from headrace.storage.apply import WEIGHT, Applied, Path, TableChange, apply_change
from headrace.storage.marker import Marker
from headrace.storage.table import Storage, create_storage

COLUMNS = (
    ("id", "BIGINT"),
    ("n", "INT"),
    ("small", "SMALLINT"),
    ("tiny", "TINYINT"),
    ("name", "STRING"),
    ("price", "DECIMAL(38,4)"),
    ("ratio", "DOUBLE"),
    ("weight", "FLOAT"),
    ("flag", "BOOLEAN"),
    ("day", "DATE"),
    ("at", "TIMESTAMP"),
    ("local", "TIMESTAMP_NTZ"),
    ("raw", "BINARY"),
    ("tags", "ARRAY<STRING>"),
    ("point", "STRUCT<x: INT, y: DOUBLE>"),
    ("facts", "MAP<STRING, INT>"),
)
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("n", pa.int32()),
        ("small", pa.int16()),
        ("tiny", pa.int8()),
        ("name", pa.string()),
        ("price", pa.decimal128(38, 4)),
        ("ratio", pa.float64()),
        ("weight", pa.float32()),
        ("flag", pa.bool_()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
        ("local", pa.timestamp("us")),
        ("raw", pa.binary()),
        ("tags", pa.list_(pa.string())),
        ("point", pa.struct([("x", pa.int32()), ("y", pa.float64())])),
        ("facts", pa.map_(pa.string(), pa.int32())),
    ]
)

Row = tuple[Any, ...]
_EPOCH = datetime(2026, 1, 1, tzinfo=UTC)


class Model:
    """A table beside a multiset of its rows; every apply goes to both."""

    def __init__(self, storage: Storage, schema: pa.Schema, spark: SparkSession | None) -> None:
        self.storage = storage
        self.schema = schema
        self.spark = spark
        self.rows: Counter[Row] = Counter()
        self.refresh = 0

    @classmethod
    def by_delta_rs(cls, path: FilePath, **configuration: str) -> Model:
        """Make a table without Spark."""
        DeltaTable.create(path, SCHEMA, configuration=configuration)
        return cls(Storage(str(path), "id-t"), SCHEMA, None)

    @classmethod
    def by_spark(cls, hr: Headrace, name: str, **options: Any) -> Model:
        """Make a table as a stream table's storage is made."""
        table = TableName("default", name)
        create_storage(hr.spark, table, COLUMNS, **options)
        described = describe(hr.spark, table)
        assert described is not None
        return cls(Storage(described.location, f"id-{name}"), SCHEMA, hr.spark)

    def marker(self) -> Marker:
        self.refresh += 1
        return Marker(
            stream_table=self.storage.stream_table,
            refresh=self.refresh,
            action="DIFFERENTIAL",
            reason="a test",
            frontier={"default.source": SourceVersion(self.refresh, "s1")},
            data_timestamp=_EPOCH + timedelta(seconds=self.refresh),
            started_at=_EPOCH,
        )

    def change(self, weights: Counter[Row], *, key: tuple[str, ...] = ()) -> TableChange:
        return TableChange(rows=weighted(weights, self.schema), key=key)

    def apply(self, weights: Counter[Row], path: Path | None = None, **options: Any) -> Applied:
        change = self.change(weights, key=options.pop("key", ()))
        # The paths of the driver ask for no session, so most tests start none.
        spark: Any = self.spark
        applied = apply_change(self.storage, change, self.marker(), spark=spark, path=path, **options)
        for row, weight in weights.items():
            self.rows[row] += weight
        self.rows = +self.rows
        return applied

    def read_by_spark(self) -> Counter[Row]:
        assert self.spark is not None
        frame = self.spark.read.format("delta").load(self.storage.location)
        return as_rows(frame.toArrow())

    def read_by_delta_rs(self) -> Counter[Row]:
        found = pa.table(DeltaTable(self.storage.location).scan().read_all())
        return as_rows(found)


def weighted(weights: Counter[Row], schema: pa.Schema) -> pa.Table:
    """Write a model's change as Arrow."""
    kept = [(thaw(row), weight) for row, weight in weights.items() if weight]
    arrays = [pa.array([row[place] for row, _ in kept], field.type) for place, field in enumerate(schema)]
    return pa.table(
        [*arrays, pa.array([weight for _, weight in kept], pa.int64())], names=[*schema.names, WEIGHT]
    )


def as_rows(table: pa.Table) -> Counter[Row]:
    """Count rows, with times of far years as numbers and nested values frozen."""
    columns = [[freeze(value) for value in column.to_pylist()] for column in table.columns]
    return Counter(zip(*columns, strict=True))


def freeze(value: Any) -> Any:
    if isinstance(value, dict):
        return ("struct", *((name, freeze(item)) for name, item in value.items()))
    if isinstance(value, list):
        kind = "map" if value and isinstance(value[0], tuple) else "list"
        return (kind, *(freeze(item) for item in value))
    if isinstance(value, tuple):
        return ("entry", *(freeze(item) for item in value))
    if isinstance(value, float) and math.isnan(value):
        return "NaN"
    return value


def thaw(value: Any) -> Any:
    """Undo `freeze`, for a row or a value of it."""
    if isinstance(value, tuple):
        match value:
            case ("struct", *items):
                return {name: thaw(item) for name, item in items}
            case ("list" | "map", *items):
                return [thaw(item) for item in items]
            case ("entry", name, item):
                return (name, thaw(item))
        return tuple(thaw(item) for item in value)
    return math.nan if value == "NaN" else value


def random_row(rng: random.Random, *, domain: int = 6) -> Row:
    """Make a row of few possible values, NULLs among them, so that copies and near-copies are common."""
    seed = rng.randrange(domain)
    pick = rng.random

    def maybe(value: Any) -> Any:
        return None if pick() < 0.15 else value

    return (
        maybe(seed),
        maybe(seed * 7),
        maybe(seed),
        maybe(seed - 3),
        maybe(rng.choice(["", "x", "ü" * 40, "a'b", "NULL"])),
        maybe(Decimal(seed).scaleb(-4) + 10**20),
        maybe(rng.choice([0.5, "NaN", math.inf, 1e300])),
        maybe(0.25),
        maybe(seed % 2 == 0),
        maybe(date(1969, 12, 31) + timedelta(days=seed)),
        maybe(_EPOCH + timedelta(microseconds=seed)),
        maybe((_EPOCH + timedelta(microseconds=seed)).replace(tzinfo=None)),
        maybe(bytes([seed])),
        maybe(("list", "a", None) if seed % 2 else ("list",)),
        maybe(("struct", ("x", seed), ("y", None))),
        maybe(("map", ("entry", "k", seed))),
    )


def random_change(rng: random.Random, stored: Counter[Row], *, size: int) -> Counter[Row]:
    """Gain random rows and lose some of the stored ones, sometimes all copies of one."""
    change: Counter[Row] = Counter()
    for _ in range(rng.randrange(size)):
        change[random_row(rng)] += rng.randrange(1, 4)
    for row in rng.sample(sorted(stored, key=repr), k=min(len(stored), rng.randrange(size))):
        change[row] -= rng.randrange(1, stored[row] + 1)
    for row in list(change):
        if not change[row]:
            del change[row]
    return change
