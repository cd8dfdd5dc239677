"""Changes read lately, so that tables that need the same change in one tick read it once."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

from pyspark.sql import SparkSession

from headrace.catalog import SourceVersion
from headrace.sources.changes import SourceChange, read_changes
from headrace.sources.delta import DeltaSource

_MOST_BYTES = 64 << 20

# A table copied as a folder keeps its identity, and goes its own way from there.
_Key = tuple[str, str, int, str | None, int, str | None, tuple[str, ...]]


@dataclass
class _Entry:
    """A change, or the lock under which one thread reads it while others wait."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    change: SourceChange | None = None


class SharedChanges:
    """Keeps small changes, the newest used ones, up to a bound of bytes; large ones stay in Spark."""

    def __init__(self, most_bytes: int = _MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._lock = threading.Lock()
        self._kept: OrderedDict[_Key, _Entry] = OrderedDict()

    def read(
        self,
        spark: SparkSession,
        source: DeltaSource,
        old: SourceVersion,
        new: SourceVersion,
        columns: Sequence[str],
    ) -> SourceChange:
        """Give what columns of a source gained and lost between two versions."""
        if old.table_id != new.table_id:
            return read_changes(spark, source, old, new, columns)
        key = (
            source.location,
            new.table_id,
            *(old.version, old.commit),
            *(new.version, new.commit),
            tuple(columns),
        )
        with self._lock:
            entry = self._kept.setdefault(key, _Entry())
            self._kept.move_to_end(key)
        with entry.lock:
            if entry.change is None:
                change = read_changes(spark, source, old, new, columns)
                if change.rows is None:
                    self._forget(key)
                    return change
                entry.change = change
                self._shrink()
            return entry.change

    @property
    def size(self) -> int:
        """The bytes that are kept."""
        with self._lock:
            return sum(_size(entry) for entry in self._kept.values())

    def _forget(self, key: _Key) -> None:
        with self._lock:
            self._kept.pop(key, None)

    def _shrink(self) -> None:
        with self._lock:
            size = sum(_size(entry) for entry in self._kept.values())
            for key in list(self._kept):
                if size <= self._most_bytes:
                    break
                size -= _size(self._kept.pop(key))


def _size(entry: _Entry) -> int:
    # An empty change takes some room as well.
    rows = entry.change.rows if entry.change is not None else None
    return 1024 + int(rows.nbytes) if rows is not None else 1024
