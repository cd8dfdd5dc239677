"""What a tick of the schedule writes for many stream tables at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, func, insert, select, update

from headrace.catalog import schema
from headrace.catalog.database import Database
from headrace.catalog.leases import now_ms
from headrace.catalog.records import Action, RefreshState, Status, StreamTable
from headrace.sql.names import TableName

_tables = schema.stream_tables
_history = schema.refresh_history
_leases = schema.leases
# Databases bound the number of parameters of one statement.
_BATCH = 5000


class Ticks:
    """The part of the catalog that moves many stream tables in one transaction."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def note_no_data(self, tables: Sequence[StreamTable], moment: datetime, *, reason: str) -> set[TableName]:
        """Move tables whose sources did not change on to a later moment, and name those that were moved.

        A table that was changed since it was read, or that somebody refreshes now, is left alone. In the
        history, NO_DATA after NO_DATA prolongs the row that is there: it covers all moments up to its own.
        """
        moved: set[TableName] = set()
        with self._database.write() as connection:
            for batch in _batches(tables):
                rows = _untouched(connection, batch, moment)
                if rows:
                    _move(connection, rows, moment, reason)
                    moved |= {row.name for row in rows}
        return moved

    def note_skipped(self, reasons: Mapping[TableName, str], moment: datetime) -> None:
        """Write down that tables were left as they are, and why; the same reason again prolongs its row."""
        with self._database.write() as connection:
            for name, reason in reasons.items():
                _skip(connection, name, reason, moment)


def _skip(connection: Connection, name: TableName, reason: str, moment: datetime) -> None:
    row = connection.execute(select(_tables.c.id).where(_tables.c.name == name)).first()
    if row is None:
        return
    now = datetime.now(UTC)
    newest = select(func.max(_history.c.id)).where(_history.c.stream_table == name).scalar_subquery()
    prolonged = connection.execute(
        update(_history)
        .where(
            _history.c.id == newest,
            _history.c.state == RefreshState.SKIPPED,
            _history.c.reason == reason,
        )
        .values(data_timestamp=moment, ended_at=now)
    )
    if prolonged.rowcount == 0:
        ended = _ended(row.id, name, moment, now, reason)
        values = ended | {"state": RefreshState.SKIPPED, "action": Action.SKIPPED}
        connection.execute(insert(_history).values(values))


def _batches(tables: Sequence[StreamTable]) -> Iterator[Sequence[StreamTable]]:
    for start in range(0, len(tables), _BATCH):
        yield tables[start : start + _BATCH]


def _untouched(connection: Connection, tables: Sequence[StreamTable], moment: datetime) -> list[Any]:
    """Lock and give the rows that are as they were read, each with the id of its newest refresh."""
    newest = (
        select(func.max(_history.c.id))
        .where(_history.c.stream_table == _tables.c.name)
        .correlate(_tables)
        .scalar_subquery()
    )
    leased = (
        select(_leases.c.name)
        .where(_leases.c.name == _tables.c.name, _leases.c.expires_ms > now_ms())
        .exists()
    )
    query = (
        select(_tables.c.id, _tables.c.name, _tables.c.updated_at, newest.label("newest"))
        .where(
            _tables.c.id.in_([table.id for table in tables]),
            _tables.c.status == Status.ACTIVE,
            _tables.c.data_timestamp < moment,
            ~leased,
        )
        .with_for_update()
    )
    read = {table.id: table.updated_at for table in tables}
    return [row for row in connection.execute(query) if row.updated_at == read[row.id]]


def _move(connection: Connection, rows: Sequence[Any], moment: datetime, reason: str) -> None:
    now = datetime.now(UTC)
    ids = [row.id for row in rows]
    connection.execute(
        update(_tables)
        .where(_tables.c.id.in_(ids))
        .values(
            data_timestamp=moment, last_refresh_at=now, updated_at=now, consecutive_errors=0, last_error=None
        )
    )
    prolonged = connection.scalars(
        update(_history)
        .where(
            _history.c.id.in_([row.newest for row in rows if row.newest is not None]),
            _history.c.state == RefreshState.COMPLETED,
            _history.c.action == Action.NO_DATA,
        )
        .values(data_timestamp=moment, ended_at=now)
        .returning(_history.c.stream_table_id)
    )
    known = set(prolonged)
    fresh = [_ended(row.id, row.name, moment, now, reason) for row in rows if row.id not in known]
    if fresh:
        connection.execute(insert(_history), fresh)


def _ended(table_id: str, name: TableName, moment: datetime, now: datetime, reason: str) -> dict[str, Any]:
    """Give the history's row of a refresh that took no time and read no row."""
    return {
        "stream_table": name,
        "stream_table_id": table_id,
        "state": RefreshState.COMPLETED,
        "action": Action.NO_DATA,
        "reason": reason,
        "started_at": now,
        "ended_at": now,
        "data_timestamp": moment,
        "rows_inserted": 0,
        "rows_deleted": 0,
        "delta_row_count": 0,
        "duration_ms": 0.0,
        "spark_jobs": 0,
        "details": {},
    }
