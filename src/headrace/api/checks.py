"""The checks on a definition, all made before anything is written."""

from __future__ import annotations

from dataclasses import dataclass, replace

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import SparkSession
from pyspark.sql.types import StructField, StructType
from sqlglot import exp

from headrace.catalog import Catalog, Dependency, RefreshMode
from headrace.errors import HeadraceError, Position, shift
from headrace.plan.build import Plan
from headrace.refresh.checks import dependencies_of, effective_mode
from headrace.refresh.definition import Definitions
from headrace.refresh.failure import query_error
from headrace.runtime.reads import Reads, reads_of, setting_of_view
from headrace.sql.analysis import Analysis
from headrace.sql.names import TableName

# Types that Delta cannot store.
_UNSTORABLE = ("void", "interval")


@dataclass(frozen=True)
class Checked:
    """A definition that passed: what the catalog will keep of it."""

    analysis: Analysis
    plan: Plan
    columns: tuple[tuple[str, str], ...]
    dependencies: tuple[Dependency, ...]
    effective_mode: str
    mode_reason: str
    notices: tuple[str, ...]


def check_query(
    spark: SparkSession,
    catalog: Catalog,
    definitions: Definitions,
    *,
    name: TableName,
    query: str,
    current_schema: str,
    mode: RefreshMode,
    offset: Position | None = None,
    is_new: bool = True,
) -> Checked:
    """Check everything about a defining query that can be known before it runs.

    What the session makes of its names is asked where it `is_new`: later they may mean something else.
    """
    analysis = _analyze(spark, definitions, query, current_schema, offset)
    columns = _output_columns(_spark_schema(spark, query, offset), analysis.tree)
    if is_new:
        reads = reads_of(spark, query)
        _check_reads(reads, analysis)
        for view in analysis.views:
            _check_settings(view, setting_of_view(spark, view, reads))
    dependencies = dependencies_of(spark, catalog, name, analysis)
    plan = definitions.plan_of(analysis, tuple(column for column, _ in columns))
    refusals = definitions.refusals(analysis)
    effective, reason = effective_mode(mode, refusals, plan, columns, offset)
    analysis = replace(analysis, refusals=refusals)
    return Checked(analysis, plan, columns, dependencies, effective, reason, analysis.notices)


def _analyze(
    spark: SparkSession, definitions: Definitions, query: str, current_schema: str, offset: Position | None
) -> Analysis:
    try:
        return definitions.analyze(query, current_schema)
    except HeadraceError as error:
        # Spark's own message is the better one where it, too, refuses the text.
        if error.code == "syntax_error":
            _spark_schema(spark, query, offset)
        raise HeadraceError(
            error.code, error.message, hint=error.hint, position=shift(error.position, offset)
        ) from error


def _spark_schema(spark: SparkSession, query: str, offset: Position | None) -> StructType:
    try:
        return spark.sql(query).schema
    except (AnalysisException, ParseException) as error:
        raise query_error(error, offset=offset) from error


def _check_reads(reads: Reads, analysis: Analysis) -> None:
    """Refuse what Spark reads and the text does not show as a table: its changes would never be noticed."""
    if reads.temporary_views:
        name = min(reads.temporary_views)
        raise HeadraceError(
            "unsupported_source",
            f"{name} is a temporary view, which only this session knows.",
            hint="Make it a view with CREATE VIEW, or write the schema before the name of a table.",
        )
    if reads.variables:
        raise HeadraceError(
            "unsupported_source",
            f"{min(reads.variables)} is a session variable, whose value changes without a notice.",
            hint="Write the value itself, or keep it in a table.",
        )
    known = {(name.schema.lower(), name.table.lower()) for name in analysis.tables}
    hidden = sorted(reads.tables - known)
    if hidden:
        raise HeadraceError(
            "unsupported_source",
            f"The query reads {'.'.join(hidden[0])} in a way that cannot be followed: by IDENTIFIER, TABLE, "
            "a table function, or inside a function.",
            hint="Name the table in a FROM clause of the query itself.",
        )
    if reads.moments and not analysis.time_dependent:
        text = min(reads.moments)
        raise HeadraceError(
            "unsupported_source",
            f"'{text}' is read as the moment at which the query runs.",
            hint=f"Write CAST('{text}' AS TIMESTAMP), which is understood so.",
        )


def _check_settings(view: TableName, other: str | None) -> None:
    if other is not None:
        raise HeadraceError(
            "unsupported_source",
            f"The view {view} was made under {other}: Spark reads it as it was meant then.",
            hint="Make the view anew in this session, or set the same here.",
        )


def _output_columns(schema: StructType, tree: exp.Query) -> tuple[tuple[str, str], ...]:
    """Give the output's columns, or refuse those that no table could have."""
    seen: dict[str, str] = {}
    for index, field in enumerate(schema.fields, start=1):
        _check_column(index, field, tree)
        if field.name.lower() in seen:
            raise HeadraceError(
                "duplicate_column",
                f"The query has two output columns named {field.name!r}.",
                hint="Give one of them another name with AS.",
            )
        seen[field.name.lower()] = field.name
    return tuple((field.name, field.dataType.simpleString()) for field in schema.fields)


def _check_column(index: int, field: StructField, tree: exp.Query) -> None:
    if field.metadata.get("__autoGeneratedAlias") and not _is_column_below(field.name, tree):
        raise HeadraceError(
            "unnamed_column",
            f"Output column {index}, {field.name}, has no name.",
            hint="Name it with AS.",
        )
    type_ = field.dataType.simpleString()
    if any(word in type_ for word in _UNSTORABLE):
        raise HeadraceError(
            "unsupported_type",
            f"Output column {field.name!r} has type {type_}, which a Delta table cannot store.",
            hint="Cast it to another type.",
        )
    if " collate " in type_:
        raise HeadraceError(
            "unsupported_type",
            f"Output column {field.name!r} has type {type_}, which a Delta table cannot store.",
            hint="Cast it to the same type without the collation, such as CAST(name AS STRING).",
        )


def _is_column_below(name: str, tree: exp.Query) -> bool:
    """Tell whether an output column is one of a subquery, which may have named it: `(…) AS s (n)`.

    Spark remembers of such a column only that its expression had no name.
    """
    if any(item.is_star for item in tree.selects):
        return name.isidentifier()
    return any(isinstance(item, exp.Column) and item.name.lower() == name.lower() for item in tree.selects)
