"""A guard against a misread query: at creation the plan's result must equal that of the user's own text."""

from __future__ import annotations

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from headrace.catalog import StreamTable
from headrace.delta.compile import query_sql
from headrace.plan.build import Plan
from headrace.plan.nodes import State
from headrace.refresh.verify import count_difference, stored_rows
from headrace.sources.pins import Pins
from headrace.sql.names import TableName, quote


def misread(spark: SparkSession, pins: Pins, table: StreamTable, plan: Plan) -> str | None:
    """Say how the plan's result differs from the contents just loaded by the user's text, or None."""
    frontier = table.frontier or {}

    def at_frontier(name: TableName, _state: State) -> str:
        return pins.relation(name, frontier[str(name)])

    try:
        planned = spark.sql(query_sql(plan, at_frontier))
    except AnalysisException as error:
        return f"Spark does not run the plan: {error.getCondition()}"
    planned = planned.select(*(quote(name) for name, _ in table.columns))
    types = {field.name.lower(): field.dataType.simpleString() for field in planned.schema.fields}
    for name, type_ in table.columns:
        if types[name.lower()] != type_:
            return f"column {name} is {types[name.lower()]} in the plan and {type_} in the query"
    stored = stored_rows(spark, table)
    missing, extra, _ = count_difference(planned, stored, table)
    if missing or extra:
        return f"the plan gives {missing} rows that the query does not, and lacks {extra}"
    return None
