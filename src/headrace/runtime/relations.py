"""What a name means in a Spark session: a table, a view or nothing, without running a job."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote, urlparse
from weakref import WeakKeyDictionary

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from headrace.runtime.session import has_jvm
from headrace.sql.analysis import Column, Table, View
from headrace.sql.names import SESSION_CATALOG, TableName, quote


@dataclass(frozen=True)
class Described:
    """A table's storage as the session's catalog knows it."""

    provider: str
    location: str
    is_view: bool


def describe(spark: SparkSession, name: TableName) -> Described | None:
    """Look a name up in the session's catalog; a Spark Connect session is asked through SQL."""
    if has_jvm(spark) and name.catalog == SESSION_CATALOG:
        return _describe_by_jvm(spark, name)
    return _describe_by_sql(spark, name)


def resolve(spark: SparkSession, name: TableName) -> Table | View | None:
    """Give a name's columns and, for a view, its text."""
    described = describe(spark, name)
    if described is None:
        return None
    schema = spark.table(name.sql).schema
    columns = tuple(Column(field.name, field.dataType.simpleString()) for field in schema.fields)
    if not described.is_view:
        return Table(name, columns)
    return _view(spark, name, columns)


def local_path(location: str) -> str:
    """Turn a file URI into a path and leave other stores as they are.

    >>> local_path("file:/lake%20one/t")
    '/lake one/t'
    """
    parsed = urlparse(location)
    return unquote(parsed.path) if parsed.scheme == "file" else location


def _describe_by_jvm(spark: SparkSession, name: TableName) -> Described | None:
    """Ask the session's catalog; what it says the same as before was taken apart before.

    Every call into the JVM costs a good part of a millisecond, and a refresh with nothing to do asks for all
    its sources.
    """
    known = _known.setdefault(spark, {})
    entry = known.get(name) or _Entry(spark, name)
    try:
        found = entry.catalog.getTableMetadata(entry.identifier)
    except AnalysisException:
        known.pop(name, None)
        return None
    if entry.metadata is None or not found.equals(entry.metadata):
        entry.metadata, entry.described = found, _taken_apart(found)
    known[name] = entry
    return entry.described


class _Entry:
    """A name as the JVM knows it, and what its catalog last said of it."""

    def __init__(self, spark: SparkSession, name: TableName) -> None:
        jvm: Any = spark._jvm
        self.catalog: Any = spark._jsparkSession.sessionState().catalog()
        self.identifier: Any = jvm.org.apache.spark.sql.catalyst.TableIdentifier(
            name.table, jvm.scala.Option.apply(name.schema), jvm.scala.Option.apply(name.catalog)
        )
        self.metadata: Any = None
        self.described: Described | None = None


_known: WeakKeyDictionary[SparkSession, dict[TableName, _Entry]] = WeakKeyDictionary()


def _taken_apart(found: Any) -> Described:
    if found.tableType().name() == "VIEW":
        return Described("", "", is_view=True)
    location = local_path(found.location().toString())
    return Described(found.provider().get() if found.provider().isDefined() else "", location, is_view=False)


def _describe_by_sql(spark: SparkSession, name: TableName) -> Described | None:
    try:
        rows = spark.sql(f"DESCRIBE TABLE EXTENDED {name.sql}").collect()
    except AnalysisException:
        return None
    facts = {row[0]: row[1] for row in rows}
    location = local_path(str(facts.get("Location", "")).replace(" ", "%20"))
    return Described(str(facts.get("Provider", "")), location, facts.get("Type") == "VIEW")


def _view(spark: SparkSession, name: TableName, columns: tuple[Column, ...]) -> View:
    described = spark.sql(f"DESCRIBE TABLE EXTENDED {name.sql} AS JSON").collect()[0][0]
    facts = json.loads(described)
    text, output = facts["view_text"], facts.get("view_query_output_columns") or []
    if output and output != [column.name for column in columns]:
        # The view renames its columns: CREATE VIEW v (x) AS SELECT a …
        pairs = zip(output, columns, strict=True)
        text = "SELECT {} FROM ({}\n)".format(
            ", ".join(f"{quote(old)} AS {quote(new.name)}" for old, new in pairs), text
        )
    schema = facts.get("view_catalog_and_namespace", "").split(".")[-1] or name.schema
    return View(name, text, schema, columns)
