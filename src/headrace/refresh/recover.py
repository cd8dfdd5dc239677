"""Bring the catalog in step with a stream table's own Delta log.

The log is the truth: a process may die after the commit and before the catalog is told, and somebody else may
write where only we should.
"""

from __future__ import annotations

import logging
from datetime import timedelta

from headrace.catalog import Action, Catalog, RefreshState, Status, StreamTable, this_owner
from headrace.catalog.records import RefreshOutcome, StreamTableChanges
from headrace.errors import HeadraceError
from headrace.sources.log import Commit
from headrace.storage.marker import Marker
from headrace.storage.table import Storage

_log = logging.getLogger(__name__)


def recover(catalog: Catalog, table: StreamTable) -> StreamTable:
    """Adopt commits of ours that the catalog missed; mark the table for REINITIALIZE after a foreign one."""
    storage = Storage(table.location, table.id)
    newest = storage.log.newest_version()
    if table.storage_version is None or newest is None:
        return table
    if newest < table.storage_version or storage.table_id() != table.table_id:
        return _distrust(catalog, table, None, "its Delta table was replaced by another")
    for commit, marker in storage.commits_since(table.storage_version):
        if marker is not None and commit is not None:
            table = _adopt(catalog, table, commit, marker)
        elif commit is None or commit.changes_data or commit.metadata is not None:
            table = _distrust(catalog, table, commit, "its Delta table was written by somebody else")
        else:
            table = catalog.update(table.name, storage_version=commit.version)
    return table


def _adopt(catalog: Catalog, table: StreamTable, commit: Commit, marker: Marker) -> StreamTable:
    """Write down a refresh whose process died between its commit and its record."""
    changes: StreamTableChanges = {
        "storage_version": commit.version,
        "frontier": marker.frontier,
        "data_timestamp": marker.data_timestamp,
        "last_refresh_at": commit.timestamp,
        "status": Status.ACTIVE,
        "reinitialize_reason": None if _replaced_all(commit, marker) else table.reinitialize_reason,
        "consecutive_errors": 0,
        "last_error": None,
    }
    outcome: RefreshOutcome = {
        "action": Action(marker.action),
        "reason": f"{marker.reason}; recorded after a crash",
        "rows_inserted": commit.metric("numOutputRows"),
        "rows_deleted": commit.metric("numDeletedRows"),
        "data_timestamp": marker.data_timestamp,
        "frontier": marker.frontier,
        "ended_at": commit.timestamp,
    }
    try:
        catalog.finish_refresh(
            marker.refresh,
            state=RefreshState.COMPLETED,
            changes=changes,
            answered=table.reinitialize_reason,
            **outcome,
        )
    except HeadraceError as error:
        if error.code != "refresh_not_running":
            raise
        # Somebody took the refresh for dead before its commit was seen: the history gets a row of its own.
        catalog.record_refresh(
            table.name,
            state=RefreshState.COMPLETED,
            started_at=marker.started_at,
            changes=changes,
            **outcome,
        )
    return catalog.find(table.name)


def _replaced_all(commit: Commit, marker: Marker) -> bool:
    """Tell whether a commit left no row of those before it, what came in just before it included.

    A full refresh may also have written no more than what differs from the version that it knew.
    """
    is_new = Action(marker.action) in (Action.FULL, Action.REINITIALIZE)
    mode = (commit.info.get("operationParameters") or {}).get("mode")
    is_whole = is_new and commit.operation == "WRITE" and mode == "Overwrite"
    return is_whole and int(commit.info.get("readVersion", -1)) == commit.version - 1


def _distrust(catalog: Catalog, table: StreamTable, commit: Commit | None, finding: str) -> StreamTable:
    reason = f"{finding}: version {commit.version} ({commit.operation})" if commit else finding
    if table.reinitialize_reason is None:
        catalog.raise_alert("reinitialize_needed", f"{table.name}: {reason}", table.name)
    changes: StreamTableChanges = {"reinitialize_reason": reason}
    if commit is not None:
        changes["storage_version"] = commit.version
    return catalog.update(table.name, **changes)


def recover_all(catalog: Catalog, *, ttl_seconds: float) -> None:
    """On connecting: adopt what a dead process committed, then mark what it left RUNNING as failed."""
    running = {record.stream_table for record in catalog.running()}
    for name in running:
        table = catalog.get(name)
        if table is None:
            continue
        ttl = timedelta(seconds=ttl_seconds)
        with catalog.lease(name, owner=this_owner(), ttl=ttl) as lease:
            if lease is not None:
                _recover_if_readable(catalog, table)
    if running:
        catalog.fail_running()


def _recover_if_readable(catalog: Catalog, table: StreamTable) -> None:
    """Recover a table, or leave it to its own next refresh where its storage cannot be read now."""
    try:
        recover(catalog, table)
    except HeadraceError as error:
        if error.code not in {"source_unreadable", "log_damaged"}:
            raise
        _log.warning("%s is not recovered yet: %s", table.name, error)
