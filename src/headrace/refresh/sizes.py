"""How many rows the sources hold, by the log's statistics and kept in step with their changes."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from headrace.catalog import SourceVersion
from headrace.sources.changes import estimate_changes
from headrace.sources.delta import DeltaSource


class RowCounts:
    """Counts a table once and then adds what each change gained and lost."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[SourceVersion, int]] = {}

    def of(self, source: DeltaSource, at: SourceVersion) -> int | None:
        """Give the rows of a source at a version, or None where its statistics cannot be read."""
        known = self._known.get(source.location)
        if known is not None and known[0].table_id == at.table_id and known[0].version <= at.version:
            change = estimate_changes(source, known[0], at)
            rows = known[1] + change.gained - change.lost
        else:
            counted = _count(source.location, at.version)
            if counted is None:
                return None
            rows = counted
        self._known[source.location] = (at, rows)
        return rows


def _count(location: str, version: int) -> int | None:
    try:
        actions = pa.table(DeltaTable(location, version=version).get_add_actions(flatten=True))
    except (DeltaError, OSError):
        return None
    if "num_records" not in actions.column_names:
        return None
    return int(pc.sum(actions["num_records"]).as_py() or 0)
