"""Alerts, settings, outside sources, and the lake's views and external tables."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, delete, insert, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import IntegrityError

from headrace.catalog import schema
from headrace.catalog.database import Database
from headrace.catalog.definitions import bump_generation, nearest
from headrace.catalog.records import Alert, Relation, SourceRecord
from headrace.errors import HeadraceError
from headrace.sql.names import TableName

_log = logging.getLogger(__name__)
_alerts = schema.alerts
_settings = schema.settings
_stream_tables = schema.stream_tables
_sources = schema.sources
_relations = schema.relations


class Registry:
    """The part of the catalog that is neither definition nor history."""

    def __init__(self, database: Database) -> None:
        self._database = database

    _listeners: tuple[Callable[[Alert], None], ...] = ()

    def on_alert(self, listener: Callable[[Alert], None]) -> None:
        """Call a function with every alert that this process raises from now on."""
        self._listeners = (*self._listeners, listener)

    def raise_alert(self, kind: str, message: str, stream_table: TableName | None = None) -> Alert:
        """Write an alert down and tell those who listen; what they do cannot harm who raised it."""
        with self._database.write() as connection:
            alert = _write_alert(connection, kind, message, stream_table, datetime.now(UTC))
        self._tell(alert)
        return alert

    def raise_alert_once(
        self, kind: str, message: str, stream_table: TableName, *, now: datetime, since: datetime
    ) -> Alert | None:
        """Raise an alert unless some process has raised one of its kind for this table after `since`."""
        same = (_alerts.c.kind == kind) & (_alerts.c.stream_table == stream_table)
        with self._database.write() as connection:
            # Processes that notice at the same time take turns on the table's row.
            row = select(_stream_tables.c.id).where(_stream_tables.c.name == stream_table)
            connection.execute(row.with_for_update())
            if connection.execute(select(_alerts.c.id).where(same, _alerts.c.raised_at > since)).first():
                return None
            alert = _write_alert(connection, kind, message, stream_table, now)
        self._tell(alert)
        return alert

    def _tell(self, alert: Alert) -> None:
        for listener in self._listeners:
            try:
                listener(alert)
            except Exception:  # noqa: BLE001  # a listener is the user's code
                _log.exception("A listener failed on the alert %s", alert.kind)

    def alerts(self, limit: int | None = None) -> list[Alert]:
        """Alerts, the newest first."""
        with self._database.read() as connection:
            rows = connection.execute(select(_alerts).order_by(_alerts.c.id.desc()).limit(limit))
            return [Alert(**row._mapping) for row in rows]

    def settings(self) -> dict[str, str]:
        """What was set in the catalog itself, for every process that shares it."""
        with self._database.read() as connection:
            return {row.key: row.value for row in connection.execute(select(_settings))}

    def set_setting(self, key: str, value: str | None) -> None:
        """Set one, or unset it with None."""
        with self._database.write(durable=True) as connection:
            if value is None:
                connection.execute(delete(_settings).where(_settings.c.key == key))
            else:
                connection.execute(self._upsert(_settings, "key", {"key": key, "value": value}))
            bump_generation(connection)

    def sources(self) -> list[SourceRecord]:
        with self._database.read() as connection:
            rows = connection.execute(select(_sources).order_by(_sources.c.name))
            return [SourceRecord(**row._mapping) for row in rows]

    def add_source(self, name: TableName, kind: str, options: Mapping[str, str]) -> SourceRecord:
        record = SourceRecord(name, kind, dict(options), datetime.now(UTC))
        with self._database.write(durable=True) as connection:
            try:
                connection.execute(insert(_sources).values(vars(record)))
            except IntegrityError:
                raise HeadraceError(
                    "name_taken", f"A source {name} exists already.", hint="DROP SOURCE removes it."
                ) from None
            bump_generation(connection)
        return record

    def remove_source(self, name: TableName) -> None:
        with self._database.write(durable=True) as connection:
            if connection.execute(delete(_sources).where(_sources.c.name == name)).rowcount == 0:
                known = [str(other) for other in connection.scalars(select(_sources.c.name))]
                raise HeadraceError(
                    "unknown_source", f"There is no source {name}.", hint=nearest(str(name), known)
                )
            bump_generation(connection)

    def relations(self) -> list[Relation]:
        with self._database.read() as connection:
            rows = connection.execute(select(_relations).order_by(_relations.c.name))
            return [Relation(**row._mapping) for row in rows]

    def put_relation(self, relation: Relation) -> None:
        """Add a view or table, or replace the one of its name."""
        with self._database.write(durable=True) as connection:
            connection.execute(self._upsert(_relations, "name", vars(relation)))
            bump_generation(connection)

    def remove_relation(self, name: TableName) -> bool:
        """Forget a view or table; false when none had this name."""
        with self._database.write(durable=True) as connection:
            removed = connection.execute(delete(_relations).where(_relations.c.name == name)).rowcount > 0
            if removed:
                bump_generation(connection)
        return removed

    def _upsert(self, table: Any, key: str, values: Mapping[str, Any]) -> Any:
        build: Any = sqlite.insert if self._database.is_sqlite else postgresql.insert
        others = {name: value for name, value in values.items() if name != key}
        return build(table).values(values).on_conflict_do_update(index_elements=[table.c[key]], set_=others)


def _write_alert(
    connection: Connection, kind: str, message: str, stream_table: TableName | None, now: datetime
) -> Alert:
    values = {"kind": kind, "message": message, "stream_table": stream_table, "raised_at": now}
    row = connection.execute(insert(_alerts).values(values).returning(_alerts)).one()
    return Alert(**row._mapping)
