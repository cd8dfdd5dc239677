"""Small Arrow rows as a Spark frame: a local relation with the source's own types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import LongType, StructField, StructType

from headrace.plan.hidden import WEIGHT
from headrace.runtime.session import has_jvm
from headrace.sources.arrow_types import CHAR_TYPE
from headrace.sources.state import Field

# Types that Spark does not hand over as Arrow.
_NOT_FOR_ARROW = ("interval", "variant", "void")


def spark_schema(names: Sequence[str], fields: Sequence[Field]) -> StructType:
    """Give the Spark types of a change: the columns under the names asked for, and the weight.

    >>> spark_schema(["a"], [Field("A", "decimal(38,2)")]).simpleString()
    'struct<a:decimal(38,2),__hr_weight:bigint>'
    """
    listed = [
        {"name": field.name, "type": field.type, "nullable": True, "metadata": dict(field.metadata)}
        for field in fields
    ]
    known = StructType.fromJson({"type": "struct", "fields": listed})
    columns = [
        StructField(name, field.dataType, metadata=_padding(field.metadata or {}))
        for name, field in zip(names, known.fields, strict=True)
    ]
    return StructType([*columns, StructField(WEIGHT, LongType(), nullable=False)])


def _padding(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Keep of a column's metadata what tells that Spark compares it as CHAR."""
    return {CHAR_TYPE: metadata[CHAR_TYPE]} if CHAR_TYPE in metadata else {}


def arrow_frame(spark: SparkSession, rows: pa.Table, schema: StructType) -> DataFrame:
    """Hand Arrow rows to Spark.

    Measured with 20,000 rows of five columns against a temporary Parquet file and pandas: as fast as the one
    and twice as fast as the other, and nothing is left on disk.
    """
    if rows.num_rows == 0:
        return spark.createDataFrame([], schema)
    return spark.createDataFrame(rows, schema)


def read_files(spark: SparkSession, schema: StructType, paths: Sequence[str]) -> DataFrame:
    """Let Spark read Parquet files, all names handed to the JVM in one call instead of one each."""
    reader = spark.read.schema(schema)
    if not has_jvm(spark) or any("\n" in path for path in paths):
        return reader.parquet(*paths)
    at_lines = spark._jvm.java.util.regex.Pattern.compile("\n")  # type: ignore[union-attr]  # has_jvm was asked
    named = at_lines.split("\n".join(paths))
    return DataFrame(reader._jreader.parquet(named), spark)


def computed(spark: SparkSession, frame: DataFrame, most: int) -> DataFrame:
    """Compute a frame now, so that who reads it later plans nothing of it again.

    Up to `most` rows become a local relation, which is the quickest to read; others stay with the executors.
    """
    kinds = [field.dataType.simpleString() for field in frame.schema.fields]
    if not any(other in kind for kind in kinds for other in _NOT_FOR_ARROW):
        rows = frame.limit(most + 1).toArrow()
        if rows.num_rows <= most:
            return arrow_frame(spark, rows, frame.schema)
    return frame.localCheckpoint()
