"""Hidden state of a stream table: a small Delta table of its own inside the table's folder.

It holds what the query's aggregates need and its columns do not show, one row per group. It follows from the
query and the frontier alone, so that it may be lost at any time: who finds it at another frontier than the
stream table's builds it anew. Readers of the stream table never see it, since Delta skips such folders.
"""

from __future__ import annotations

import hashlib
import json
import logging
import shutil
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from headrace.catalog import Frontier
from headrace.storage.apply import TableChange, apply_change, replace_rows
from headrace.storage.apply.change import WEIGHT, Located
from headrace.storage.apply.search import find_rows
from headrace.storage.commit import Draft, VersionTaken, commit_draft
from headrace.storage.data_files import rows_at, visible_rows
from headrace.storage.maintain import Upkeep, maintain
from headrace.storage.marker import Marker, read_marker
from headrace.storage.snapshot import UnreadableLog, read_snapshot
from headrace.storage.table import Storage

_log = logging.getLogger(__name__)

_FOLDER = "_headrace"
# Nobody reads an older version of it, except a refresh that is under way.
_UPKEEP = Upkeep(keep_versions=2, grace_seconds=600, hidden_share=0.3)


def _folder_of(definition: str) -> str:
    return f"state-{hashlib.sha256(definition.encode()).hexdigest()[:16]}"


def has_state(storage: Storage) -> bool:
    """Tell at a glance whether a stream table keeps any state."""
    return (Path(storage.location) / _FOLDER).is_dir()


@dataclass(frozen=True)
class StateTable:
    """The state that one definition of a stream table needs; another definition has another place."""

    table: Storage
    definition: str
    keys: tuple[str, ...]

    @cached_property
    def storage(self) -> Storage:
        folder = _folder_of(self.definition)
        return Storage(f"{self.table.location}/{_FOLDER}/{folder}", self.table.stream_table)

    def version_at(self, frontier: Frontier) -> int | None:
        """Give the newest version, if it is there and reflects a frontier."""
        found = self._newest()
        return found[0] if found is not None and found[1].frontier == frontier else None

    def is_at(self, frontier: Frontier) -> bool:
        """Tell whether the state is there and reflects a frontier."""
        return self.version_at(frontier) is not None

    def build(self, rows: DataFrame, marker: Marker, *, few: bool, current: Collection[str]) -> None:
        """Write the state anew, and remove that of definitions which are not current any more.

        `few` says that the driver may try to hold it.
        """
        folder, needed = Path(self.table.location) / _FOLDER, {*map(_folder_of, current)}
        for other in folder.glob("state-*") if folder.is_dir() else ():
            if other.name not in needed:
                shutil.rmtree(other, ignore_errors=True)
        spark_only = "" if few else "it may have many groups"
        replace_rows(self.storage, rows, marker, spark_only=spark_only, new_schema=True)

    @property
    def table_id(self) -> str:
        return str(read_snapshot(self.storage.log).metadata["id"])

    @property
    def schema(self) -> StructType:
        """The Spark types of its columns."""
        return StructType.fromJson(json.loads(read_snapshot(self.storage.log).metadata["schemaString"]))

    def no_rows(self, version: int) -> pa.Table:
        """Give a table without rows as the state has them."""
        return read_snapshot(self.storage.log, version).arrow_schema.empty_table()

    def rows_of(
        self, keys: pa.Table, columns: Sequence[str], version: int
    ) -> tuple[pa.Table, Located | None]:
        """Read the state of given groups at a version, with its place; a group that has none is left out."""
        snapshot = read_snapshot(self.storage.log, version)
        if not columns:
            whole = [visible_rows(snapshot, file) for file in snapshot.files]
            return pa.concat_tables(whole or [snapshot.arrow_schema.empty_table()]), None
        types = pa.schema([snapshot.arrow_schema.field(column) for column in columns])
        wanted = (
            keys.select(columns)
            .cast(types)
            .append_column(WEIGHT, pa.array(np.ones(keys.num_rows, dtype=np.int64)))
        )
        found = find_rows(snapshot, wanted, columns)
        parts = [rows_at(snapshot, path, taken) for path, taken in found.positions.items()]
        rows = pa.concat_tables(parts) if parts else snapshot.arrow_schema.empty_table()
        return rows, Located(version, found.positions)

    def discard(self) -> None:
        """Forget a state that cannot be read."""
        shutil.rmtree(self.storage.location, ignore_errors=True)

    def apply(self, change: TableChange, marker: Marker, spark: SparkSession, *, base: int) -> int:
        """Move the state on by a change of the rows that version `base` has; give the version that has it.

        Both versions stay readable for this refresh.
        """
        applied = apply_change(self.storage, change, marker, spark=spark, base=base)
        if applied.commit is None:
            self.move(marker)
        try:
            maintain(self.storage, spark=spark, upkeep=_UPKEEP, oldest_needed=base)
        except Exception as error:  # noqa: BLE001 - no failure of housekeeping undoes a refresh
            _log.warning("the state at %s was not tidied: %s", self.storage.location, error)
        moved = applied.commit.version if applied.commit is not None else base
        # A newer version of the same rows is read without Delta, which an older one is not.
        return self.version_at(marker.frontier) or moved

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

    def _newest(self) -> tuple[int, Marker] | None:
        """Give the newest version with the note of the newest commit that has one."""
        log = self.storage.log
        try:
            newest = version = read_snapshot(log).version
        except UnreadableLog:
            return None
        while (commit := log.commit(version)) is not None:
            marker = read_marker(commit)
            if marker is not None:
                return newest, marker
            if commit.changes_data:
                return None
            version -= 1
        return None
