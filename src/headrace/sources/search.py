"""Looking through a table on the driver for the rows that have some values, without a Spark job.

Spark takes seconds to plan and scan a table of millions of rows for a few of them; decoding the same columns
with Arrow takes tenths.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.sources.difference import Piece
from headrace.sources.driver import each
from headrace.sources.parquet import DataFile, Wanted, empty_rows, opened

ROW = "__hr_row"
_ROWS_OF_A_FILE = 1 << 40


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

    def search(number: int) -> pa.Table:
        with opened(location, pieces[number], wanted) as file:
            return _found(location, file, number * _ROWS_OF_A_FILE, tests)

    size = 0
    for piece in pieces.values():
        with opened(location, piece, wanted) as file:
            size += file.stored_bytes
        if size > most_bytes:
            return None
    return pa.concat_tables([_schema(wanted).empty_table(), *each(list(pieces), search)])


def _found(location: str, file: DataFile, first: int, tests: Mapping[str, pa.Array]) -> pa.Table:
    wanted, vector = file.wanted, file.piece.vector
    tables = [_schema(wanted).empty_table()]
    hidden = vector.deleted(location, file.count) if vector is not None else None
    for part in file.slices():
        tested = {name: file.column(part, wanted.field(name)) for name in tests}
        kept = reduce(pc.and_, (pc.is_in(tested[name], value_set=values) for name, values in tests.items()))
        if hidden is not None:
            kept = pc.and_(kept, pc.invert(hidden.slice(part.start, part.count)))
        places = np.flatnonzero(np.asarray(kept))
        if len(places):
            every = [file.column(part, field) for field in wanted.fields]
            taken = [column.take(pa.array(places)) for column in every]
            numbers = pa.array(places + (first + part.start), pa.int64())
            tables.append(pa.table([*taken, numbers], schema=tables[0].schema))
    return pa.concat_tables(tables)


def _schema(wanted: Wanted) -> pa.Schema:
    columns = empty_rows(wanted.names, wanted.fields).schema
    return columns.set(len(columns) - 1, pa.field(ROW, pa.int64()))
