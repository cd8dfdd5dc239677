"""How many rows the sources hold, by the log's statistics and kept in step with their changes."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from headrace.catalog import SourceVersion
from headrace.errors import HeadraceError
from headrace.sources.changes import estimate_changes
from headrace.sources.delta import DeltaSource


class RowCounts:
    """Counts a table once and then adds what each change gained and lost."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[SourceVersion, int]] = {}

    def of(self, source: DeltaSource, at: SourceVersion) -> int | None:
        """Give the rows of a source at a version, or None where its statistics cannot be read."""
        known = self._known.get(source.location)
        if known is not None and known[0] == at:
            return known[1]
        rows = None
        if known is not None and known[0].table_id == at.table_id and known[0].version <= at.version:
            # Where the history in between is lost, the table is counted anew.
            with suppress(HeadraceError):
                change = estimate_changes(source, known[0], at)
                rows = known[1] + change.gained - change.lost
        if rows is None:
            rows = stored_size(source.location, at.version).rows
        if rows is not None:
            self._known[source.location] = (at, rows)
        return rows


@dataclass(frozen=True)
class Stored:
    """What a table holds by its log: rows and bytes of its files, both unknown where they are None."""

    rows: int | None = 0
    bytes: int | None = 0

    def __add__(self, other: Stored) -> Stored:
        return Stored(_sum(self.rows, other.rows), _sum(self.bytes, other.bytes))

    def is_within(self, rows: int, size: int) -> bool:
        """Tell whether the table is known to be no larger."""
        return self.rows is not None and self.rows <= rows and self.bytes is not None and self.bytes <= size


def stored_size(location: str, version: int) -> Stored:
    """Add up the files of a version."""
    try:
        actions = pa.table(DeltaTable(location, version=version).get_add_actions(flatten=True))
    except (DeltaError, OSError):
        return Stored(None, None)
    known = "num_records" in actions.column_names and actions["num_records"].null_count == 0
    rows = int(pc.sum(actions["num_records"]).as_py() or 0) if known else None
    return Stored(rows, int(pc.sum(actions["size_bytes"]).as_py() or 0))


def _sum(left: int | None, right: int | None) -> int | None:
    return left + right if left is not None and right is not None else None
