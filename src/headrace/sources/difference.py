"""Which files tell what changed between two versions, found in the log without reading any data.

Two sums give the same change. The *net* one takes the files that only the new version has and those that
only the old one has. The one *commit by commit* adds up what each data-changing commit did, so that a file
moved by OPTIMIZE costs nothing, and takes a commit's change files (the change data feed) where it has them.
"""

from __future__ import annotations

import json
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from headrace.sources.files import missing_files
from headrace.sources.log import Commit
from headrace.sources.vectors import DeletionVector

Action = Mapping[str, Any]
_BYTES_PER_ROW = 100


@dataclass(frozen=True)
class Piece:
    """The live rows of a data file, or the rows of a change file, with a weight; `version` shows the file."""

    path: str
    size: int
    partition: Mapping[str, str | None]
    vector: DeletionVector | None
    weight: int
    version: int
    records: int | None = None
    is_change_file: bool = False

    @property
    def key(self) -> tuple[str, DeletionVector | None]:
        return self.path, self.vector

    @property
    def files(self) -> tuple[str, ...]:
        stored = self.vector.path if self.vector else None
        return (self.path, stored) if stored else (self.path,)

    @property
    def deleted(self) -> int:
        return self.vector.cardinality if self.vector else 0


@dataclass(frozen=True)
class Difference:
    """Pieces whose weighted rows add up to the change."""

    pieces: tuple[Piece, ...]

    @property
    def data_files(self) -> tuple[Piece, ...]:
        return tuple(piece for piece in self.pieces if not piece.is_change_file)

    @property
    def change_files(self) -> tuple[Piece, ...]:
        return tuple(piece for piece in self.pieces if piece.is_change_file)

    @property
    def only_adds(self) -> bool:
        return not self.change_files and all(self._is_gain(group) for group in self.by_path())

    @property
    def bytes(self) -> int:
        """Sum the sizes of the files to read; a file whose deletion vector changed is read once."""
        return sum(group[0].size for group in self.by_path())

    def missing(self, location: str) -> list[str]:
        """List the files, deletion vectors among them, that are no longer there."""
        return missing_files(location, {path for piece in self.pieces for path in piece.files})

    def by_path(self) -> Iterator[tuple[Piece, ...]]:
        """Yield the pieces of each file together."""
        groups: dict[str, list[Piece]] = {}
        for piece in self.pieces:
            groups.setdefault(piece.path, []).append(piece)
        return (tuple(group) for group in groups.values())

    @property
    def is_counted(self) -> bool:
        """Tell whether the log says how many rows each file has."""
        return all(piece.records is not None for piece in self.pieces)

    def with_records(self, found: Mapping[str, int]) -> Difference:
        """Note how many rows files have of which the log does not say it."""
        return Difference(
            tuple(
                replace(piece, records=found[piece.path])
                if piece.records is None and piece.path in found
                else piece
                for piece in self.pieces
            )
        )

    @property
    def rows_read(self) -> int:
        """Estimate the rows of the files to read."""
        ratio = self._bytes_per_row()
        known = (max((piece.records or 0) for piece in group) for group in self.by_path())
        sizes = (group[0].size for group in self.by_path())
        return sum(rows or round(size / ratio) for rows, size in zip(known, sizes, strict=True))

    def rows(self) -> tuple[int, int]:
        """Estimate the rows gained and lost from the numbers in the log."""
        gained = lost = 0
        ratio = self._bytes_per_row()
        for group in self.by_path():
            if len(group) > 1:
                # Versions of one file: only the deletion vectors differ.
                change = -sum(piece.weight * piece.deleted for piece in group)
            else:
                (piece,) = group
                known = piece.records if piece.records is not None else round(piece.size / ratio)
                change = piece.weight * max(known - piece.deleted, 1)
            if group[0].is_change_file:
                gained, lost = gained + change // 2, lost + change // 2
            else:
                gained, lost = gained + max(change, 0), lost + max(-change, 0)
        return gained, lost

    def _bytes_per_row(self) -> float:
        known = [piece for piece in self.pieces if piece.records]
        rows = sum(piece.records or 0 for piece in known)
        return max(sum(piece.size for piece in known) / rows, 1.0) if rows else _BYTES_PER_ROW

    @staticmethod
    def _is_gain(group: Sequence[Piece]) -> bool:
        return len(group) == 1 and group[0].weight > 0


def net_difference(commits: Iterable[Commit]) -> Difference:
    """Take the files that only the newer version has and those that only the older one has.

    >>> net_difference([]).pieces
    ()
    """
    gained: dict[object, Piece] = {}
    lost: dict[object, Piece] = {}
    for commit in commits:
        for action in commit.removes:
            piece = _piece(action, weight=-1, version=commit.version - 1)
            if gained.pop(piece.key, None) is None:
                lost[piece.key] = piece
        for action in _arrivals(commit):
            piece = _piece(action, weight=1, version=commit.version)
            if lost.pop(piece.key, None) is None:
                gained[piece.key] = piece
    return Difference((*lost.values(), *gained.values()))


def whole_table(adds: Iterable[Action], version: int) -> Difference:
    """Take all files of a version: the change from nothing to it."""
    return Difference(tuple(_piece(action, weight=1, version=version) for action in adds))


def commit_difference(commits: Iterable[Commit], *, feeds: Container[int]) -> Difference:
    """Add up what every data-changing commit did, in the versions of `feeds` from their change files."""
    total: dict[object, Piece] = {}
    changes: list[Piece] = []
    for commit in commits:
        if not commit.changes_data:
            continue
        if commit.version in feeds:
            changes += (_change_piece(action, commit.version) for action in commit.change_files)
            continue
        for action in commit.removes:
            _add_up(total, _piece(action, weight=-1, version=commit.version - 1))
        for action in _arrivals(commit):
            _add_up(total, _piece(action, weight=1, version=commit.version))
    return Difference((*total.values(), *changes))


def _arrivals(commit: Commit) -> Iterator[Action]:
    """Yield the files that a commit brings, without those it only describes anew.

    A commit that takes no rows away by moving them brings none by moving: its moved files are in the table
    already, and it wrote new statistics or row ids for them.
    """
    moves = any(not action.get("dataChange", True) for action in commit.removes)
    return (action for action in commit.adds if moves or action.get("dataChange", True))


def _add_up(total: dict[object, Piece], piece: Piece) -> None:
    before = total.pop(piece.key, None)
    weight = piece.weight + (before.weight if before else 0)
    if weight:
        records = piece.records
        if records is None and before is not None:
            records = before.records
        total[piece.key] = Piece(
            piece.path, piece.size, piece.partition, piece.vector, weight, piece.version, records
        )


def _piece(action: Action, *, weight: int, version: int) -> Piece:
    return Piece(
        path=action["path"],
        size=int(action.get("size") or 0),
        partition=action.get("partitionValues") or {},
        vector=DeletionVector.of(action),
        weight=weight,
        version=version,
        records=_records(action),
    )


def _change_piece(action: Action, version: int) -> Piece:
    return Piece(
        path=action["path"],
        size=int(action.get("size") or 0),
        partition=action.get("partitionValues") or {},
        vector=None,
        weight=1,
        version=version,
        is_change_file=True,
    )


def _records(action: Action) -> int | None:
    stats = action.get("stats")
    found = json.loads(stats).get("numRecords") if stats else None
    return int(found) if found is not None else None
