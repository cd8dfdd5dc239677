"""The history of refreshes: a row when one starts, and its end together with what it moved."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Unpack

from sqlalchemy import ColumnElement, Connection, Row, and_, case, delete, func, insert, null, select, update

from headrace.catalog import schema
from headrace.catalog.database import Database
from headrace.catalog.definitions import change_table, raise_unknown
from headrace.catalog.leases import Lease, break_dead_leases, live_lease_of
from headrace.catalog.owners import is_dead
from headrace.catalog.records import (
    Action,
    RefreshOutcome,
    RefreshRecord,
    RefreshState,
    Status,
    StreamTable,
    StreamTableChanges,
)
from headrace.errors import HeadraceError
from headrace.sql.names import TableName

_tables = schema.stream_tables
_history = schema.refresh_history
_columns = [column for column in _history.c if column.name != "lease_token"]
_BLANK = {"rows_inserted": 0, "rows_deleted": 0, "delta_row_count": 0, "spark_jobs": 0, "details": {}}


class History:
    """The part of the catalog that knows what every refresh did."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def start_refresh(
        self,
        name: TableName,
        *,
        reason: str,
        data_timestamp: datetime | None = None,
        lease: Lease | None = None,
        details: Mapping[str, Any] | None = None,
    ) -> int:
        """Write down that a refresh runs; with the lease it runs under, its death is noticed for certain.

        What is told of it here is all that is known of it if it dies.
        """
        with self._database.write() as connection:
            row = connection.execute(select(_tables.c.id).where(_tables.c.name == name)).first()
            if row is None:
                raise_unknown(connection, name)
            values = _BLANK | {
                "stream_table": name,
                "stream_table_id": row.id,
                "state": RefreshState.RUNNING,
                "reason": reason,
                "started_at": datetime.now(UTC),
                "data_timestamp": data_timestamp,
                "lease_token": lease.token if lease else None,
                "details": dict(details or {}),
            }
            return int(
                connection.execute(insert(_history).values(values).returning(_history.c.id)).scalar_one()
            )

    def finish_refresh(
        self,
        refresh_id: int,
        *,
        state: RefreshState,
        changes: StreamTableChanges | None = None,
        answered: str | None = None,
        **outcome: Unpack[RefreshOutcome],
    ) -> RefreshRecord:
        """End a refresh and move its stream table on, in one transaction.

        COMPLETED clears the table's errors and FAILED counts one more, unless `changes` says otherwise. What
        was said of the table while the refresh ran outlives it: that it is suspended, and a reason to load it
        anew that is not the one `answered`.
        """
        with self._database.write() as connection:
            running = (_history.c.id == refresh_id) & (_history.c.state == RefreshState.RUNNING)
            started = connection.execute(select(*_columns).where(running).with_for_update()).first()
            if started is None:
                raise _not_running(connection, refresh_id)
            values = _end(state, started.started_at, outcome)
            row = connection.execute(
                update(_history).where(_history.c.id == refresh_id).values(values).returning(*_columns)
            ).one()
            one = _tables.c.id == row.stream_table_id
            moved = _move(connection, one, state, values, _unanswered(changes, answered))
            if moved is None:
                raise_unknown(connection, row.stream_table)
            return _record(row)

    def record_refresh(
        self,
        name: TableName,
        *,
        state: RefreshState,
        started_at: datetime,
        changes: StreamTableChanges | None = None,
        **outcome: Unpack[RefreshOutcome],
    ) -> RefreshRecord:
        """Write a refresh that has already ended, and move its stream table on, in one transaction."""
        with self._database.write() as connection:
            values = _end(state, started_at, outcome)
            moved = _move(connection, _tables.c.name == name, state, values, changes)
            if moved is None:
                raise_unknown(connection, name)
            values = {"reason": "", **_BLANK, **values}
            values |= {"stream_table": name, "stream_table_id": moved.id, "started_at": started_at}
            return _record(connection.execute(insert(_history).values(values).returning(*_columns)).one())

    def history(self, name: TableName | None = None, limit: int | None = None) -> list[RefreshRecord]:
        """The refreshes of one stream table or of all, the newest first."""
        query = select(*_columns).order_by(_history.c.id.desc()).limit(limit)
        if name is not None:
            query = query.where(_history.c.stream_table == name)
        with self._database.read() as connection:
            return [_record(row) for row in connection.execute(query)]

    def completed(
        self, stream_table_id: str, name: TableName, actions: Collection[Action], limit: int
    ) -> list[RefreshRecord]:
        """The last refreshes of one kind of a stream table that ended well, the newest first.

        Those of a table that had the name before are not among them.
        """
        query = select(*_columns).order_by(_history.c.id.desc()).limit(limit)
        query = query.where(_completed(stream_table_id, name, actions))
        with self._database.read() as connection:
            return [_record(row) for row in connection.execute(query)]

    def count_completed(
        self, stream_table_id: str, name: TableName, actions: Collection[Action], *, after: int
    ) -> int:
        """How many refreshes of one kind of a stream table ended well after a given one."""
        query = select(func.count()).where(_completed(stream_table_id, name, actions), _history.c.id > after)
        with self._database.read() as connection:
            return int(connection.scalar(query) or 0)

    def running(self) -> list[RefreshRecord]:
        """The refreshes that have started and not ended, whether or not their process still lives."""
        query = select(*_columns).where(_history.c.state == RefreshState.RUNNING).order_by(_history.c.id)
        with self._database.read() as connection:
            return [_record(row) for row in connection.execute(query)]

    def prune_history(self, *, older_than: timedelta) -> int:
        """Forget refreshes and alerts that are older; a table's newest refresh and running ones stay."""
        before = datetime.now(UTC) - older_than
        newest = select(func.max(_history.c.id)).group_by(_history.c.stream_table_id)
        old = and_(
            _history.c.started_at < before,
            _history.c.state != RefreshState.RUNNING,
            _history.c.id.not_in(newest),
        )
        with self._database.write() as connection:
            connection.execute(delete(schema.alerts).where(schema.alerts.c.raised_at < before))
            return connection.execute(delete(_history).where(old)).rowcount

    def fail_running(
        self,
        *,
        owner_is_dead: Callable[[str], bool] = is_dead,
        reason: str = "The process that ran this refresh is gone.",
    ) -> list[RefreshRecord]:
        """Mark as FAILED every refresh whose lease is gone, has expired, or belongs to a dead owner."""
        orphan = (_history.c.state == RefreshState.RUNNING) & ~live_lease_of(
            _history.c.stream_table, _history.c.lease_token
        )
        values = {
            "state": RefreshState.FAILED,
            "ended_at": datetime.now(UTC),
            "error_code": "refresh_interrupted",
            "error": reason,
        }
        with self._database.write() as connection:
            break_dead_leases(connection, owner_is_dead)
            rows = connection.execute(update(_history).where(orphan).values(values).returning(*_columns))
            return sorted((_record(row) for row in rows), key=lambda record: record.id)


def _completed(stream_table_id: str, name: TableName, actions: Collection[Action]) -> ColumnElement[bool]:
    return and_(
        _history.c.stream_table == name,
        _history.c.stream_table_id == stream_table_id,
        _history.c.state == RefreshState.COMPLETED,
        _history.c.action.in_(actions),
    )


def _record(row: Row[Any]) -> RefreshRecord:
    return RefreshRecord(**row._mapping)


def _end(state: RefreshState, started_at: datetime, outcome: RefreshOutcome) -> dict[str, Any]:
    ended_at = outcome.get("ended_at") or datetime.now(UTC)
    elapsed = max(0.0, (ended_at - started_at).total_seconds() * 1000)
    return {"duration_ms": elapsed, **outcome, "state": state, "ended_at": ended_at}


def _move(
    connection: Connection,
    where: Any,
    state: RefreshState,
    values: Mapping[str, Any],
    changes: Mapping[str, Any] | None,
) -> StreamTable | None:
    moved: dict[str, Any] = {}
    if state is not RefreshState.SKIPPED:
        moved["last_refresh_at"] = values["ended_at"]
    if state is RefreshState.COMPLETED:
        moved |= {"consecutive_errors": 0, "last_error": None}
    if state is RefreshState.FAILED:
        moved |= {"consecutive_errors": _tables.c.consecutive_errors + 1, "last_error": values.get("error")}
    moved |= changes or {}
    if "status" in moved:
        suspended = _tables.c.status == Status.SUSPENDED
        moved["status"] = case((suspended, _tables.c.status), else_=moved["status"])
    return change_table(connection, where, moved)


def _unanswered(changes: StreamTableChanges | None, answered: str | None) -> dict[str, Any]:
    """Clear no reason to load anew but the one that was seen."""
    moved: dict[str, Any] = dict(changes or {})
    if "reinitialize_reason" in moved and moved["reinitialize_reason"] is None:
        reason = _tables.c.reinitialize_reason
        moved["reinitialize_reason"] = case((reason.is_not_distinct_from(answered), null()), else_=reason)
    return moved


def _not_running(connection: Connection, refresh_id: int) -> HeadraceError:
    state = connection.scalar(select(_history.c.state).where(_history.c.id == refresh_id))
    known = f"is {state} already" if state else "is unknown"
    return HeadraceError(
        "refresh_not_running",
        f"Refresh {refresh_id} {known}.",
        hint="Another process took the table over, or it was dropped: refresh it again.",
    )
