"""Looking through a table on the driver for the rows that have some values, without a Spark job.

Spark takes seconds to plan and scan a table of millions of rows for a few of them; decoding the same columns
with Arrow takes tenths.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import reduce

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.sources.difference import Piece
from headrace.sources.driver import each
from headrace.sources.parquet import DataFile, Wanted, empty_rows, opened

ROW = "__hr_row"
_ROWS_OF_A_FILE = 1 << 40
# Decoded files that are kept between two looks, of all refreshes together.
_KEPT_BYTES = 768 << 20


class Looked:
    """Files that were read already, kept while somebody looks rows up in them again and again."""

    def __init__(self) -> None:
        self.rows: dict[int, pa.Table] = {}
        self._bytes = 0

    def reserve(self, size: int) -> bool:
        """Ask for the memory of a file before it is read."""
        with _room.lock:
            if _room.bytes + size > _KEPT_BYTES:
                return False
            _room.bytes += size
            self._bytes += size
            return True

    def forget(self) -> None:
        """Give the memory back."""
        with _room.lock:
            _room.bytes -= self._bytes
        self.rows, self._bytes = {}, 0


@dataclass
class _Room:
    """What all that is kept in this process takes."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    bytes: int = 0


_room = _Room()


def read_matching(
    location: str,
    pieces: Mapping[int, Piece],
    wanted: Wanted,
    tests: Mapping[str, pa.Array],
    *,
    looked: Looked,
    most_bytes: int,
) -> pa.Table | None:
    """Look through files for the rows whose columns all have one of the values; None where that takes long.

    The column `ROW` tells rows apart by the number of their file and their place in it.
    """

    def search(number: int) -> pa.Table:
        if number in looked.rows:
            return _found(looked.rows[number], tests)
        tables = [_schema(wanted).empty_table()]
        with opened(location, pieces[number], wanted) as file:
            if looked.reserve(file.decoded_bytes):
                rows = looked.rows[number] = pa.concat_tables([*tables, *_decoded(location, file, number)])
                return _found(rows, tests)
            tables += (_found(rows, tests) for rows in _decoded(location, file, number))
        return pa.concat_tables(tables)

    size = 0
    for number in pieces.keys() - looked.rows.keys():
        with opened(location, pieces[number], wanted) as file:
            size += file.stored_bytes
        if size > most_bytes:
            return None
    return pa.concat_tables([_schema(wanted).empty_table(), *each(list(pieces), search)])


def _decoded(location: str, file: DataFile, number: int) -> Iterator[pa.Table]:
    """Yield the rows of a file that are visible, slice by slice."""
    vector = file.piece.vector
    hidden = vector.deleted(location, file.count) if vector is not None else None
    schema = _schema(file.wanted)
    for part in file.slices():
        first = number * _ROWS_OF_A_FILE + part.start
        columns = [file.column(part, column) for column in file.wanted.fields]
        rows = pa.table([*columns, pa.array(np.arange(first, first + part.count))], schema=schema)
        yield rows if hidden is None else rows.filter(pc.invert(hidden.slice(part.start, part.count)))


def _found(rows: pa.Table, tests: Mapping[str, pa.Array]) -> pa.Table:
    found = [pc.is_in(rows[name], value_set=values) for name, values in tests.items()]
    return rows.take(pa.array(np.flatnonzero(np.asarray(reduce(pc.and_, found)))))


def _schema(wanted: Wanted) -> pa.Schema:
    columns = empty_rows(wanted.names, wanted.fields).schema
    return columns.set(len(columns) - 1, pa.field(ROW, pa.int64()))
