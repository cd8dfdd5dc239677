"""Stream tables and what they read: added, changed, renamed and removed whole or not at all."""

from __future__ import annotations

import dataclasses
import difflib
import uuid
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, NoReturn, Unpack

from sqlalchemy import Connection, bindparam, delete, insert, select, update
from sqlalchemy.exc import IntegrityError

from headrace.catalog import schema
from headrace.catalog.database import Database
from headrace.catalog.records import (
    Dependency,
    NewStreamTable,
    RefreshState,
    StreamTable,
    StreamTableChanges,
)
from headrace.errors import HeadraceError
from headrace.sql.names import TableName

_tables = schema.stream_tables
_dependencies = schema.dependencies
_history = schema.refresh_history

# Built once, since every refresh asks them.
_GENERATION = select(schema.catalog_state.c.generation)
_BY_NAME = select(_tables).where(_tables.c.name == bindparam("wanted"))
# What a refresh moves; a change of these alone leaves the definition, and the generation, as they are.
_PROGRESS = frozenset(
    {
        "status",
        "table_id",
        "storage_version",
        "frontier",
        "data_timestamp",
        "reinitialize_reason",
        "consecutive_errors",
        "last_error",
        "last_refresh_at",
    }
)


class Definitions:
    """The part of the catalog that knows which stream tables there are."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, table: NewStreamTable, dependencies: Sequence[Dependency]) -> StreamTable:
        """Add a stream table and what it reads; of two that add one name at once, one gets name_taken."""
        now = datetime.now(UTC)
        values = {field.name: getattr(table, field.name) for field in dataclasses.fields(table)}
        values |= {"id": uuid.uuid4().hex, "consecutive_errors": 0, "created_at": now, "updated_at": now}
        with self._database.write(durable=True) as connection:
            try:
                row = connection.execute(insert(_tables).values(values).returning(_tables)).one()
            except IntegrityError:
                raise _name_taken(table.name) from None
            stored = StreamTable(**row._mapping)
            _write_dependencies(connection, stored.id, dependencies)
            bump_generation(connection)
        return stored

    def get(self, name: TableName) -> StreamTable | None:
        with self._database.read() as connection:
            return read_table(connection, name)

    def find(self, name: TableName) -> StreamTable:
        """The stream table of this name, or unknown_stream_table with the nearest name there is."""
        with self._database.read() as connection:
            return read_table(connection, name) or raise_unknown(connection, name)

    def all(self) -> list[StreamTable]:
        with self._database.read() as connection:
            rows = connection.execute(select(_tables).order_by(_tables.c.name))
            return [StreamTable(**row._mapping) for row in rows]

    def update(self, name: TableName, **changes: Unpack[StreamTableChanges]) -> StreamTable:
        """Change fields of one stream table."""
        defines = not _PROGRESS.issuperset(changes)
        with self._database.write(durable=defines) as connection:
            stored = change_table(connection, _tables.c.name == name, changes)
            if defines:
                bump_generation(connection)
            return stored or raise_unknown(connection, name)

    def redefine(
        self, name: TableName, changes: StreamTableChanges, dependencies: Sequence[Dependency]
    ) -> StreamTable:
        """Change a definition and what it reads, in one transaction."""
        with self._database.write(durable=True) as connection:
            stored = change_table(connection, _tables.c.name == name, changes)
            if stored is None:
                raise_unknown(connection, name)
            connection.execute(delete(_dependencies).where(_dependencies.c.stream_table_id == stored.id))
            _write_dependencies(connection, stored.id, dependencies)
            bump_generation(connection)
        return stored

    def rename(self, old: TableName, new: TableName) -> StreamTable:
        """Rename a stream table everywhere the catalog names it: dependencies, frontiers, history, alerts."""
        with self._database.write(durable=True) as connection:
            try:
                stored = change_table(connection, _tables.c.name == old, {"name": new})
            except IntegrityError:
                raise _name_taken(new) from None
            if stored is None:
                raise_unknown(connection, old)
            readers = select(_dependencies.c.stream_table_id).where(_dependencies.c.source == old)
            for reader in connection.execute(select(_tables).where(_tables.c.id.in_(readers))).all():
                _move_frontier(connection, StreamTable(**reader._mapping), old, new)
            for column in (_dependencies.c.source, _history.c.stream_table, schema.alerts.c.stream_table):
                connection.execute(update(column.table).where(column == old).values({column: new}))
            bump_generation(connection)
        return stored

    def remove(self, name: TableName) -> None:
        """Remove a stream table that no other reads; its history stays until it is pruned."""
        with self._database.write(durable=True) as connection:
            row = connection.execute(
                select(_tables.c.id).where(_tables.c.name == name).with_for_update()
            ).first()
            if row is None:
                raise_unknown(connection, name)
            readers = [reader for reader in _read_dependents(connection, name) if reader != name]
            if readers:
                raise HeadraceError(
                    "has_dependents",
                    f"{name} is read by {', '.join(map(str, readers))}.",
                    hint="Drop them first, or use DROP STREAM TABLE … CASCADE.",
                )
            # SQLite and PostgreSQL both cascade to the dependencies.
            connection.execute(delete(_tables).where(_tables.c.id == row.id))
            unfinished = (_history.c.stream_table_id == row.id) & (_history.c.state == RefreshState.RUNNING)
            connection.execute(
                update(_history)
                .where(unfinished)
                .values(
                    state=RefreshState.FAILED,
                    ended_at=datetime.now(UTC),
                    error_code="unknown_stream_table",
                    error="The stream table was dropped during the refresh.",
                )
            )
            bump_generation(connection)

    def dependencies(self, name: TableName | None = None) -> list[Dependency]:
        """What one stream table reads, or what all of them read."""
        query = (
            select(_tables.c.name, _dependencies.c.source, _dependencies.c.kind, _dependencies.c.columns_used)
            .join_from(_dependencies, _tables)
            .order_by(_tables.c.name, _dependencies.c.source)
        )
        if name is not None:
            query = query.where(_tables.c.name == name)
        with self._database.read() as connection:
            return [Dependency(*row) for row in connection.execute(query)]

    def dependents(self, name: TableName) -> list[TableName]:
        """The stream tables that read `name` themselves."""
        with self._database.read() as connection:
            return _read_dependents(connection, name)

    def generation(self) -> int:
        """A number that grows with every change of a definition: while it stands, what was read holds."""
        with self._database.read() as connection:
            return int(connection.scalars(_GENERATION).one())


def bump_generation(connection: Connection) -> None:
    state = schema.catalog_state
    connection.execute(update(state).values(generation=state.c.generation + 1))


def read_table(connection: Connection, name: TableName) -> StreamTable | None:
    row = connection.execute(_BY_NAME, {"wanted": name}).first()
    return None if row is None else StreamTable(**row._mapping)


def change_table(connection: Connection, where: Any, changes: Any) -> StreamTable | None:
    """Change the one stream table that `where` picks; None when there is none."""
    unknown = set(changes) - set(_tables.c.keys())
    if unknown:
        raise TypeError(f"a stream table has no field {min(unknown)!r}")
    values = {"updated_at": datetime.now(UTC), **changes}
    row = connection.execute(update(_tables).where(where).values(values).returning(_tables)).first()
    return None if row is None else StreamTable(**row._mapping)


def nearest(name: str, known: Iterable[str]) -> str:
    """A sentence that offers the nearest known name, empty when none is near."""
    candidates = list(known)
    table = name.rpartition(".")[2]
    elsewhere = [other for other in candidates if other.rpartition(".")[2] == table]
    found = elsewhere or difflib.get_close_matches(name, candidates, n=1)
    return f"Did you mean {found[0]}?" if found else ""


def raise_unknown(connection: Connection, name: TableName) -> NoReturn:
    names = [str(known) for known in connection.scalars(select(_tables.c.name))]
    raise HeadraceError(
        "unknown_stream_table",
        f"There is no stream table {name}.",
        hint=nearest(str(name), names) or "SHOW STREAM TABLES lists them.",
    )


def _name_taken(name: TableName) -> HeadraceError:
    return HeadraceError(
        "name_taken",
        f"A stream table {name} exists already.",
        hint="Choose another name, or use CREATE OR REPLACE STREAM TABLE.",
    )


def _write_dependencies(connection: Connection, table_id: str, dependencies: Sequence[Dependency]) -> None:
    _require_upstreams(connection, dependencies)
    rows = [
        {
            "stream_table_id": table_id,
            "source": one.source,
            "kind": one.kind,
            "columns_used": one.columns_used,
        }
        for one in dependencies
    ]
    if rows:
        connection.execute(insert(_dependencies), rows)


def _require_upstreams(connection: Connection, dependencies: Sequence[Dependency]) -> None:
    """Hold the stream tables that are read, so that none of them is dropped before this one is in place."""
    upstreams = sorted({one.source for one in dependencies if one.kind == "STREAM_TABLE"})
    if not upstreams:
        return
    query = select(_tables.c.name).where(_tables.c.name.in_(bindparam("names", upstreams, expanding=True)))
    held = set(connection.scalars(query.with_for_update(read=True, key_share=True)))
    for name in upstreams:
        if name not in held:
            raise_unknown(connection, name)


def _read_dependents(connection: Connection, name: TableName) -> list[TableName]:
    query = (
        select(_tables.c.name)
        .join_from(_dependencies, _tables)
        .where(_dependencies.c.source == name)
        .order_by(_tables.c.name)
    )
    return list(connection.scalars(query))


def _move_frontier(connection: Connection, reader: StreamTable, old: TableName, new: TableName) -> None:
    if reader.frontier is None or str(old) not in reader.frontier:
        return
    frontier = {str(new) if name == str(old) else name: at for name, at in reader.frontier.items()}
    change_table(connection, _tables.c.id == reader.id, {"frontier": frontier})
