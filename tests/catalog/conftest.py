"""The same tests on both back ends: `catalog_url` is a new, empty place for a catalog on each of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.catalog import Catalog, sqlite_url
from tests.postgres import PostgresServer, postgres_server

__all__ = ["postgres_server"]


@pytest.fixture(params=["sqlite", "postgresql"])
def catalog_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return sqlite_url(tmp_path / "a lake" / "catalog.db")
    server: PostgresServer = request.getfixturevalue("postgres_server")
    return server.create_database()


@pytest.fixture
def catalog(catalog_url: str) -> Iterator[Catalog]:
    with Catalog.open(catalog_url) as opened:
        yield opened
