"""What Spark says that a query reads, to be held against what was found in its text."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from pyspark.sql import SparkSession

from headrace.runtime.session import has_jvm
from headrace.sql.names import TableName
from headrace.sql.refusals import MOMENT

# Settings that decide what a text means.
_MEANING = (
    "spark.sql.session.timeZone",
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
    """Tables by schema and name, temporary views, session variables, and texts that mean a moment."""

    tables: frozenset[tuple[str, str]] = frozenset()
    temporary_views: frozenset[str] = frozenset()
    variables: frozenset[str] = frozenset()
    moments: frozenset[str] = frozenset()


def reads_of(spark: SparkSession, query: str) -> Reads:
    """Ask Spark what a query reads, wherever in it; a Spark Connect session does not tell."""
    if not has_jvm(spark):
        return Reads()
    plan = json.loads(spark.sql(query)._jdf.queryExecution().analyzed().toJSON())
    nodes = list(_nodes(plan))
    names = [table["identifier"] for table in _values(nodes, "LogicalRelation", "catalogTable")]
    return Reads(
        frozenset((str(name.get("database", "")).lower(), str(name["table"]).lower()) for name in names),
        frozenset(str(node["desc"]["identifier"]["table"]) for node in nodes if node.get("isTempView")),
        frozenset(str(name).strip("[]") for name in _values(nodes, "VariableReference", "originalNameParts")),
        frozenset(_moments(plan)),
    )


def setting_of_view(spark: SparkSession, name: TableName) -> str | None:
    """Name a setting under which a view was made and that is another one in this session, with both values.

    Spark reads a view under the settings of its maker; what stands in its place in a query cannot have any.
    """
    if not has_jvm(spark):
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
        if _UTC.get(there, there).lower() != _UTC.get(here, here).lower():
            return f"{key} = {there}, which is {here} here"
    return None


def _nodes(part: Any) -> Iterator[dict[str, Any]]:
    if isinstance(part, dict):
        if "class" in part:
            yield part
        part = list(part.values())
    if isinstance(part, list):
        for item in part:
            yield from _nodes(item)


def _values(nodes: Iterable[dict[str, Any]], kind: str, field: str) -> Iterator[Any]:
    return (node[field] for node in nodes if str(node["class"]).endswith(f".{kind}") and node.get(field))


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
