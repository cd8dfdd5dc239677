"""Connections and transactions, and the database's failures in our words."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import URL, Connection, create_engine, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, SQLAlchemyError

from headrace.catalog.sqlite import BUSY_SECONDS, sqlite_engine
from headrace.errors import HeadraceError

# A network that swallows everything is noticed in some twenty seconds, not in the system's hours.
_POSTGRES_OPTIONS = {
    "application_name": "headrace",
    "connect_timeout": "10",
    "keepalives": "1",
    "keepalives_idle": "10",
    "keepalives_interval": "3",
    "keepalives_count": "3",
    "tcp_user_timeout": "20000",
}
_log = logging.getLogger(__name__)


def sqlite_url(path: Path) -> str:
    """The catalog URL of a SQLite file, whatever characters its path has.

    >>> sqlite_url(Path("/data/my lake/100%/catalog.db"))
    'sqlite:////data/my lake/100%25/catalog.db'
    """
    return URL.create("sqlite", database=str(path)).render_as_string()


def normalize_url(text: str) -> URL:
    """Read a catalog URL and settle on its driver.

    >>> normalize_url("postgresql://me@db/lake").drivername
    'postgresql+psycopg'
    """
    hint = "Write sqlite:///path/to/catalog.db or postgresql://user:password@host:port/database."
    try:
        url = make_url(text)
    except (ArgumentError, ValueError):
        raise HeadraceError("invalid_catalog_url", "The catalog's URL cannot be read.", hint=hint) from None
    match url.drivername:
        case "sqlite" if url.database and url.database != ":memory:" and not url.query:
            return url
        case "sqlite":
            raise HeadraceError("invalid_catalog_url", "A SQLite catalog is a plain file.", hint=hint)
        case "postgresql" | "postgres" | "postgresql+psycopg":
            return url.set(drivername="postgresql+psycopg")
    raise HeadraceError(
        "invalid_catalog_url", f"{url.drivername!r} is no database that can hold a catalog.", hint=hint
    )


class Database:
    """One database, with a pool of connections that threads share."""

    def __init__(self, url: URL) -> None:
        self.url = url
        self.is_sqlite = url.get_backend_name() == "sqlite"
        if self.is_sqlite:
            self.engine = sqlite_engine(url)
        else:
            url = url.set(query=_POSTGRES_OPTIONS | dict(url.query))
            self.engine = create_engine(url, pool_pre_ping=True, pool_size=8, max_overflow=-1)

    @property
    def label(self) -> str:
        """The catalog's place, fit to be shown: without its password."""
        return str(self.url.database) if self.is_sqlite else self.url.set(query={}).render_as_string()

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """A transaction that only reads, and waits for no writer."""
        with self._translated(), self.engine.connect() as connection, connection.begin():
            yield connection

    @contextmanager
    def write(self, *, durable: bool = False) -> Iterator[Connection]:
        """A transaction that writes.

        A definition is `durable`: it survives a power failure from the moment the call returns. A refresh
        need not be, since the Delta commit carries its frontier; on SQLite that spares a wait for the disk.
        """
        options = {"headrace_write": True, "headrace_durable": durable}
        with self._translated(), self.engine.connect() as plain:
            connection = plain.execution_options(**options)
            with connection.begin():
                yield connection

    def close(self) -> None:
        self.engine.dispose()

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except SQLAlchemyError as error:
            _log.debug("catalog failure", exc_info=error)
            problem = describe_failure(error, self.label)
            if problem is None:
                raise _unknown(error, self.label) from error
            raise problem from None


def describe_failure(error: Exception, label: str) -> HeadraceError | None:
    """Say what a database's failure means for the user; None when the fault is not the place's but ours."""
    cause = error.orig if isinstance(error, DBAPIError) else error
    if isinstance(cause, sqlite3.Error):
        return _describe_sqlite(cause, label)
    if isinstance(error, DBAPIError) and cause is not None:
        return _describe_postgres(error, cause, label)
    return None


def read_only(label: str, detail: str) -> HeadraceError:
    return HeadraceError(
        "catalog_read_only",
        f"The catalog at {label} cannot be written: {detail}.",
        hint="Give Headrace write access to it and its folder or schema, or choose another place.",
    )


def corrupt(label: str, detail: str) -> HeadraceError:
    return HeadraceError(
        "catalog_corrupt",
        f"The catalog at {label} is damaged: {detail}.",
        hint="Nothing was changed. Restore a backup, or move it away and create the stream tables again.",
    )


def _unknown(error: SQLAlchemyError, label: str) -> HeadraceError:
    return HeadraceError(
        "internal_error",
        f"The catalog at {label} failed: {type(error).__name__}: {_first_line(error)}.",
        hint="This is a defect of Headrace or of its database; --debug shows where.",
    )


def _describe_sqlite(cause: sqlite3.Error, label: str) -> HeadraceError | None:
    text, code = str(cause), getattr(cause, "sqlite_errorcode", 0)
    if code == sqlite3.SQLITE_READONLY_DBMOVED or text.startswith("no such table"):
        return HeadraceError(
            "catalog_unreachable",
            f"The catalog at {label} is away: another file is in its place ({text}).",
            hint="Put the catalog back; it is used again as soon as it is there.",
        )
    # The low byte is SQLite's primary result code; the rest only refines it.
    match code & 0xFF:
        case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_PERM | sqlite3.SQLITE_AUTH:
            return read_only(label, text)
        case sqlite3.SQLITE_CORRUPT | sqlite3.SQLITE_NOTADB:
            return corrupt(label, text)
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return HeadraceError(
                "catalog_busy",
                f"The catalog at {label} was locked by another program for {BUSY_SECONDS} seconds.",
                hint="Close what keeps it open for writing, and try again.",
            )
        case sqlite3.SQLITE_CANTOPEN | sqlite3.SQLITE_IOERR | sqlite3.SQLITE_FULL:
            return HeadraceError(
                "catalog_unreachable",
                f"The catalog at {label} cannot be used: {text}.",
                hint="Check that its file and disk are there and that there is space.",
            )
    return None


def _describe_postgres(error: DBAPIError, cause: BaseException, label: str) -> HeadraceError | None:
    state = getattr(cause, "sqlstate", None) or ""
    text = _first_line(cause)
    if state in ("25006", "42501"):
        return read_only(label, text)
    # Class 40 (deadlock and other rollbacks), and a lock or an object that others keep.
    if state[:2] == "40" or state in ("55P03", "55006"):
        return HeadraceError(
            "catalog_busy",
            f"The catalog at {label} was kept by another transaction: {text}.",
            hint="Nothing was changed. Try again.",
        )
    # Classes 08 (connection), 28 (login), 3D (no such database), 53 (no resources), 57 (operator stopped it),
    # 58 (its disk); transactions that the server ended for taking long; a schema that is not there.
    # A connection that never came about has no state at all.
    lost = state[:2] in ("08", "28", "3D", "53", "57", "58") or (not state and _is_operational(cause))
    lost = lost or state in ("25P03", "25P04", "3F000", "42P01")
    if lost or error.connection_invalidated:
        return HeadraceError(
            "catalog_unreachable",
            f"The catalog at {label} cannot be reached: {text}.",
            hint="Check that the server runs, and catalog_url's host, port, database, user and password.",
        )
    return None


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


def _is_operational(cause: BaseException) -> bool:
    return any(kind.__name__ == "OperationalError" for kind in type(cause).__mro__)
