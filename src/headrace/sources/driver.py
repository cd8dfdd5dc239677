"""Reading a small difference on the driver: Parquet files into weighted Arrow rows, without a Spark job."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import reduce
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headrace.sources.arrow_types import UndecodableError
from headrace.sources.difference import Difference, Piece
from headrace.sources.files import open_file
from headrace.sources.parquet import CHANGE_TYPE, Wanted, empty_rows, opened

T = TypeVar("T")
R = TypeVar("R")

_READERS = 4
_WEIGHTS = {"insert": 1, "update_postimage": 1, "delete": -1, "update_preimage": -1}


def read_rows(location: str, difference: Difference, wanted: Wanted) -> pa.Table:
    """Read all pieces of a difference: the wanted columns and the weight, not yet netted out."""
    tables = each(list(difference.by_path()), lambda group: _read_file(location, group, wanted))
    return pa.concat_tables([empty_rows(wanted.names, wanted.fields), *tables])


def counted(location: str, difference: Difference) -> Difference:
    """Take the numbers of rows that the log leaves out from the files themselves, whose ends hold them."""
    unknown = sorted({piece.path for piece in difference.pieces if piece.records is None})
    return difference.with_records(dict(each(unknown, lambda path: (path, _rows_stored(location, path)))))


def _rows_stored(location: str, path: str) -> int:
    with open_file(location, path) as stream:
        return int(pq.ParquetFile(stream).metadata.num_rows)


def each(items: Sequence[T], read: Callable[[T], R], at_once: int = _READERS) -> list[R]:
    """Read some files at a time; a single one in less time than a thread takes to start."""
    if len(items) < 2:
        return [read(item) for item in items]
    with ThreadPoolExecutor(at_once) as readers:
        return list(readers.map(read, items))


def _read_file(location: str, group: tuple[Piece, ...], wanted: Wanted) -> pa.Table:
    schema = empty_rows(wanted.names, wanted.fields).schema
    with opened(location, group[0], wanted) as file:
        weights = None if group[0].is_change_file else _file_weights(location, group, file.count)
        some = weights is not None and (len(group) > 1 or group[0].vector is not None)
        tables = []
        for part in file.slices():
            own = _change_weights(part.rows) if weights is None else weights.slice(part.start, part.count)
            kept = pc.not_equal(own, 0) if some else None
            if kept is not None and not pc.any(kept).as_py():
                continue
            columns = [file.column(part, field) for field in wanted.fields]
            table = pa.table([*columns, own], schema=schema)
            tables.append(table.filter(kept) if kept is not None else table)
    return pa.concat_tables([schema.empty_table(), *tables])


def _file_weights(location: str, group: tuple[Piece, ...], count: int) -> pa.Array:
    """Weigh every row of a file by the versions in which it lives."""
    return reduce(pc.add, (_live_weights(location, piece, count) for piece in group))


def _live_weights(location: str, piece: Piece, count: int) -> pa.Array:
    weight = pa.scalar(piece.weight, pa.int64())
    if piece.vector is None:
        return pa.repeat(weight, count)
    deleted = piece.vector.deleted(location, count)
    return pc.if_else(deleted, pa.scalar(0, pa.int64()), weight)


def _change_weights(rows: pa.Table) -> pa.ChunkedArray:
    kinds = pa.array(list(_WEIGHTS))
    found = pc.index_in(rows[CHANGE_TYPE].cast(pa.string()), kinds)
    if found.null_count:
        raise UndecodableError("unknown kind of change in the change feed")
    return pc.take(pa.array(_WEIGHTS.values(), pa.int64()), found)
