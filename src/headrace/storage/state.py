"""Hidden state of a stream table: a small Delta table of its own inside the table's folder.

It holds what the query's aggregates need and its columns do not show, one row per group. It follows from the
query and the frontier alone, so that it may be lost at any time: who finds it at another frontier than the
stream table's builds it anew. Readers of the stream table never see it, since Delta skips such folders.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from headrace.catalog import Frontier
from headrace.storage.apply import FEW_ROWS, TableChange, apply_change, replace_rows
from headrace.storage.apply.change import WEIGHT
from headrace.storage.apply.search import find_rows
from headrace.storage.commit import Draft, VersionTaken, commit_draft
from headrace.storage.data_files import rows_at, visible_rows
from headrace.storage.maintain import Upkeep, maintain
from headrace.storage.marker import Marker, read_marker
from headrace.storage.snapshot import UnreadableLog, read_snapshot
from headrace.storage.table import Storage

_FOLDER = "_headrace"
# Nobody reads an older version of it, except a refresh that is under way.
_UPKEEP = Upkeep(keep_versions=2, grace_seconds=600)


def has_state(storage: Storage) -> bool:
    """Tell at a glance whether a stream table keeps any state."""
    return (Path(storage.location) / _FOLDER).is_dir()


@dataclass(frozen=True)
class StateTable:
    """The state that one definition of a stream table needs; another definition has another place."""

    table: Storage
    definition: str

    @cached_property
    def storage(self) -> Storage:
        digest = hashlib.sha256(self.definition.encode()).hexdigest()[:16]
        return Storage(f"{self.table.location}/{_FOLDER}/state-{digest}", self.table.stream_table)

    def is_at(self, frontier: Frontier) -> bool:
        """Tell whether the state is there and reflects a frontier."""
        marker = self._marker()
        return marker is not None and marker.frontier == frontier

    def build(self, rows: DataFrame, marker: Marker) -> None:
        """Write the state anew, and remove that of earlier definitions."""
        folder = Path(self.table.location) / _FOLDER
        for other in folder.glob("state-*") if folder.is_dir() else ():
            if other.name != Path(self.storage.location).name:
                shutil.rmtree(other, ignore_errors=True)
        few = self.table.row_count() <= FEW_ROWS
        replace_rows(self.storage, rows, marker, few=few, new_schema=True)

    def rows_of(self, keys: pa.Table, columns: Sequence[str]) -> tuple[pa.Table, int]:
        """Read the state of given groups, and its version; a group that has none yet is left out."""
        snapshot = read_snapshot(self.storage.log)
        if not columns:
            whole = [visible_rows(snapshot, file) for file in snapshot.files]
            return pa.concat_tables(whole or [snapshot.arrow_schema.empty_table()]), snapshot.version
        types = pa.schema([snapshot.arrow_schema.field(column) for column in columns])
        wanted = (
            keys.select(columns)
            .cast(types)
            .append_column(WEIGHT, pa.array(np.ones(keys.num_rows, dtype=np.int64)))
        )
        found = find_rows(snapshot, wanted, columns)
        parts = [rows_at(snapshot, path, taken) for path, taken in found.positions.items()]
        rows = pa.concat_tables(parts) if parts else snapshot.arrow_schema.empty_table()
        return rows, snapshot.version

    def apply(self, change: TableChange, marker: Marker, spark: SparkSession, *, base: int) -> None:
        """Move the state on by a change of the rows that version `base` has."""
        applied = apply_change(self.storage, change, marker, spark=spark, base=base)
        if applied.commit is None:
            self.move(marker)
        maintain(self.storage, spark=spark, upkeep=_UPKEEP)

    def move(self, marker: Marker) -> None:
        """Note that the same state holds at a later frontier."""
        version = self.storage.log.newest_version()
        if version is None:
            return
        try:
            commit_draft(self.storage, Draft(operation="WRITE"), marker, read_version=version)
        except VersionTaken:
            # Whoever wrote it said which frontier it is of.
            return

    def _marker(self) -> Marker | None:
        """Read the note of the newest commit that has one."""
        log = self.storage.log
        try:
            version = read_snapshot(log).version
        except UnreadableLog:
            return None
        while (commit := log.commit(version)) is not None:
            marker = read_marker(commit)
            if marker is not None or commit.changes_data:
                return marker
            version -= 1
        return None
