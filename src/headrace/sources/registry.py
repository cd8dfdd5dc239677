"""The sources of a connection: one handle per table, found anew when a name moves."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import TypeAlias

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from headrace.catalog import Frontier, SourceVersion
from headrace.errors import HeadraceError
from headrace.runtime.relations import describe
from headrace.sources.delta import DeltaSource, source_missing, source_unreadable
from headrace.sources.log import DeltaLog
from headrace.sources.pins import Pins
from headrace.sources.shared import SharedChanges
from headrace.sql.names import TableName

RowsByFiles: TypeAlias = Callable[[SparkSession, DeltaLog, SourceVersion], DataFrame | None]


class Sources:
    """Finds sources by name and pins them to a moment."""

    def __init__(self, spark: SparkSession, rows_by_files: RowsByFiles) -> None:
        self._spark = spark
        self._handles: dict[TableName, DeltaSource] = {}
        self._once = threading.local()
        self.changes = SharedChanges()
        self.pins = Pins(spark, lambda name, at: rows_by_files(spark, self.find(name).log, at))

    @contextmanager
    def found_once(self) -> Iterator[None]:
        """Look every name up once in this thread: a refresh asks for each source some ten times over."""
        outer = getattr(self._once, "found", None)
        self._once.found = {}
        try:
            yield
        finally:
            self._once.found = outer

    def find(self, name: TableName) -> DeltaSource:
        """Give the source behind a name, or say that it is gone or not Delta."""
        found: dict[TableName, DeltaSource] | None = getattr(self._once, "found", None)
        if found is None:
            return self._look_up(name)
        if name not in found:
            found[name] = self._look_up(name)
        return found[name]

    def _look_up(self, name: TableName) -> DeltaSource:
        try:
            described = describe(self._spark, name)
        except (PySparkException, Py4JError) as error:
            raise source_unreadable(name, str(error).partition("\n")[0]) from error
        if described is None:
            self._handles.pop(name, None)
            raise source_missing(name)
        if described.is_view:
            raise view_as_source(name)
        if described.provider != "delta":
            raise unsupported_source(name, described.provider)
        handle = self._handles.get(name)
        if handle is None or handle.location != described.location:
            handle = self._handles[name] = DeltaSource(name, described.location)
        return handle

    def pin(self, names: Iterable[TableName], moment: datetime) -> Frontier:
        """Give every source's last version committed at or before a moment."""
        return {str(name): self.find(name).version_at(moment) for name in names}

    def changed(self, old: Frontier, new: Frontier, names: Iterable[TableName]) -> list[TableName]:
        """List the sources whose rows may differ between two frontiers."""
        return [name for name in names if self._changed(name, old.get(str(name)), new[str(name)])]

    def redescribed(self, old: Frontier, new: Frontier, names: Iterable[TableName]) -> list[TableName]:
        """List the sources whose columns may differ between two frontiers."""
        pairs = [(name, old.get(str(name)), new[str(name)]) for name in names]
        return [
            name for name, was, now in pairs if was and was != now and self.find(name).redescribed(was, now)
        ]

    def _changed(self, name: TableName, old: SourceVersion | None, new: SourceVersion) -> bool:
        if old is None or old == new:
            return old is None
        return self.find(name).changed(old, new)


def view_as_source(name: TableName) -> HeadraceError:
    return HeadraceError(
        "unsupported_source",
        f"{name} is a view: what changes are the tables that it reads.",
        hint="Name one of these where a table is wanted.",
    )


def unsupported_source(name: TableName, provider: str) -> HeadraceError:
    return HeadraceError(
        "unsupported_source",
        f"{name} is a {provider or 'non-Delta'} table: its changes cannot be followed.",
        hint="Convert it with CONVERT TO DELTA, or copy it into a Delta table and read that.",
    )
