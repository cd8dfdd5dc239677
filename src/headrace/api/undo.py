"""Undo a write by RESTORE, without taking away what others wrote."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession

from headrace.catalog import SourceVersion
from headrace.refresh.failure import root_cause
from headrace.sources.log import Commit, DeltaLog
from headrace.sources.registry import Sources
from headrace.sql.names import TableName


@dataclass(frozen=True)
class Since:
    """The versions of a table since one that may change what its readers see, by who wrote them."""

    own: tuple[int, ...] = ()
    others: tuple[int, ...] = ()


def commits_since(
    sources: Sources, name: TableName, before: SourceVersion | None, signature: str
) -> Since | None:
    """Tell the commits that bear a signature from those of others; None where the log cannot tell.

    Commits that only move rows or note something are neither: who undoes a write may undo them with it.
    """
    source = sources.find(name)
    newest, start = source.log.newest_version(), before.version if before is not None else -1
    if newest is None or newest < start:
        return None
    if before is not None and source.table_id(start) != before.table_id:
        return None
    own, others = list[int](), list[int]()
    for commit in source.log.commits(start, newest):
        if commit is None:
            return None
        if _matters(commit):
            (own if signature in commit.user_metadata else others).append(commit.version)
    return Since(tuple(own), tuple(others))


def undo_write(
    spark: SparkSession, sources: Sources, name: TableName, before: SourceVersion | None, signature: str
) -> str | None:
    """Take a table back to the version before the signed commits; say why that may not be."""
    try:
        since = commits_since(sources, name, before, signature) if before is not None else None
        if since is None:
            return f"{name} keeps it, since what the table was before is gone"
        if not since.own:
            return None
        if since.others and since.others[-1] > since.own[0]:
            return _others(name)
        return _restore(spark, sources.find(name).log, name, since.own[0] - 1, since.own[-1])
    except Exception as error:  # noqa: BLE001 - the first failure is the one to be raised
        return f"{name} keeps it, since restoring failed: {root_cause(error)}"


def _restore(spark: SparkSession, log: DeltaLog, name: TableName, before: int, after: int) -> str | None:
    """Restore the version before, and put it right where others wrote between the look and the commit."""
    restored = _restore_to(spark, log, name, before, after)
    if not _written_between(log, after, restored):
        return None
    theirs = restored - 1
    if log.newest_version() == restored:
        again = _restore_to(spark, log, name, theirs, restored)
        if not _written_between(log, restored, again):
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


def _written_between(log: DeltaLog, after: int, before: int) -> bool:
    """Tell whether anything was written between two versions."""
    return any(commit is None or _matters(commit) for commit in log.commits(after, before - 1))


def _matters(commit: Commit) -> bool:
    return commit.changes_data or commit.metadata is not None


def _aim(info: Mapping[str, Any]) -> int | None:
    """Give the version to which a commit restored; Delta writes it as text."""
    aim = (info.get("operationParameters") or {}).get("version")
    return int(aim) if aim is not None else None


def _others(name: TableName) -> str:
    return f"{name} keeps it, since others have written to it meanwhile"
