"""A stream table's definition made ready to run: its query analysed against what its names mean now."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession

from headrace.catalog import Frontier, StreamTable
from headrace.errors import HeadraceError
from headrace.plan.build import Plan, plan_query
from headrace.runtime.functions import UserFunctions, user_functions
from headrace.runtime.relations import resolve
from headrace.sources.pins import Pins, at_version
from headrace.sql.analysis import Analysis, analyze
from headrace.sql.names import quote


class Definitions:
    """Analyses of defining queries, kept until the definition changes."""

    def __init__(self, spark: SparkSession, pins: Pins) -> None:
        self._spark = spark
        self.pins = pins
        self._kept: dict[tuple[str, str], Analysis] = {}
        self._plans: dict[tuple[str, tuple[str, ...]], Plan] = {}
        self._functions: dict[str, UserFunctions] = {}

    def of(self, table: StreamTable, *, fresh: bool = False) -> Analysis:
        """Analyse a stream table's query; `fresh` looks at the sources' schemas again."""
        key = (table.query, table.current_schema)
        if fresh or key not in self._kept:
            self._kept[key] = self.analyze(*key)
        return self._kept[key]

    def current(self, table: StreamTable) -> Analysis:
        """Analyse a query; one that reads views is looked at again, since their texts may have changed."""
        analysis = self.of(table)
        return self.of(table, fresh=True) if analysis.views else analysis

    def plan(self, table: StreamTable, analysis: Analysis) -> Plan:
        """Plan a stream table's query as operators."""
        return self.plan_of(analysis, tuple(name for name, _ in table.columns))

    def plan_of(self, analysis: Analysis, output: tuple[str, ...]) -> Plan:
        key = (analysis.expanded, output)
        if key not in self._plans:
            aggregates = self.functions(analysis).aggregates
            self._plans[key] = plan_query(analysis, output=output, user_aggregates=aggregates)
        return self._plans[key]

    def functions(self, analysis: Analysis) -> UserFunctions:
        """Tell what the registered functions are that a query calls."""
        if analysis.expanded not in self._functions:
            query = analysis.bound(lambda name: name.sql)
            self._functions[analysis.expanded] = user_functions(self._spark, query)
        return self._functions[analysis.expanded]

    def analyze(self, query: str, current_schema: str) -> Analysis:
        return analyze(query, current_schema=current_schema, resolve=lambda name: resolve(self._spark, name))

    def columns_at(self, analysis: Analysis, frontier: Frontier) -> dict[str, str]:
        """Give the output columns, in lower case, with the types they have at a frontier."""
        schema = self._pinned(analysis, frontier).schema
        return {field.name.lower(): field.dataType.simpleString() for field in schema.fields}

    def rows_at(
        self, table: StreamTable, analysis: Analysis, frontier: Frontier, *, by_delta: bool = False
    ) -> DataFrame:
        """Give the defining query over its sources at a frontier, with the columns it was created with."""
        rows = self._pinned(analysis, frontier, by_delta=by_delta)
        _check_columns(table, rows)
        return rows.select(*(quote(name) for name, _ in table.columns))

    def _pinned(self, analysis: Analysis, frontier: Frontier, *, by_delta: bool = False) -> DataFrame:
        return self._spark.sql(
            analysis.bound(
                lambda name: self.pins.relation(name, frontier[str(name)], by_delta=by_delta),
                plain=lambda name: at_version(name, frontier[str(name)].version),
            )
        )


def _check_columns(table: StreamTable, rows: DataFrame) -> None:
    now = {field.name.lower(): field.dataType.simpleString() for field in rows.schema.fields}
    for name, type_ in table.columns:
        if now.get(name.lower()) != type_:
            found = f"has type {now[name.lower()]}" if name.lower() in now else "is gone"
            raise HeadraceError(
                "schema_changed",
                f"Column {name} of {table.name} was {type_} and now {found}: a source has changed.",
                hint=f"Define it anew with ALTER STREAM TABLE {table.name} AS …, or undo the change.",
            )
