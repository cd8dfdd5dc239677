"""Compare a stream table with its query at the frontier, as multisets."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession

from headrace.catalog import StreamTable
from headrace.errors import HeadraceError
from headrace.refresh.definition import Definitions
from headrace.sql.names import quote

_WEIGHT = "__hr_weight"


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


def verify(spark: SparkSession, definitions: Definitions, table: StreamTable) -> Verification:
    """Count the rows by which a stream table differs from its query over the sources it reflects."""
    if table.frontier is None or table.storage_version is None:
        raise HeadraceError(
            "not_initialized",
            f"{table.name} was never loaded.",
            hint=f"REFRESH STREAM TABLE {table.name} loads it.",
        )
    expected = definitions.rows_at(table, definitions.of(table, fresh=True), table.frontier)
    stored = spark.sql(f"SELECT * FROM {table.name.sql} VERSION AS OF {table.storage_version}")
    row = difference(comparable(expected, table), comparable(stored, table)).collect()[0]
    return Verification(str(table.name), row.missing or 0, row.extra or 0, row.stored or 0)


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
    if " collate " in type_:
        return f"{column} COLLATE UTF8_BINARY AS {column}"
    return column
