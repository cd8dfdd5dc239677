"""See which table a statement changes where it names a temporary view of one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from headrace.runtime.relations import local_path
from headrace.runtime.session import has_jvm
from headrace.sql.names import quote
from headrace.sql.statements import TargetWrite

# Delta lets these through to the table of a temporary view that shows all of it; other views it refuses.
_THROUGH_VIEWS = frozenset({"UPDATE", "DELETE", "MERGE"})


def see_through(spark: SparkSession, write: TargetWrite) -> TargetWrite:
    """Give a write its real target, where that is behind a temporary view of the session."""
    if write.kind != "table" or write.verb not in _THROUGH_VIEWS or write.path is not None:
        return write
    name = ".".join(map(quote, write.name))
    try:
        if not spark.catalog.getTable(name).isTemporary:
            return write
        location = _location(spark, name)
    except AnalysisException:
        # A script may make a view before it writes through it.
        location = None
    if location is None:
        return replace(write, name=(), kind="dynamic")
    return replace(write, name=("delta", location))


def _location(spark: SparkSession, view: str) -> str | None:
    """Find where the one table lies that a view reads; None where that is not known."""
    if not has_jvm(spark):
        return None
    leaves: Any = spark.table(view)._jdf.queryExecution().analyzed().collectLeaves()
    if leaves.size() != 1:
        return None
    try:
        paths = leaves.apply(0).relation().location().rootPaths()
    except Py4JError:
        # It reads no files, and Delta has nothing to change in it.
        return None
    return local_path(paths.apply(0).toString()) if paths.size() == 1 else None
