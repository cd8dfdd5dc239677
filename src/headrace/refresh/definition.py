"""A stream table's definition made ready to run: its query analysed against what its names mean now."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from pyspark.sql import DataFrame, SparkSession

from headrace.catalog import Frontier, StreamTable
from headrace.errors import HeadraceError
from headrace.plan.build import Plan, plan_query
from headrace.runtime.functions import UserFunctions, user_functions
from headrace.runtime.relations import resolve
from headrace.sources.check import column_types
from headrace.sources.pins import Pins, at_version
from headrace.sources.state import TableState
from headrace.sql.analysis import Analysis, Table, View, analyze
from headrace.sql.names import TableName, quote
from headrace.sql.refusals import Refusal, non_deterministic_calls

# The columns of each source that a stream table was defined over.
ReadColumns = Mapping[TableName, Sequence[str]]
# Why a query may be recomputed though its result follows from values, if not from those in its sources alone.
_OF_VALUES = frozenset({"recursive_cte", "session_function"})


class Definitions:
    """Analyses of defining queries, kept until the definition changes."""

    def __init__(self, spark: SparkSession, pins: Pins, recorded: Callable[[TableName], ReadColumns]) -> None:
        self._spark = spark
        self.pins = pins
        self._recorded = recorded
        self._kept: dict[tuple[str, ...], Analysis] = {}
        self._plans: dict[tuple[object, ...], Plan] = {}
        self._functions: dict[str, UserFunctions] = {}

    def of(self, table: StreamTable, *, fresh: bool = False) -> Analysis:
        """Analyse a stream table's query; `fresh` looks at the sources' schemas again."""
        key = (table.query, table.current_schema, table.expanded_query)
        if fresh or key not in self._kept:
            self._kept[key] = self._as_recorded(table) or self.analyze(table.query, table.current_schema)
        return self._kept[key]

    def current(self, table: StreamTable) -> Analysis:
        """Analyse a query; one that reads views is looked at again, since their texts may have changed."""
        analysis = self.of(table)
        return self.of(table, fresh=True) if analysis.views else analysis

    def at(
        self, table: StreamTable, analysis: Analysis, state_of: Callable[[TableName], TableState]
    ) -> Analysis:
        """Analyse a query again if its sources have columns of other types than it was analysed with."""
        for name, source in analysis.tables.items():
            now = column_types(state_of(name))
            if any(now.get(column.name.casefold()) != column.type for column in source.columns):
                return self.of(table, fresh=True)
        return analysis

    def columns_read(self, table: StreamTable, analysis: Analysis) -> ReadColumns:
        """Tell which columns of each source the query reads, those among them that are gone by now."""
        recorded = self._recorded(table.name)
        return {
            name: list(dict.fromkeys((*columns, *recorded.get(name, ()))))
            for name, columns in analysis.sources.items()
        }

    def _as_recorded(self, table: StreamTable) -> Analysis | None:
        """Analyse with the columns that the sources had when the query was written: a `*` means these.

        None where it means something else by now, as when a view has another text.
        """
        recorded = self._recorded(table.name)

        def resolved(name: TableName) -> Table | View | None:
            found = resolve(self._spark, name)
            if not isinstance(found, Table) or name not in recorded:
                return found
            known = {column.casefold() for column in recorded[name]}
            kept = tuple(column for column in found.columns if column.name.casefold() in known)
            return replace(found, columns=kept or found.columns[:1])

        try:
            analysis = analyze(table.query, current_schema=table.current_schema, resolve=resolved)
        except HeadraceError:
            return None
        return analysis if analysis.expanded == table.expanded_query else None

    def plan(self, table: StreamTable, analysis: Analysis) -> Plan:
        """Plan a stream table's query as operators."""
        return self.plan_of(analysis, tuple(name for name, _ in table.columns))

    def plan_of(self, analysis: Analysis, output: tuple[str, ...]) -> Plan:
        # The same text means other types when a source's columns are widened.
        sources = tuple((name, table.columns) for name, table in sorted(analysis.tables.items()))
        key = (analysis.expanded, output, sources)
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

    def refusals(self, analysis: Analysis) -> tuple[Refusal, ...]:
        """List why a query cannot be maintained, the registered functions that it calls included."""
        functions = self.functions(analysis).non_deterministic
        return (*analysis.refusals, *non_deterministic_calls(analysis.text, functions))

    def follows_from_values(self, analysis: Analysis) -> bool:
        """Tell whether a query gives the same whenever it is computed over the same rows."""
        codes = {one.code for one in self.refusals(analysis)}
        return not analysis.time_dependent and codes <= _OF_VALUES

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
