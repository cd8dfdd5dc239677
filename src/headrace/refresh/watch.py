"""What happened to the sources besides changes of rows: made anew, or their history lost."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.catalog import Frontier, StreamTable
from headrace.sources.registry import Sources
from headrace.sql.names import TableName


def lost_history(
    sources: Sources, table: StreamTable, frontier: Frontier, changed: Sequence[TableName]
) -> str | None:
    """Say why the change since the frontier can no longer be told, or None where it can."""
    old = table.frontier or {}
    for name in changed:
        if str(name) not in old:
            return f"{name} is read for the first time"
        before, now = old[str(name)], frontier[str(name)]
        if before.table_id != now.table_id:
            return f"{name} was created anew"
        if now.version < before.version:
            return f"{name} went back from version {before.version} to {now.version}"
        log = sources.find(name).log
        gone = [v for v in range(before.version + 1, now.version + 1) if log.stamp(v) is None]
        if gone:
            return f"the log of {name} no longer holds version {gone[0]}"
    return None
