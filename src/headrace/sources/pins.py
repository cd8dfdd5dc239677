"""Tables at fixed versions, each resolved once and kept for the queries to come.

For every query that names a version, Delta rebuilds the state of that version with three Spark jobs of its
own, which is most of what a small refresh costs. A frame keeps its state: the new version of one refresh is
the old one of the next, and all stream tables over a source share both. A table of few files
is read by these, without Delta.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import TypeAlias

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from headrace.catalog import SourceVersion
from headrace.sources.arrow_types import CHAR_TYPE
from headrace.sql.names import TableName, quote

_KEPT = 64
# A name given out may be on its way into a query.
_IN_USE_SECONDS = 60.0
_GLOBAL = "`global_temp`."

Key: TypeAlias = tuple[TableName, str, int, str | None, bool]
ByFiles: TypeAlias = Callable[[TableName, SourceVersion], DataFrame | None]


class Pins:
    """The relations of one session; the least used go first."""

    def __init__(self, spark: SparkSession, by_files: ByFiles) -> None:
        self._spark = spark
        self._by_files = by_files
        self._views: OrderedDict[Key, tuple[str, float]] = OrderedDict()
        self._lock = threading.Lock()

    def relation(self, name: TableName, version: SourceVersion, *, by_delta: bool = False) -> str:
        """Give what stands for a table at a version after FROM; `by_delta` lets Delta alone read it."""
        key = name, version.table_id, version.version, version.commit, by_delta
        with self._lock:
            known = self._views.get(key)
            if known is not None:
                return self._use(key, known[0])
        made = self._resolve(name, version, by_delta=by_delta)
        with self._lock:
            self._use(key, made)
            dropped = list(self._idle())
        self._drop(dropped)
        return made

    def _use(self, key: Key, relation: str) -> str:
        self._views[key] = relation, time.monotonic()
        self._views.move_to_end(key)
        return relation

    def _idle(self) -> Iterator[str]:
        """Forget the least used relations beyond those kept, except names that were given out just now."""
        while len(self._views) > _KEPT:
            key, (relation, used) = next(iter(self._views.items()))
            if time.monotonic() - used < _IN_USE_SECONDS:
                return
            del self._views[key]
            yield relation

    def close(self) -> None:
        with self._lock:
            dropped = [relation for relation, _ in self._views.values()]
            self._views.clear()
        self._drop(dropped)

    def _resolve(self, name: TableName, version: SourceVersion, *, by_delta: bool) -> str:
        text = at_version(name, version.version)
        frame = None if by_delta else self._by_files(name, version)
        if frame is None:
            frame = self._spark.sql(f"SELECT * FROM {text}")
        if any(CHAR_TYPE in field.metadata for field in frame.schema.fields):
            # How Spark compares CHAR depends on the table being named itself.
            return text
        view = f"__hr_pin_{uuid.uuid4().hex}"
        # SHOW TABLES lists the session's own views, but not these.
        frame.createGlobalTempView(view)
        return _GLOBAL + quote(view)

    def _drop(self, relations: list[str]) -> None:
        for relation in relations:
            if relation.startswith(_GLOBAL):
                try:
                    self._spark.catalog.dropGlobalTempView(relation.removeprefix(_GLOBAL).strip("`"))
                except PySparkException:
                    # The session may be gone, and its views with it.
                    return


def at_version(name: TableName, version: int) -> str:
    """Name a table at a version in the words of SQL.

    >>> at_version(TableName("shop", "orders"), 7)
    '`shop`.`orders` VERSION AS OF 7'
    """
    return f"{name.sql} VERSION AS OF {version}"
