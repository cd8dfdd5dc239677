"""What Spark says that a query reads, to be held against what was found in its text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from pyspark.sql import SparkSession

from headrace.runtime.analyzed import analyzed_plan, kind_of, nodes_of
from headrace.runtime.session import has_jvm
from headrace.sql.names import SESSION_CATALOG, TableName
from headrace.sql.refusals import MOMENT

# Settings that decide what a text means.
_ZONE = "spark.sql.session.timeZone"
_MEANING = (
    _ZONE,
    "spark.sql.ansi.enabled",
    "spark.sql.caseSensitive",
    "spark.sql.groupByOrdinal",
    "spark.sql.orderByOrdinal",
    "spark.sql.groupByAliases",
    "spark.sql.mapKeyDedupPolicy",
    "spark.sql.decimalOperations.allowPrecisionLoss",
)
_UTC = dict.fromkeys(("Etc/UTC", "Z", "GMT", "Etc/GMT"), "UTC")
_TIMES = ("date", "timestamp", "timestamp_ntz")


@dataclass(frozen=True)
class Reads:
    """Tables by schema and name, temporary views, session variables, texts that mean a moment, time zones."""

    tables: frozenset[tuple[str, str]] = frozenset()
    temporary_views: frozenset[str] = frozenset()
    variables: frozenset[str] = frozenset()
    moments: frozenset[str] = frozenset()
    time_zones: frozenset[str] = frozenset()


def reads_of(spark: SparkSession, query: str) -> Reads:
    """Ask Spark what a query reads, wherever in it; a Spark Connect session does not tell."""
    plan = analyzed_plan(spark, query)
    nodes = list(nodes_of(plan))
    names = [table["identifier"] for table in _values(nodes, "LogicalRelation", "catalogTable")]
    return Reads(
        frozenset((str(name.get("database", "")).lower(), str(name["table"]).lower()) for name in names),
        frozenset(str(node["desc"]["identifier"]["table"]) for node in nodes if node.get("isTempView")),
        frozenset(str(name).strip("[]") for name in _values(nodes, "VariableReference", "originalNameParts")),
        frozenset(_moments(plan)),
        frozenset(str(node["timeZoneId"]) for node in nodes if node.get("timeZoneId") and _needs_zone(node)),
    )


def setting_of_view(spark: SparkSession, name: TableName, reads: Reads) -> str | None:
    """Name a setting under which a view was made and that is another one in this session, with both values.

    Spark reads a view under the settings of its maker; what stands in its place in a query cannot have any.
    """
    if not has_jvm(spark) or name.catalog != SESSION_CATALOG:
        return None
    jvm: Any = spark._jvm
    some = jvm.scala.Option.apply
    identifier = jvm.org.apache.spark.sql.catalyst.TableIdentifier(
        name.table, some(name.schema), some(name.catalog)
    )
    made = spark._jsparkSession.sessionState().catalog().getTableMetadata(identifier).viewSQLConfigs()
    usual = jvm.org.apache.spark.sql.internal.SQLConf()
    for key in _MEANING:
        kept = made.get(key)
        there = str(kept.get() if kept.isDefined() else usual.getConfString(key))
        here = str(spark.conf.get(key))
        is_used = key != _ZONE or any(_differ(zone, here) for zone in reads.time_zones)
        if is_used and _differ(there, here):
            return f"{key} = {there}, which is {here} here"
    return None


def _differ(there: str, here: str) -> bool:
    return _UTC.get(there, there).lower() != _UTC.get(here, here).lower()


def _needs_zone(node: dict[str, Any]) -> bool:
    """Tell whether a time zone matters: every cast has one, and those to numbers make nothing of it."""
    return not kind_of(node).endswith("Cast") or node.get("dataType") in (*_TIMES, "string")


def _values(nodes: Iterable[dict[str, Any]], kind: str, field: str) -> Iterator[Any]:
    return (node[field] for node in nodes if kind_of(node) == kind and node.get(field))


def _moments(part: Any) -> Iterator[str]:
    """Find texts that are cast to a time; Spark lists what an expression is made of right behind it."""
    if isinstance(part, dict):
        part = list(part.values())
    if not isinstance(part, list):
        return
    for one, after in zip_longest(part, part[1:]):
        if isinstance(one, dict) and isinstance(after, dict) and str(one.get("class", "")).endswith("Cast"):
            value = str(after.get("value", ""))
            if one.get("dataType") in _TIMES and MOMENT.fullmatch(value):
                yield value
        yield from _moments(one)
