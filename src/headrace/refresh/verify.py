"""Compare a stream table with its query at the frontier, as multisets."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from headrace.catalog import StreamTable
from headrace.errors import HeadraceError
from headrace.refresh.definition import Definitions
from headrace.sources.consolidate import consolidate
from headrace.sources.pins import at_version
from headrace.sql.names import quote
from headrace.storage.read import rows_at
from headrace.storage.table import Storage

_WEIGHT = "__hr_weight"
_FEW_ROWS = 50_000


@dataclass(frozen=True)
class Verification:
    """`missing` rows should be there and are not; `extra` rows are there and should not."""

    stream_table: str
    missing: int
    extra: int
    rows: int

    @property
    def ok(self) -> bool:
        return self.missing == 0 and self.extra == 0

    def __str__(self) -> str:
        if self.ok:
            return f"{self.stream_table}: equal to its query ({self.rows:,} rows)"
        return (
            f"{self.stream_table}: DIFFERS from its query, {self.missing} missing and {self.extra} extra rows"
        )


def verify(
    spark: SparkSession, definitions: Definitions, table: StreamTable, *, stored_by_files: bool = False
) -> Verification:
    """Count the rows by which a stream table differs from its query over the sources it reflects.

    A refresh reads small tables by their files; a check that shall find its mistakes reads through Delta.
    With `stored_by_files` only the sources are read so, which saves Delta's jobs for the table's new version.
    """
    if table.frontier is None or table.storage_version is None:
        raise HeadraceError(
            "not_initialized",
            f"{table.name} was never loaded.",
            hint=f"REFRESH STREAM TABLE {table.name} loads it.",
        )
    expected = definitions.rows_at(table, definitions.of(table, fresh=True), table.frontier, by_delta=True)
    stored = stored_rows(spark, table, by_delta=not stored_by_files)
    missing, extra, count = count_difference(expected, stored, table)
    return Verification(str(table.name), missing, extra, count)


def stored_rows(spark: SparkSession, table: StreamTable, *, by_delta: bool = False) -> DataFrame:
    """Give the contents of a stream table at the version that the catalog knows."""
    assert table.storage_version is not None
    if by_delta:
        return spark.sql(f"SELECT * FROM {at_version(table.name, table.storage_version)}")
    return rows_at(spark, Storage(table.location, table.id), table.name, table.storage_version)


def count_difference(expected: DataFrame, stored: DataFrame, table: StreamTable) -> tuple[int, int, int]:
    """Count the rows that are missing, those that are extra, and the stored ones."""
    expected, stored = comparable(expected, table), comparable(stored, table)
    if Storage(table.location, table.id).row_count() <= _FEW_ROWS:
        # Small tables are compared here: grouping them in Spark takes several jobs.
        right, left = (frame.limit(_FEW_ROWS + 1).toArrow() for frame in (expected, stored))
        if max(right.num_rows, left.num_rows) <= _FEW_ROWS:
            return _count_here(right, left)
    row = difference(expected, stored).collect()[0]
    return row.missing or 0, row.extra or 0, row.stored or 0


def _count_here(expected: pa.Table, stored: pa.Table) -> tuple[int, int, int]:
    # A query may promise that a part is never NULL, which Delta does not keep.
    schema = pa.schema([field.with_nullable(True) for field in stored.schema])
    both = pa.concat_tables([_weighted(expected.cast(schema), 1), _weighted(stored.cast(schema), -1)])
    weights = consolidate(both)[_WEIGHT].to_numpy()
    return int(weights[weights > 0].sum()), int(-weights[weights < 0].sum()), stored.num_rows


def _weighted(rows: pa.Table, weight: int) -> pa.Table:
    return rows.append_column(_WEIGHT, pa.repeat(pa.scalar(weight, pa.int64()), rows.num_rows))


def difference(expected: DataFrame, stored: DataFrame) -> DataFrame:
    both = expected.selectExpr("*", f"1 AS {_WEIGHT}", "0 AS __hr_stored").unionAll(
        stored.selectExpr("*", f"-1 AS {_WEIGHT}", "1 AS __hr_stored")
    )
    columns = [quote(name) for name in expected.columns]
    weights = (
        both.groupBy(*columns)
        .agg({_WEIGHT: "sum", "__hr_stored": "sum"})
        .withColumnRenamed(f"sum({_WEIGHT})", _WEIGHT)
        .withColumnRenamed("sum(__hr_stored)", "__hr_stored")
    )
    return weights.selectExpr(
        f"sum(greatest({_WEIGHT}, 0)) AS missing",
        f"sum(greatest(-{_WEIGHT}, 0)) AS extra",
        "sum(__hr_stored) AS stored",
    )


def comparable(rows: DataFrame, table: StreamTable) -> DataFrame:
    return rows.selectExpr(*(_comparable_column(name, type_) for name, type_ in table.columns))


def _comparable_column(name: str, type_: str) -> str:
    """Make a column fit for GROUP BY without hiding a difference.

    A sum of doubles depends on the order of addition, which Spark does not fix, so floats are compared by
    their first eleven significant digits. Adding nothing makes -0.0 the 0.0 that it equals.
    """
    column = quote(name)
    if type_ in {"double", "float"}:
        return f"format_string('%.10e', {column} + 0D) AS {column}"
    if "double" in type_ or "float" in type_ or "variant" in type_:
        return f"to_json(struct({column})) AS {column}"
    return column
