"""What a name means in a Spark session: a table, a view or nothing, without running a job."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote, urlparse

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
    catalog = spark._jsparkSession.sessionState().catalog()
    identifier = _table_identifier(spark, name)
    if not catalog.tableExists(identifier):
        return None
    found = catalog.getTableMetadata(identifier)
    if found.tableType().name() == "VIEW":
        return Described("", "", is_view=True)
    location = local_path(found.location().toString())
    return Described(found.provider().get() if found.provider().isDefined() else "", location, is_view=False)


def _table_identifier(spark: SparkSession, name: TableName) -> Any:
    jvm: Any = spark._jvm
    return jvm.org.apache.spark.sql.catalyst.TableIdentifier(
        name.table, jvm.scala.Option.apply(name.schema), jvm.scala.Option.apply(name.catalog)
    )


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
