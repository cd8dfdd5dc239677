"""Find where the rows that a change takes away are stored: file and position, copy by copy."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.sources.driver import each
from headrace.storage.apply.change import WEIGHT
from headrace.storage.apply.skipping import FileFilter
from headrace.storage.data_files import read_columns, rows_at
from headrace.storage.identity import (
    Integers,
    comparable,
    distinct_count,
    is_nested,
    rank_among_equals,
    row_codes,
)
from headrace.storage.snapshot import DataFile, Snapshot
from headrace.storage.vectors import read_vector

# Candidates compared at once: enough that numpy's fixed costs vanish, few enough to hold beside the files.
_BATCH_ROWS = 200_000

# Candidates per lost row beyond which another column is asked before all of them are compared.
_ENOUGH = 4

# Beyond so much, compressed, decoding all columns takes longer than all else, and they are not kept.
_LARGE_BYTES = 64 << 20

Positions = Mapping[str, Integers]


@dataclass(frozen=True)
class Found:
    """The positions to delete per file, and how many copies are nowhere to be found."""

    positions: Positions
    missing: int


@dataclass(frozen=True)
class _Candidates:
    """Rows of one file that agree with some lost row in the narrowing columns."""

    file: DataFile
    positions: Integers
    rows: pa.Table


def find_rows(snapshot: Snapshot, losses: pa.Table, match: Sequence[str], *, stored: bool = False) -> Found:
    """Find the lost rows by their values in the columns `match`, newest files first.

    The most telling column narrows each file to few candidates; all columns decide. The search ends when
    every copy is found, so a change of recent rows reads recent files alone. Who knows that all of them are
    `stored` spares reading the other columns of many files where one column decides alone.
    """
    search = _Search(losses, match)
    files = FileFilter(losses, match).select(snapshot.files)
    if stored and len(files) > 1 and sum(file.size for file in files) > _LARGE_BYTES:
        positions = _found_by_one_column(snapshot, files, search)
        if positions is not None:
            return Found(positions, 0)
    for batch in _batches(_candidates(snapshot, files, search), search):
        search.settle(batch)
        if search.missing == 0:
            break
    return Found(search.positions, search.missing)


class _Search:
    """The lost rows, and what is still missing of them."""

    def __init__(self, losses: pa.Table, match: Sequence[str]) -> None:
        self.losses = losses
        self.match = list(match)
        self._wanted: Integers = losses[WEIGHT].to_numpy().astype(np.int64)
        self._parts: dict[str, list[Integers]] = {}
        self.narrowing = _narrowing_columns(losses, match)
        self.lead = self.narrowing[0] if self.narrowing else self.match[0]

    @property
    def wanted(self) -> Integers:
        """How many copies of each lost row are not found yet."""
        return self._wanted

    @property
    def missing(self) -> int:
        return int(self._wanted.sum())

    @property
    def positions(self) -> dict[str, Integers]:
        return {path: np.sort(np.concatenate(parts)) for path, parts in self._parts.items()}

    def settle(self, batch: Sequence[_Candidates]) -> None:
        """Take candidates that are wanted, of equal ones no more than are wanted."""
        wanted_rows = self.losses.select(self.match)
        # What Spark computed may say that it is never NULL where the table does not.
        rows = pa.concat_tables([wanted_rows, *(part.rows for part in batch)], promote_options="default")
        codes = row_codes(rows, self.match)
        wanted, offered = codes[: self.losses.num_rows], codes[self.losses.num_rows :]
        order = np.argsort(wanted, kind="stable")
        # Of lost rows that are equal here, as with 0.0 and -0.0, the first one stands for all.
        first = order[np.searchsorted(wanted[order], wanted)]
        self._wanted = np.bincount(first, weights=self._wanted, minlength=len(wanted)).astype(np.int64)
        place = np.minimum(np.searchsorted(wanted[order], offered), len(order) - 1)
        # A candidate that equals no lost row is counted as one of its own.
        which = np.where(wanted[order[place]] == offered, order[place], -1)
        taken = (which >= 0) & (rank_among_equals(which) < self._wanted[which])
        np.subtract.at(self._wanted, which[taken], 1)
        start = 0
        for part in batch:
            end = start + len(part.positions)
            chosen = part.positions[taken[start:end]]
            if len(chosen):
                self._parts.setdefault(part.file.path, []).append(chosen)
            start = end


def _found_by_one_column(
    snapshot: Snapshot, files: Sequence[DataFile], search: _Search
) -> dict[str, Integers] | None:
    """Find rows by their most telling column alone; None where others have the same values in it.

    All lost rows should be stored. Where no more rows than these agree with them in one column, they are the
    ones. In one file all columns are compared nevertheless: what is stored may not be what it should be.
    """
    lead, losses = search.lead, search.losses
    if not search.narrowing or not 0 < losses.num_rows == distinct_count(losses[lead]):
        return None
    values = comparable(losses[lead]).combine_chunks()

    def look(file: DataFile) -> tuple[Integers, Integers]:
        """Give the positions of rows with one of the values, and which one each has."""
        column = read_columns(snapshot, file.path, [lead])[lead]
        which = pc.index_in(comparable(column), value_set=values)
        positions = _visible(snapshot, file, np.flatnonzero(np.asarray(which.is_valid())))
        return positions, which.take(pa.array(positions)).to_numpy().astype(np.int64)

    newest_first = _newest_first(files)
    hits = each(newest_first, look, at_once=os.cpu_count() or 2)
    found = {file.path: hit for file, hit in zip(newest_first, hits, strict=True)}
    found = {path: hit for path, hit in found.items() if len(hit[0])}
    met = np.concatenate([np.zeros(0, dtype=np.int64), *(which for _, which in found.values())])
    if not np.array_equal(np.bincount(met, minlength=losses.num_rows), search.wanted):
        return None
    path, (positions, which) = next(iter(found.items()))
    rows = rows_at(snapshot, path, positions).select(search.match)
    expected = losses.select(search.match).take(pa.array(which)).cast(rows.schema)
    codes = row_codes(pa.concat_tables([rows, expected]), search.match)
    if not np.array_equal(codes[: len(positions)], codes[len(positions) :]):
        return None
    return {path: positions for path, (positions, _) in found.items()}


def _newest_first(files: Sequence[DataFile]) -> list[DataFile]:
    return sorted(files, key=lambda file: -int(file.add.get("modificationTime", 0)))


def _narrowing_columns(losses: pa.Table, match: Sequence[str]) -> list[str]:
    """Order the columns that Arrow can search by, the one with most distinct values first."""
    plain = [column for column in match if not is_nested(losses.schema.field(column).type)]
    return sorted(plain, key=lambda column: -distinct_count(losses[column]))


def _candidates(snapshot: Snapshot, files: Sequence[DataFile], search: _Search) -> Iterator[_Candidates]:
    """Read files a few at a time, newest first."""
    if len(files) == 1:
        # A thread takes longer to start than a small file takes to read.
        yield _narrow(snapshot, files[0], search)
        return
    workers = os.cpu_count() or 2
    remaining = iter(_newest_first(files))
    with ThreadPoolExecutor(workers) as pool:
        while group := list(islice(remaining, workers)):
            yield from pool.map(lambda file: _narrow(snapshot, file, search), group)


def _narrow(snapshot: Snapshot, file: DataFile, search: _Search) -> _Candidates:
    """Keep the rows of a file that agree with some lost row in one column after another, while many do."""
    lead = search.lead
    first = read_columns(snapshot, file.path, [lead])
    positions: Integers = np.arange(first.num_rows, dtype=np.int64)
    if search.narrowing:
        positions = positions[_is_among(first[lead], search.losses[lead])]
    positions = _visible(snapshot, file, positions)
    if not len(positions):
        return _Candidates(file, positions, first.slice(0, 0))
    others = [column for column in search.match if column != lead]
    rows = read_columns(snapshot, file.path, others).append_column(lead, first[lead]) if others else first
    rows = rows.select(search.match).take(pa.array(positions))
    for column in search.narrowing[1:]:
        if len(positions) <= _ENOUGH * search.losses.num_rows:
            break
        keep = _is_among(rows[column], search.losses[column])
        positions, rows = positions[keep], rows.filter(pa.array(keep))
    return _Candidates(file, positions, rows)


def _is_among(values: pa.ChunkedArray, wanted: pa.ChunkedArray) -> npt.NDArray[np.bool_]:
    found = pc.is_in(comparable(values), value_set=comparable(wanted).combine_chunks())
    return np.asarray(found.to_numpy(), dtype=np.bool_)


def _visible(snapshot: Snapshot, file: DataFile, positions: Integers) -> Integers:
    if file.vector is None or not len(positions):
        return positions
    return positions[~np.isin(positions, read_vector(snapshot.location, file.vector))]


def _batches(candidates: Iterator[_Candidates], search: _Search) -> Iterator[list[_Candidates]]:
    """Gather candidates until they may settle the search or fill a batch."""
    batch: list[_Candidates] = []
    rows = 0
    for part in candidates:
        if len(part.positions):
            batch.append(part)
            rows += len(part.positions)
        if rows >= min(max(search.missing, 1), _BATCH_ROWS):
            yield batch
            batch, rows = [], 0
    if batch:
        yield batch
