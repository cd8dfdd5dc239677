"""The checks on what a query reads and how it can be maintained.

They are made when it is written, and again when a view that it reads has another text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter

from pyspark.sql import SparkSession

from headrace.catalog import Catalog, Dependency, RefreshMode
from headrace.catalog.records import DependencyKind
from headrace.errors import HeadraceError, Position, shift
from headrace.plan.build import Plan
from headrace.plan.collations import collated_source_column, picks_among_equals
from headrace.plan.nodes import Opaque
from headrace.runtime.relations import describe
from headrace.sources.registry import unsupported_source
from headrace.sql.analysis import Analysis
from headrace.sql.names import TableName
from headrace.sql.refusals import Refusal

# The type, and no field of this name.
_VARIANT = re.compile(r"(?:^|[<:,])variant(?=$|[>,])")


def dependencies_of(
    spark: SparkSession, catalog: Catalog, name: TableName, analysis: Analysis
) -> tuple[Dependency, ...]:
    """List what a stream table's query reads, or refuse a source that is not ours to follow, and a circle."""
    kinds = _source_kinds(spark, catalog, analysis)
    dependencies = tuple(
        [Dependency(name, source, kinds[source], analysis.sources[source]) for source in analysis.sources]
        + [Dependency(name, view, "VIEW", ()) for view in analysis.views]
    )
    _check_no_cycle(catalog, name, dependencies)
    return dependencies


def effective_mode(
    mode: RefreshMode,
    refusals: Sequence[Refusal],
    plan: Plan,
    columns: Sequence[tuple[str, str]],
    offset: Position | None = None,
) -> tuple[str, str]:
    """Decide how a table of this mode is refreshed, and say why; refuse a mode that its query cannot have."""
    if mode is RefreshMode.FULL:
        return "FULL", "refresh mode FULL"
    if refusals:
        refusal = refusals[0]
        if mode is not RefreshMode.AUTO:
            raise HeadraceError(
                refusal.code,
                f"This query cannot be maintained incrementally: {refusal.construct}: {refusal.reason}",
                hint=refusal.hint or "Use REFRESH MODE FULL.",
                position=shift(refusal.position, offset),
            )
        return "FULL", f"{refusal.construct}: {refusal.reason}"
    ungroupable = _ungroupable(plan, columns)
    if ungroupable is not None:
        reason, hint = ungroupable
        if mode is not RefreshMode.AUTO:
            raise HeadraceError(
                "ungroupable_type",
                f"This query cannot be maintained incrementally: {reason}.",
                hint=f"{hint}, or use REFRESH MODE FULL.",
            )
        return "FULL", reason
    if isinstance(plan.root, Opaque) and mode is RefreshMode.AUTO:
        return "FULL", f"the query has no operators of its own: {plan.root.reason}"
    return "DIFFERENTIAL", "every operator of the query has a rule"


def _ungroupable(plan: Plan, columns: Sequence[tuple[str, str]]) -> tuple[str, str] | None:
    """Say which values cannot be told apart, and what to write instead."""
    variants = [name for name, type_ in columns if _VARIANT.search(type_)]
    if variants:
        return (
            f"output column {variants[0]!r} is a VARIANT, of which Spark cannot tell equal ones",
            "Show its parts with variant_get or its text with to_json",
        )
    nested = next(_variants_inside(plan), None)
    if nested is not None:
        column, type_ = nested
        return (
            f"source column {column} holds VARIANT inside {type_}, of which changes cannot be netted out",
            "Keep the VARIANT in a column of its own, or leave this column out of the query",
        )
    collated = collated_source_column(plan)
    if collated is not None:
        return (
            f"source column {collated} has a collation, by which different values are equal",
            "Give the source's column the collation UTF8_BINARY",
        )
    picked = picks_among_equals(plan.root)
    if picked is not None:
        return (
            f"{picked} shows one of several values that a collation calls equal, and any of them would do",
            "Compare what is the same for all of them, such as lower(name)",
        )
    return None


def _variants_inside(plan: Plan) -> Iterator[tuple[str, str]]:
    """Name the columns of sources that the query uses and that have VARIANT within them, with their types."""
    for source, used in plan.analysis.sources.items():
        types = plan.types_of(source)
        for column in used:
            type_ = types.get(column, types.get(column.lower(), ""))
            if type_ != "variant" and _VARIANT.search(type_):
                yield f"{source}.{column}", type_


def _source_kinds(
    spark: SparkSession, catalog: Catalog, analysis: Analysis
) -> Mapping[TableName, DependencyKind]:
    if not analysis.sources:
        return {}
    stream_tables = {table.name for table in catalog.all()}
    kinds: dict[TableName, DependencyKind] = {}
    for source in analysis.sources:
        found = describe(spark, source)
        if found is not None and found.provider != "delta":
            raise unsupported_source(source, found.provider)
        kinds[source] = "STREAM_TABLE" if source in stream_tables else "TABLE"
    return kinds


def _check_no_cycle(catalog: Catalog, name: TableName, dependencies: Sequence[Dependency]) -> None:
    """Refuse a stream table that would read itself, directly or through others, with the path."""
    graph: dict[TableName, set[TableName]] = {}
    for dependency in [*catalog.dependencies(), *dependencies]:
        if dependency.stream_table == name and dependency not in dependencies:
            continue
        graph.setdefault(dependency.stream_table, set()).add(dependency.source)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        path = " -> ".join(str(table) for table in reversed(error.args[1]))
        raise HeadraceError(
            "cycle",
            f"{name} would read itself: {path}.",
            hint="Take the circle out of the query; a stream table reads what is upstream of it only.",
        ) from None
