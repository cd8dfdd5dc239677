"""Opening: what is ours is created or migrated, what is not is refused and left as it was."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path

import psycopg
import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import BLANK_SCHEMA, MetaData, create_engine

from headrace.catalog import Catalog, sqlite_url
from headrace.catalog.database import normalize_url
from headrace.catalog.schema import SCHEMA, metadata
from headrace.errors import HeadraceError
from headrace.sql.names import TableName
from tests.catalog.samples import TOTALS, new_table
from tests.postgres import PostgresServer


def refusal(url: str) -> HeadraceError:
    with pytest.raises(HeadraceError) as raised:
        Catalog.open(url)
    assert raised.value.hint
    return raised.value


def make_catalog(path: Path) -> str:
    url = sqlite_url(path)
    with Catalog.open(url) as catalog:
        catalog.add(new_table(), [])
    return url


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def test_the_migrations_make_the_schema(catalog: Catalog, catalog_url: str) -> None:
    catalog.close()
    engine = create_engine(normalize_url(catalog_url))
    sqlite = engine.dialect.name == "sqlite"
    schema = None if sqlite else SCHEMA
    wanted = MetaData()
    for table in metadata.sorted_tables:
        table.to_metadata(wanted, schema=schema, referred_schema_fn=lambda *_: schema or BLANK_SCHEMA)
    options = {
        "include_schemas": not sqlite,
        "compare_type": True,
        "version_table_schema": schema,
        "include_name": lambda name, kind, _parents: kind != "schema" or name == schema,
    }
    with engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection, opts=options), wanted) == []
    engine.dispose()


@pytest.mark.parametrize("folder", ["with spaces", "per%20cent", "que?stion#mark", "größe", "quote'\"`"])
def test_any_path_will_do(tmp_path: Path, folder: str) -> None:
    path = tmp_path / folder / "catalog.db"
    url = make_catalog(path)
    assert path.is_file()
    with Catalog.open(url) as catalog:
        assert catalog.label == str(path)
        assert catalog.find(TOTALS).name == TOTALS


def test_a_relative_path_is_of_the_working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Catalog.open("sqlite:///lake/catalog.db").close()
    assert (tmp_path / "lake" / "catalog.db").is_file()


@pytest.mark.parametrize(
    "url",
    ["", "nonsense", "sqlite://", "sqlite:///:memory:", "mysql://me:secret@host/db", "sqlite:///x?mode=ro"],
)
def test_a_url_that_names_no_catalog_is_refused(url: str) -> None:
    error = refusal(url)
    assert error.code == "invalid_catalog_url"
    assert "secret" not in str(error)


@pytest.mark.parametrize("garbage", [b"\x00" * 5000, b"id,name\n1,a\n", os.urandom(4096)])
def test_a_file_that_is_no_database_is_refused(tmp_path: Path, garbage: bytes) -> None:
    (tmp_path / "catalog.db").write_bytes(garbage)
    assert refusal(sqlite_url(tmp_path / "catalog.db")).code == "catalog_corrupt"
    assert contents(tmp_path) == {"catalog.db": garbage}


@pytest.mark.parametrize("damage", ["truncated", "overwritten"])
def test_a_damaged_catalog_is_refused(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "catalog.db"
    url = make_catalog(path)
    whole = path.read_bytes()
    half = len(whole) // 2
    path.write_bytes(
        whole[:half] if damage == "truncated" else whole[:4096] + b"\xa5" * half + whole[4096 + half :]
    )
    before = contents(tmp_path)
    assert refusal(url).code == "catalog_corrupt"
    assert contents(tmp_path)["catalog.db"] == before["catalog.db"]


def test_another_programs_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "notes.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE settings (key TEXT)")
        connection.commit()
    before = contents(tmp_path)
    assert refusal(sqlite_url(path)).code == "catalog_foreign"
    assert contents(tmp_path) == before


def test_a_folder_is_refused(tmp_path: Path) -> None:
    assert refusal(sqlite_url(tmp_path)).code == "catalog_foreign"


def test_an_empty_file_becomes_a_catalog(tmp_path: Path) -> None:
    (tmp_path / "catalog.db").touch()
    make_catalog(tmp_path / "catalog.db")


def test_a_newer_catalog_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "catalog.db"
    url = make_catalog(path)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
        connection.execute("UPDATE catalog_state SET written_by = '7.5'")
        connection.commit()
    before = contents(tmp_path)
    error = refusal(url)
    assert error.code == "catalog_too_new"
    assert "Headrace 7.5" in error.message
    assert contents(tmp_path) == before


def test_a_catalog_without_its_revision_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "catalog.db"
    url = make_catalog(path)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("DROP TABLE alembic_version")
        connection.commit()
    assert refusal(url).code == "catalog_corrupt"


@pytest.mark.parametrize("journal", ["DELETE", "WAL"])
def test_a_catalog_whose_writer_was_killed_is_recovered(tmp_path: Path, journal: str) -> None:
    path = tmp_path / "catalog.db"
    url = make_catalog(path)
    done = subprocess.run([sys.executable, "-c", _DIE_WRITING, str(path), journal], check=False)
    assert done.returncode == -signal.SIGKILL
    assert len(contents(tmp_path)) > 1
    with Catalog.open(url) as catalog:
        assert catalog.settings() == {}
        assert catalog.find(TOTALS).name == TOTALS


# A small cache makes SQLite write to the file before the commit that never comes.
_DIE_WRITING = """
import os, signal, sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute(f"PRAGMA journal_mode = {sys.argv[2]}")
connection.execute("PRAGMA cache_size = 1")
connection.execute("BEGIN IMMEDIATE")
for number in range(300):
    connection.execute("INSERT INTO settings VALUES (?, ?)", (str(number), "x" * 5000))
os.kill(os.getpid(), signal.SIGKILL)
"""


@contextmanager
def unprivileged() -> Iterator[None]:
    """Run a block as a user that permissions bind, since they do not bind root."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every user can reach, which pytest's own is not."""
    folder = Path(tempfile.mkdtemp(prefix="headrace-"))
    folder.chmod(0o755)
    yield folder
    folder.chmod(0o755)
    shutil.rmtree(folder)


def test_a_read_only_folder_is_refused(open_folder: Path) -> None:
    open_folder.chmod(0o555)
    with unprivileged():
        assert refusal(sqlite_url(open_folder / "catalog.db")).code == "catalog_read_only"
        assert refusal(sqlite_url(open_folder / "lake" / "catalog.db")).code == "catalog_read_only"
    assert contents(open_folder) == {}


def test_a_read_only_catalog_is_refused(open_folder: Path) -> None:
    url = make_catalog(open_folder / "catalog.db")
    (open_folder / "catalog.db").chmod(0o444)
    open_folder.chmod(0o555)
    before = contents(open_folder)
    with unprivileged():
        assert refusal(url).code == "catalog_read_only"
    assert contents(open_folder) == before


def test_an_impossible_path_is_unreachable(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    assert refusal(sqlite_url(tmp_path / "file" / "catalog.db")).code == "catalog_unreachable"


def test_a_server_that_is_not_there_is_unreachable() -> None:
    error = refusal("postgresql://me:secret@127.0.0.1:1/lake")
    assert error.code == "catalog_unreachable"
    assert "secret" not in str(error)
    assert "127.0.0.1" in error.message


def test_a_database_that_is_not_there_is_unreachable(postgres_server: PostgresServer) -> None:
    assert refusal(postgres_server.url("missing")).code == "catalog_unreachable"


def test_a_foreign_schema_is_refused(postgres_server: PostgresServer) -> None:
    url = postgres_server.create_database()
    with psycopg.connect(url) as connection:
        connection.execute("CREATE SCHEMA headrace")
        connection.execute("CREATE TABLE headrace.mine (x int)")
    error = refusal(url)
    assert (error.code, "mine" in error.message) == ("catalog_foreign", True)


def test_other_schemas_and_an_empty_one_are_no_hindrance(postgres_server: PostgresServer) -> None:
    url = postgres_server.create_database()
    with psycopg.connect(url) as connection:
        connection.execute("CREATE SCHEMA headrace")
        connection.execute("CREATE TABLE stream_tables (x int)")
    with Catalog.open(url) as catalog:
        catalog.add(new_table(), [])


def test_a_newer_catalog_on_postgresql_is_refused(postgres_server: PostgresServer) -> None:
    url = postgres_server.create_database()
    Catalog.open(url).close()
    with psycopg.connect(url) as connection:
        connection.execute("UPDATE headrace.alembic_version SET version_num = '9999'")
    assert refusal(url).code == "catalog_too_new"


def test_a_read_only_server_is_refused(postgres_server: PostgresServer) -> None:
    url = postgres_server.create_database()
    assert refusal(f"{url}?options=-c%20default_transaction_read_only%3Don").code == "catalog_read_only"


def move(source: Path, target: Path) -> None:
    """Move a catalog with the files that SQLite keeps beside it."""
    for end in ("", "-wal", "-shm"):
        if Path(f"{source}{end}").exists():
            Path(f"{source}{end}").rename(f"{target}{end}")


@pytest.mark.parametrize("put_in_its_place", ["nothing", "an empty file", "another catalog"])
def test_a_file_that_goes_away_comes_back(tmp_path: Path, put_in_its_place: str) -> None:
    path, away = tmp_path / "catalog.db", tmp_path / "away.db"
    other = TableName("other", "one")
    with Catalog.open(make_catalog(path)) as catalog:

        def look(_number: int) -> str:
            try:
                with catalog._database.read():
                    time.sleep(0.02)
                return ", ".join(sorted(str(table.name) for table in catalog.all()))
            except HeadraceError as error:
                return error.code

        def looks() -> set[str]:
            with ThreadPoolExecutor(6) as pool:
                return set(pool.map(look, range(12)))

        assert looks() == {str(TOTALS)}
        move(path, away)
        if put_in_its_place == "nothing":
            assert looks() == {"catalog_unreachable"}
            with pytest.raises(HeadraceError) as raised:
                catalog.raise_alert("refresh_failed", "lost?")
            assert raised.value.code == "catalog_unreachable"
            assert not path.exists(), "no empty catalog is made in its place"
        elif put_in_its_place == "an empty file":
            path.touch()
            assert looks() == {"catalog_unreachable"}
        else:
            with Catalog.open(sqlite_url(path)) as another:
                another.add(new_table(other), [])
            assert looks() == {str(other)}, "nothing is read from the file that was moved"
        for end in ("", "-wal", "-shm"):
            Path(f"{path}{end}").unlink(missing_ok=True)
        move(away, path)
        assert looks() == {str(TOTALS)}
        catalog.raise_alert("refresh_failed", "kept")
    with Catalog.open(sqlite_url(path)) as again:
        assert [alert.message for alert in again.alerts()] == ["kept"]


def test_a_catalog_that_goes_away_comes_back(postgres_server: PostgresServer) -> None:
    with Catalog.open(postgres_server.create_database()) as catalog:
        catalog.add(new_table(), [])
        postgres_server.stop()
        try:
            with pytest.raises(HeadraceError) as raised:
                catalog.find(TOTALS)
        finally:
            postgres_server.start()
        assert raised.value.code == "catalog_unreachable"
        assert catalog.find(TOTALS).name == TOTALS
