"""Connections to a SQLite catalog that notice when its file was moved, removed or replaced."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event
from sqlalchemy.exc import InvalidatePoolError

from headrace.catalog.schema import SCHEMA

BUSY_SECONDS = 30


def sqlite_engine(url: URL) -> Engine:
    """Make the pool of connections to an existing file, which none of them creates."""
    path = Path(str(url.database)).absolute()
    engine = create_engine(url, creator=_opener(path), pool_size=16, max_overflow=-1)
    event.listen(engine, "connect", _prepare)
    event.listen(engine, "begin", _begin)

    @event.listens_for(engine, "checkout")
    def compare(connection: Any, _record: object, _proxy: object) -> None:
        # What is written to a file that is elsewhere now is read by nobody here.
        if connection.file is None or connection.file != _identity(path):
            raise InvalidatePoolError("the catalog's file is another one than before")

    return engine.execution_options(schema_translate_map={SCHEMA: None})


class _Opened(sqlite3.Connection):
    """A connection that knows which file it opened."""

    file: tuple[int, int] | None = None


def _opener(path: Path) -> Callable[[], sqlite3.Connection]:
    # Without a mode SQLite makes an empty file in the place of one that is away.
    address = f"{path.as_uri()}?mode=rw"

    def connect() -> _Opened:
        # Looked at before: a file that comes between is taken for another one, which costs a connection.
        file = _identity(path)
        # The pool gives a connection to one thread at a time.
        opened = sqlite3.connect(
            address, uri=True, timeout=BUSY_SECONDS, check_same_thread=False, factory=_Opened
        )
        opened.file = file
        return opened

    return connect


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _prepare(connection: Any, _record: object) -> None:
    # Python's own transaction handling is switched off, since it knows no BEGIN IMMEDIATE.
    connection.isolation_level = None
    connection.execute("PRAGMA foreign_keys = ON")


def _begin(connection: Connection) -> None:
    options = connection.get_execution_options()
    if not options.get("headrace_write"):
        connection.exec_driver_sql("BEGIN")
        return
    level = "FULL" if options.get("headrace_durable") else "NORMAL"
    if connection.info.get("synchronous") != level:
        connection.exec_driver_sql(f"PRAGMA synchronous = {level}")
        connection.info["synchronous"] = level
    # Taking the write lock at once makes a writer wait its turn; a reader that later writes would fail.
    connection.exec_driver_sql("BEGIN IMMEDIATE")
