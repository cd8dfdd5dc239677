"""Looking through a table on the driver for the rows that have some values, without a Spark job.

Spark takes seconds to plan and scan a table of millions of rows for a few of them; decoding the same columns
with Arrow takes tenths.
"""

from __future__ import annotations

import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.sources.difference import Piece
from headrace.sources.driver import each
from headrace.sources.files import locate
from headrace.sources.parquet import DataFile, Wanted, empty_rows, opened
from headrace.sources.state import Field

ROW = "__hr_row"
_ROWS_OF_A_FILE = 1 << 40
# Decoded columns that are kept, of all refreshes together, and for how long after they were last looked at.
_KEPT_BYTES = 768 << 20
_KEPT_SECONDS = 120.0
# A file of which more is wanted is looked through slice by slice, and not kept.
_LARGEST_BYTES = _KEPT_BYTES // 2

Key: TypeAlias = tuple[object, ...]


@dataclass
class Room:
    """Memory that was asked for, as far as nothing is in it yet."""

    left: int

    def take(self, size: int) -> int:
        taken = min(size, self.left)
        self.left -= taken
        return taken


@dataclass
class DecodedColumns:
    """Columns of files that were decoded already, for all who look through them; the least used go first.

    Most of what a look takes is decoding, and stream tables over one source look through the same columns at
    about the same time. A file does not change once it is written.
    """

    most_bytes: int = _KEPT_BYTES
    seconds: float = _KEPT_SECONDS
    _columns: OrderedDict[Key, tuple[pa.ChunkedArray, float]] = field(default_factory=OrderedDict)
    _bytes: int = 0
    _asked: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def get(self, key: Key) -> pa.ChunkedArray | None:
        with self._lock:
            found = self._columns.get(key)
            if found is None:
                return None
            self._columns[key] = found[0], time.monotonic()
            self._columns.move_to_end(key)
            return found[0]

    def keep(self, key: Key, column: pa.ChunkedArray, room: Room | None = None) -> None:
        """Keep a column, in the room that was reserved for it."""
        with self._lock:
            if room is not None:
                self._asked -= room.take(column.nbytes)
            if key not in self._columns:
                self._bytes += column.nbytes
            self._columns[key] = column, time.monotonic()
            self._columns.move_to_end(key)
            self._make_room(0)
            self._drop_idle()

    @contextmanager
    def reserved(self, size: int) -> Iterator[Room | None]:
        """Ask for the memory of what is about to be decoded; None where there is not so much."""
        with self._lock:
            if self._asked + size <= self.most_bytes:
                # What is kept goes only where that helps.
                self._make_room(size)
            room = Room(size) if self._bytes + self._asked + size <= self.most_bytes else None
            self._asked += size if room is not None else 0
        try:
            yield room
        finally:
            with self._lock:
                self._asked -= room.left if room is not None else 0

    def _make_room(self, size: int) -> None:
        while self._columns and self._bytes + self._asked + size > self.most_bytes:
            self._drop_first()

    def forget_idle(self) -> None:
        """Give back the memory of what nobody has looked at for a while."""
        with self._lock:
            self._drop_idle()

    def _drop_idle(self) -> None:
        while self._columns and time.monotonic() - next(iter(self._columns.values()))[1] > self.seconds:
            self._drop_first()

    def forget_those(self, is_meant: Callable[[Key], bool]) -> None:
        """Give back the memory of columns that nobody will look at."""
        with self._lock:
            for key in [key for key in self._columns if is_meant(key)]:
                self._bytes -= self._columns.pop(key)[0].nbytes

    def forget(self) -> None:
        """Give all memory back."""
        with self._lock:
            self._columns.clear()
            self._bytes = 0

    @property
    def size(self) -> int:
        """How many bytes are held."""
        return self._bytes

    def _drop_first(self) -> None:
        _, (column, _) = self._columns.popitem(last=False)
        self._bytes -= column.nbytes


decoded_columns = DecodedColumns()


@dataclass(frozen=True)
class _File:
    """One file of a table, and the columns wanted of it."""

    location: str
    number: int
    piece: Piece
    wanted: Wanted

    def find(self, tests: Mapping[str, pa.Array]) -> pa.Table:
        """Give the visible rows whose columns all have one of the values."""
        with decoded_columns.reserved(self._size_to_decode()) as room:
            return self._find_by_slices(tests) if room is None else self._find_in_columns(tests, room)

    def _find_in_columns(self, tests: Mapping[str, pa.Array], room: Room) -> pa.Table:
        # Without any test all rows are meant, and some column tells how many there are.
        tested = self._columns([self.wanted.field(name) for name in tests] or self.wanted.fields[:1], room)
        met = np.ones(len(tested[0]), dtype=np.bool_)
        for column, values in zip(tested, tests.values(), strict=False):
            met &= np.asarray(pc.is_in(column, value_set=values))
        if self.piece.vector is not None:
            met &= ~np.asarray(self.piece.vector.deleted(self.location, len(met)))
        places, schema = np.flatnonzero(met), _schema(self.wanted)
        if not len(places):
            return schema.empty_table()
        columns = [column.take(pa.array(places)) for column in self._columns(self.wanted.fields, room)]
        return pa.table([*columns, pa.array(self.number * _ROWS_OF_A_FILE + places)], schema=schema)

    @property
    def missing_bytes(self) -> int:
        """What is to be read of the file, compressed."""
        missing = self._missing()
        if not missing:
            return 0
        with opened(self.location, self.piece, _only(self.wanted, missing)) as file:
            return file.stored_bytes

    def _missing(self) -> list[Field]:
        return [column for column in self.wanted.fields if decoded_columns.get(self._key(column)) is None]

    def _size_to_decode(self) -> int:
        missing = self._missing()
        if not missing:
            return 0
        with opened(self.location, self.piece, _only(self.wanted, missing)) as file:
            # A file of which more is wanted leaves no room for others.
            size = file.decoded_bytes
            return size if size <= _LARGEST_BYTES else decoded_columns.most_bytes + 1

    def _columns(self, fields: Sequence[Field], room: Room) -> list[pa.ChunkedArray]:
        """Give columns whole, those that are not kept by one reading of the file."""
        found = {column.physical: decoded_columns.get(self._key(column)) for column in fields}
        missing = [column for column in fields if found[column.physical] is None]
        if missing:
            with opened(self.location, self.piece, _only(self.wanted, missing)) as file:
                part = file.whole()
                for column in missing:
                    found[column.physical] = file.column(part, column)
                    decoded_columns.keep(self._key(column), found[column.physical], room)
        return [found[column.physical] for column in fields]

    def _key(self, column: Field) -> Key:
        partition = self.piece.partition.get(column.physical)
        kind = str(column.type), str(sorted(column.metadata.items()))
        return (*self._identity, column.physical, *kind, partition)

    @cached_property
    def _identity(self) -> Key:
        # Only a table that was written by other means than Delta's gives a new file the name of an old one.
        stat = os.stat(locate(self.location, self.piece.path)[1])
        return self.location, self.piece.path, stat.st_mtime_ns, stat.st_size

    def _find_by_slices(self, tests: Mapping[str, pa.Array]) -> pa.Table:
        with opened(self.location, self.piece, self.wanted) as file:
            tables = (_found(rows, tests) for rows in self._slices(file))
            return pa.concat_tables([_schema(self.wanted).empty_table(), *tables])

    def _slices(self, file: DataFile) -> Iterator[pa.Table]:
        """Yield the rows that are visible, slice by slice."""
        vector = file.piece.vector
        hidden = vector.deleted(self.location, file.count) if vector is not None else None
        schema = _schema(file.wanted)
        for part in file.slices():
            first = self.number * _ROWS_OF_A_FILE + part.start
            columns = [file.column(part, column) for column in file.wanted.fields]
            rows = pa.table([*columns, pa.array(np.arange(first, first + part.count))], schema=schema)
            yield rows if hidden is None else rows.filter(pc.invert(hidden.slice(part.start, part.count)))


def read_matching(
    location: str,
    pieces: Mapping[int, Piece],
    wanted: Wanted,
    tests: Mapping[str, pa.Array],
    *,
    most_bytes: int,
) -> pa.Table | None:
    """Look through files for the rows whose columns all have one of the values; None where that takes long.

    The column `ROW` tells rows apart by the number of their file and their place in it.
    """
    decoded_columns.forget_idle()
    files = [_File(location, number, piece, wanted) for number, piece in pieces.items()]
    size = 0
    for file in files:
        size += file.missing_bytes
        if size > most_bytes:
            return None
    return pa.concat_tables([_schema(wanted).empty_table(), *each(files, lambda file: file.find(tests))])


def _only(wanted: Wanted, fields: Sequence[Field]) -> Wanted:
    return replace(wanted, names=tuple(one.name for one in fields), fields=tuple(fields))


def _found(rows: pa.Table, tests: Mapping[str, pa.Array]) -> pa.Table:
    met = np.ones(rows.num_rows, dtype=np.bool_)
    for name, values in tests.items():
        met &= np.asarray(pc.is_in(rows[name], value_set=values))
    return rows.take(pa.array(np.flatnonzero(met)))


def _schema(wanted: Wanted) -> pa.Schema:
    columns = empty_rows(wanted.names, wanted.fields).schema
    return columns.set(len(columns) - 1, pa.field(ROW, pa.int64()))
