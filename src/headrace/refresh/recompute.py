"""What a full refresh changes of a large table that others read, so that they are handed the difference."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import lit

from headrace.plan.hidden import WEIGHT
from headrace.refresh.inputs import DRIVER_ROWS
from headrace.refresh.task import Task
from headrace.refresh.views import Views
from headrace.sources.spark_changes import consolidate_frame
from headrace.storage.apply import TableChange


def recomputed_change(
    spark: SparkSession, task: Task, rows: DataFrame, version: int, views: Views
) -> TableChange:
    """Net the rows of the query out against those that a version of the storage holds.

    Writing all of them anew would be quicker, but whoever reads the table would have to find the difference.
    """
    stored = spark.read.format("delta").option("versionAsOf", version).load(task.storage.location)
    columns = rows.columns
    both = _weighted(rows, 1).unionAll(_weighted(stored.select(*rows.columns), -1))
    net = views.hold(consolidate_frame(both, columns))
    few = net.limit(DRIVER_ROWS + 1).toArrow()
    return TableChange(rows=few) if few.num_rows <= DRIVER_ROWS else TableChange(frame=net, is_held=True)


def _weighted(rows: DataFrame, weight: int) -> DataFrame:
    return rows.withColumn(WEIGHT, lit(weight).cast("bigint"))
