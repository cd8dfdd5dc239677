"""Undo a write by RESTORE, without taking away what others wrote."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.sql import SparkSession

from headrace.catalog import SourceVersion
from headrace.refresh.failure import root_cause
from headrace.sources.log import DeltaLog
from headrace.sources.registry import Sources
from headrace.sql.names import TableName


def undo_write(
    spark: SparkSession,
    sources: Sources,
    name: TableName,
    before: SourceVersion | None,
    after: SourceVersion | None,
    writes: int,
) -> str | None:
    """Take a table back to the version before some writes; say why that may not be."""
    if before is None or after is None or after.version <= before.version:
        return f"{name} keeps it, since what the table was before is gone"
    try:
        log = sources.find(name).log
        if after.version - before.version > writes or log.newest_version() != after.version:
            return _others(name)
        return _restore(spark, log, name, before.version, after.version)
    except Exception as error:  # noqa: BLE001 - the first failure is the one to be raised
        return f"{name} keeps it, since restoring failed: {root_cause(error)}"


def _restore(spark: SparkSession, log: DeltaLog, name: TableName, before: int, after: int) -> str | None:
    """Restore the version before, and put it right where others wrote between the look and the commit."""
    restored = _restore_to(spark, log, name, before, after)
    if restored == after + 1:
        return None
    theirs = restored - 1
    if log.newest_version() == restored:
        again = _restore_to(spark, log, name, theirs, restored)
        if again == restored + 1:
            return _others(name)
        theirs = again - 1
    return (
        f"others wrote to {name} again and again meanwhile, so that it lacks rows of version {theirs}: "
        f"read them with VERSION AS OF {theirs}, and write them again"
    )


def _restore_to(spark: SparkSession, log: DeltaLog, name: TableName, version: int, after: int) -> int:
    """Restore a version; give the version that this made, which is after all that it took away."""
    spark.sql(f"RESTORE TABLE {name.sql} TO VERSION AS OF {version}").collect()
    newest = log.newest_version()
    for made in range(after + 1, newest + 1 if newest is not None else 0):
        commit = log.commit(made)
        if commit is not None and commit.operation == "RESTORE" and _aim(commit.info) == version:
            return made
    raise LookupError(f"no RESTORE to version {version} is in the log")


def _aim(info: Mapping[str, Any]) -> int | None:
    """Give the version to which a commit restored; Delta writes it as text."""
    aim = (info.get("operationParameters") or {}).get("version")
    return int(aim) if aim is not None else None


def _others(name: TableName) -> str:
    return f"{name} keeps it, since others have written to it meanwhile"
