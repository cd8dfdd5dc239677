"""Opening a catalog: look first without touching, refuse what is not ours, then create or migrate."""

from __future__ import annotations

import errno
import sqlite3
import time
from contextlib import closing
from importlib.metadata import version
from pathlib import Path

from alembic.migration import MigrationContext
from alembic.operations import Operations
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, inspect, select, text, update

from headrace.catalog.database import Database, corrupt, describe_failure, normalize_url, read_only
from headrace.catalog.schema import SCHEMA, catalog_state
from headrace.errors import HeadraceError

# "HDRC": SQLite keeps it in the file's header, where `file` and we can read it.
_APPLICATION_ID = 0x48445243
_APPLICATION_ID_OFFSET = 68
_HEADER = b"SQLite format 3\x00"
# A check reads the whole file; larger catalogs are trusted, since each open would wait for it.
_CHECKED_BYTES = 64 * 2**20
_ADVISORY_LOCK = 0x48445243


def open_database(url: str) -> Database:
    """Create, migrate or open the catalog at `url`; whatever is refused is left as it was."""
    database = Database(normalize_url(url))
    try:
        if database.is_sqlite:
            _examine_file(Path(str(database.url.database)))
        with database.write(durable=True) as connection:
            _migrate(connection, database)
        if database.is_sqlite:
            _use_write_ahead_log(database)
    except BaseException:
        database.close()
        raise
    return database


def _examine_file(path: Path) -> None:
    """Refuse a file that is no catalog before any connection that may write is opened."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir():
            raise _foreign(str(path), "it is a folder")
        # The system says why a file cannot be made; SQLite says only that it cannot.
        if not path.exists():
            path.touch()
        with path.open("rb") as file:
            header = file.read(len(_HEADER))
    except OSError as error:
        raise _describe_os(error, path) from None
    if header and header != _HEADER:
        raise corrupt(str(path), "it is not a SQLite file")
    if header:
        _examine_contents(path)


def _examine_contents(path: Path) -> None:
    try:
        with closing(
            sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=30)
        ) as connection:
            tables = {
                name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
            }
            (application,) = connection.execute("PRAGMA application_id").fetchone()
            if tables and application != _APPLICATION_ID:
                raise _foreign(str(path), "it is another program's SQLite file")
            if path.stat().st_size <= _CHECKED_BYTES:
                (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
                if verdict != "ok":
                    raise corrupt(str(path), " ".join(verdict.split()))
    except sqlite3.Error as error:
        if _awaits_recovery(error, path):
            return
        # A read-only folder keeps SQLite from making the shared memory that even a reader of the log needs.
        if getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_CANTOPEN:
            raise read_only(str(path), str(error)) from None
        problem = describe_failure(error, str(path))
        if problem is None:
            raise
        raise problem from None


def _awaits_recovery(error: sqlite3.Error, path: Path) -> bool:
    """Whether a killed writer left our file with a journal, which the next writer undoes."""
    if getattr(error, "sqlite_errorcode", 0) not in (
        sqlite3.SQLITE_READONLY_ROLLBACK,
        sqlite3.SQLITE_READONLY_RECOVERY,
    ):
        return False
    with path.open("rb") as file:
        file.seek(_APPLICATION_ID_OFFSET)
        return file.read(4) == _APPLICATION_ID.to_bytes(4, "big")


def _migrate(connection: Connection, database: Database) -> None:
    """Bring the catalog to this version's schema, in the one transaction that also looked at it."""
    if not database.is_sqlite:
        # Two that open a new catalog at once take turns; the second finds it made.
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _ADVISORY_LOCK})
    schema = None if database.is_sqlite else SCHEMA
    context = MigrationContext.configure(
        connection, opts={"version_table_schema": schema, "transactional_ddl": True}
    )
    script = ScriptDirectory(str(Path(__file__).parent / "migrations"))
    tables = set(inspect(connection).get_table_names(schema=schema))
    if tables and catalog_state.name not in tables:
        raise _foreign(database.label, f"it holds other tables, such as {min(tables)}")
    current = context.get_current_revision() if tables else None
    if tables and current is None:
        raise corrupt(database.label, "it does not say which version it has")
    known = [step.revision for step in script.walk_revisions()]
    if current is not None and current not in known:
        raise _too_new(database.label, connection, current)
    if current == script.get_current_head():
        return
    if not tables:
        _claim(connection, database)
    _apply(context, script, current)
    connection.execute(update(catalog_state).values(written_by=version("headrace")))


def _claim(connection: Connection, database: Database) -> None:
    """Mark an empty place as ours."""
    if database.is_sqlite:
        connection.exec_driver_sql(f"PRAGMA application_id = {_APPLICATION_ID}")
    else:
        exists = text("SELECT 1 FROM pg_namespace WHERE nspname = :name")
        if connection.scalar(exists, {"name": SCHEMA}) is None:
            connection.execute(text(f"CREATE SCHEMA {SCHEMA}"))


def _apply(context: MigrationContext, script: ScriptDirectory, current: str | None) -> None:
    steps = list(script.iterate_revisions("head", current or "base"))
    with Operations.context(context):
        for step in reversed(steps):
            step.module.upgrade()
            context.stamp(script, step.revision)


def _use_write_ahead_log(database: Database) -> None:
    """Let readers and one writer work at once; where the file system cannot, locks alone must do."""
    raw = database.engine.raw_connection()
    try:
        cursor = raw.cursor()
        deadline = time.monotonic() + 30
        while True:
            try:
                cursor.execute("PRAGMA journal_mode = WAL")
                return
            except sqlite3.OperationalError:
                # SQLite does not wait by itself here while another process opens the same new catalog.
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.01)
    except sqlite3.Error as error:
        problem = describe_failure(error, database.label)
        if problem is None:
            raise
        raise problem from None
    finally:
        raw.close()


def _foreign(label: str, detail: str) -> HeadraceError:
    return HeadraceError(
        "catalog_foreign",
        f"{label} is not a Headrace catalog: {detail}.",
        hint="Nothing was changed. Choose another catalog_url or warehouse.",
    )


def _too_new(label: str, connection: Connection, revision: str) -> HeadraceError:
    writer = connection.scalar(select(catalog_state.c.written_by)) or "a newer version"
    return HeadraceError(
        "catalog_too_new",
        f"The catalog at {label} was written by Headrace {writer} (revision {revision}); "
        f"this is {version('headrace')}, which is older.",
        hint="Nothing was changed. Upgrade Headrace, or choose another catalog_url.",
    )


def _describe_os(error: OSError, path: Path) -> HeadraceError:
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return read_only(str(path), str(error.strerror))
    return HeadraceError(
        "catalog_unreachable",
        f"The catalog at {path} cannot be opened: {error.strerror}.",
        hint="Check the warehouse's path or catalog_url.",
    )
