"""The catalog as one object: open it by URL, share it between threads, close it."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from headrace.catalog.database import Database
from headrace.catalog.definitions import Definitions
from headrace.catalog.history import History
from headrace.catalog.leases import Leases
from headrace.catalog.opening import open_database
from headrace.catalog.registry import Registry
from headrace.catalog.ticks import Ticks


class Catalog(Definitions, History, Leases, Registry, Ticks):
    """Definitions, frontiers, history, alerts and locks, on SQLite or PostgreSQL.

    One object serves all threads of a process, and any number of processes may have the same catalog open.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    @classmethod
    def open(cls, url: str) -> Catalog:
        """Open, create or migrate the catalog at `sqlite:///path` or `postgresql://…`.

        What cannot be opened is left untouched, and the error's code says why: catalog_too_new,
        catalog_foreign, catalog_corrupt, catalog_unreachable, catalog_read_only, catalog_busy or
        invalid_catalog_url.
        """
        return cls(open_database(url))

    @property
    def label(self) -> str:
        """Where the catalog is, without its password."""
        return self._database.label

    def close(self) -> None:
        """Give back all connections; closing twice does no harm."""
        self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
