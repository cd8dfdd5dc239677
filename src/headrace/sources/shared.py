"""Changes read lately, so that tables that need the same change in one tick read it once."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeAlias

import pyarrow as pa
from pyspark.sql import SparkSession

from headrace.catalog import SourceVersion
from headrace.errors import HeadraceError
from headrace.sources.changes import Limits, SourceChange, changes_in_spark, held_changes
from headrace.sources.delta import DeltaSource
from headrace.sql.names import TableName

_MOST_BYTES = 64 << 20
_BYTES_PER_VALUE = 8

Readers: TypeAlias = Mapping[tuple[TableName, int], tuple[str, ...]]
"""The columns that all tables of a tick together read of each source, from the same version on."""

# A table copied as a folder keeps its identity, and goes its own way from there.
_Key = tuple[str, str, int, str | None, int, str | None, tuple[str, ...]]


@dataclass
class _Entry:
    """A change, or the lock under which one thread reads it while others wait."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    change: SourceChange | None = None
    is_of_no_use: bool = False
    """Whether the columns of all readers together cannot be held, so that each reads its own."""


@dataclass(frozen=True)
class _Span:
    """A source between two versions."""

    source: DeltaSource
    old: SourceVersion
    new: SourceVersion

    def key(self, columns: Sequence[str]) -> _Key:
        return (
            self.source.location,
            self.new.table_id,
            *(self.old.version, self.old.commit),
            *(self.new.version, self.new.commit),
            tuple(columns),
        )

    def read(self, columns: Sequence[str], limits: Limits | None = None) -> SourceChange | str:
        return held_changes(self.source, self.old, self.new, columns, limits=limits)

    def is_flat(self, column: str) -> bool:
        """Tell whether a column is there and holds plain values, which are netted out quickly."""
        field = self.source.state(self.new.version).field(column)
        return field is not None and isinstance(field.type, str) and field.type != "variant"


class SharedChanges:
    """Keeps small changes, the newest used ones, up to a bound of bytes; large ones stay in Spark."""

    def __init__(self, most_bytes: int = _MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._lock = threading.Lock()
        self._kept: OrderedDict[_Key, _Entry] = OrderedDict()
        self._expected: list[Readers] = []

    @contextmanager
    def expecting(self, readers: Readers) -> Iterator[None]:
        """Read at once what several tables are about to need, though each needs other columns of it."""
        with self._lock:
            self._expected.append(readers)
        try:
            yield
        finally:
            with self._lock:
                self._expected = [one for one in self._expected if one is not readers]

    def read(
        self,
        spark: SparkSession,
        source: DeltaSource,
        old: SourceVersion,
        new: SourceVersion,
        columns: Sequence[str],
    ) -> SourceChange:
        """Give what columns of a source gained and lost between two versions."""
        found = self.held(source, old, new, columns)
        if isinstance(found, SourceChange):
            return found
        return changes_in_spark(spark, source, old, new, columns, reason=found)

    def held(
        self, source: DeltaSource, old: SourceVersion, new: SourceVersion, columns: Sequence[str]
    ) -> SourceChange | str:
        """Give the same where the driver can hold it, or say why it cannot."""
        span = _Span(source, old, new)
        entry = self._entry(span.key(columns))
        with entry.lock:
            if entry.change is None:
                found = self._of_all_readers(span, columns) or span.read(columns)
                if isinstance(found, str):
                    self._forget(span.key(columns))
                    return found
                entry.change = found
                self._shrink()
            return entry.change

    def _of_all_readers(self, span: _Span, columns: Sequence[str]) -> SourceChange | None:
        """Take some columns of the change that is read for all readers; None where there is no such one."""
        together = self._columns_of_readers(span)
        if not set(columns) < set(together):
            return None
        # Whoever waits for this lock has that of fewer columns, so that nobody waits in a circle.
        entry = self._entry(span.key(together))
        with entry.lock:
            if entry.change is None and not entry.is_of_no_use:
                entry.change = self._read_together(span, together)
                entry.is_of_no_use = entry.change is None
                self._shrink()
            change = entry.change
        return None if change is None else change.over(columns)

    def _read_together(self, span: _Span, columns: Sequence[str]) -> SourceChange | None:
        """Read the columns of all readers, unless they may be too large to be kept beside others."""
        most = self._most_bytes // 2
        limits = Limits(bytes=most, kept=most // (_BYTES_PER_VALUE * (len(columns) + 1)))
        try:
            found = span.read(columns, limits)
        except (HeadraceError, OSError, pa.ArrowException):
            # What is wrong with the column of one reader is for that reader to tell.
            return None
        if isinstance(found, str) or found.rows is None or found.rows.nbytes > most:
            return None
        return found

    def _columns_of_readers(self, span: _Span) -> tuple[str, ...]:
        of = (span.source.name, span.old.version)
        with self._lock:
            expected = [column for readers in self._expected for column in readers.get(of, ())]
        return tuple(column for column in dict.fromkeys(expected) if span.is_flat(column))

    @property
    def size(self) -> int:
        """The bytes that are kept."""
        with self._lock:
            return sum(_size(entry) for entry in self._kept.values())

    def _entry(self, key: _Key) -> _Entry:
        with self._lock:
            entry = self._kept.setdefault(key, _Entry())
            self._kept.move_to_end(key)
            return entry

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
