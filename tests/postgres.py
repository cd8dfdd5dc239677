"""A private PostgreSQL server for tests; `from tests.postgres import postgres_server` brings the fixture."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest

_OPTIONS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "wal_level": "logical",
    "max_connections": "200",
    # Nothing here must outlive a power failure.
    "fsync": "off",
}


@dataclass(frozen=True)
class PostgresServer:
    """A server on a loopback port; its superuser is `postgres`, without a password."""

    binaries: Path
    folder: Path
    port: int

    def start(self) -> None:
        options = " ".join(
            f"-c {name}='{value}'" for name, value in (_OPTIONS | {"port": str(self.port)}).items()
        )
        self._control("start", "-l", str(self.folder / "log"), "-o", options)

    def stop(self) -> None:
        self._control("stop", "-m", "immediate")

    def create_database(self) -> str:
        """The URL of a new, empty database."""
        name = f"test_{uuid.uuid4().hex}"
        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}")
        return self.url(name)

    def url(self, database: str) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/{database}"

    def _control(self, *arguments: str) -> None:
        _run_as_postgres(self.binaries / "pg_ctl", "-D", self.folder / "data", "-w", "-s", *arguments)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """Start a server from Debian's binaries, and stop it when the tests end."""
    binaries = _find_binaries() or _install_binaries()
    folder = Path(tempfile.mkdtemp(prefix="headrace-postgres-"))
    try:
        if os.geteuid() == 0:
            shutil.chown(folder, "postgres")
        _run_as_postgres(
            binaries / "initdb", "-D", folder / "data", "-U", "postgres", "-A", "trust", "-E", "UTF8", "-N"
        )
        server = PostgresServer(binaries, folder, _free_port())
        server.start()
        try:
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(folder)


def _find_binaries() -> Path | None:
    """The newest installed version's folder."""
    found = Path("/usr/lib/postgresql").glob("*/bin/initdb")
    versions = sorted(found, key=lambda path: float(path.parts[-3]))
    return versions[-1].parent if versions else None


def _install_binaries() -> Path:
    if os.geteuid() == 0 and shutil.which("apt-get"):
        environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
        for command in (["apt-get", "update", "-qq"], ["apt-get", "install", "-y", "-qq", "postgresql"]):
            subprocess.run(command, check=False, env=environment, capture_output=True)
    binaries = _find_binaries()
    if binaries is None:
        pytest.fail("These tests need PostgreSQL's server: install the package postgresql.", pytrace=False)
    return binaries


def _run_as_postgres(*command: str | Path) -> None:
    """Run as the user `postgres` when we are root, since the server refuses to be."""
    as_postgres = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []
    # The server outlives pg_ctl and would keep a pipe open, so the output goes to a file.
    with tempfile.TemporaryFile() as output:
        done = subprocess.run(
            [*as_postgres, *map(str, command)], check=False, stdout=output, stderr=output, cwd="/"
        )
        output.seek(0)
        if done.returncode:
            pytest.fail(f"{command[0]} failed: {output.read().decode()}", pytrace=False)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port
