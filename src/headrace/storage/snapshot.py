"""One version of a stream table's storage as its log tells it: schema, features, live files.

The driver writes a commit of its own only onto a version that it knows completely, deletion vectors and all;
that is why the log is replayed here and not asked of a library that hides them.
"""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import Schema

from headrace.sources.log import Commit, DeltaLog

_SNAPSHOTS_KEPT = 128

Action = Mapping[str, Any]


@dataclass(frozen=True)
class DataFile:
    """One live file with what the log says of it."""

    add: Action

    @property
    def path(self) -> str:
        return str(self.add["path"])

    @property
    def size(self) -> int:
        return int(self.add["size"])

    @property
    def vector(self) -> Action | None:
        """The deletion vector that hides some of its rows."""
        return self.add.get("deletionVector") or None

    @cached_property
    def stats(self) -> Action:
        return json.loads(self.add.get("stats") or "{}")  # type: ignore[no-any-return]  # JSON

    @property
    def rows(self) -> int | None:
        """Count the visible rows, or None where the writer left no statistics."""
        stored = self.stats.get("numRecords")
        hidden = int(self.vector["cardinality"]) if self.vector else 0
        return int(stored) - hidden if stored is not None else None


@dataclass(frozen=True)
class Snapshot:
    """A version of the table."""

    location: str
    version: int
    metadata: Action
    protocol: Action
    files: tuple[DataFile, ...]

    @cached_property
    def arrow_schema(self) -> pa.Schema:
        return pa.schema(Schema.from_json(self.metadata["schemaString"]).to_arrow())

    @cached_property
    def fields(self) -> list[dict[str, Any]]:
        """The columns as Delta's schema lists them."""
        return json.loads(self.metadata["schemaString"])["fields"]  # type: ignore[no-any-return]  # JSON

    @property
    def configuration(self) -> Mapping[str, str]:
        return self.metadata.get("configuration") or {}

    @property
    def features(self) -> frozenset[str]:
        """The features that the protocol names; old protocols name none."""
        named = (self.protocol.get("readerFeatures") or []) + (self.protocol.get("writerFeatures") or [])
        return frozenset(named)

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)

    @property
    def rows(self) -> int:
        return sum(file.rows or 0 for file in self.files)

    @property
    def has_change_feed(self) -> bool:
        return self.configuration.get("delta.enableChangeDataFeed", "").lower() == "true"


class UnreadableLog(Exception):  # noqa: N818 - a finding for choosing a path, never shown to a user
    """The log holds something that this reader does not know."""


@dataclass
class _State:
    """A replayed log, moved on commit by commit."""

    version: int = -1
    stamp: object = None
    metadata: Action | None = None
    protocol: Action | None = None
    files: dict[tuple[str, str], DataFile] = field(default_factory=dict)

    def replay(self, commit: Commit) -> None:
        # A commit that gives a file another vector removes and adds one path: the removal comes first.
        for remove in commit.removes:
            self.files.pop(_file_key(remove), None)
        for add in commit.adds:
            self.files[_file_key(add)] = DataFile(add)
        self.metadata = commit.metadata or self.metadata
        self.protocol = commit.protocol or self.protocol
        self.version = commit.version


# By location, and whether it is the newest version.
_states: OrderedDict[tuple[str, bool], _State] = OrderedDict()
_lock = threading.Lock()


def read_snapshot(log: DeltaLog, version: int | None = None) -> Snapshot:
    """Read a version of a table on a local disk, the newest if none is given.

    A second look reads only the commits since; those at given versions go forward as well, mostly.

    Raises UnreadableLog for another store and for checkpoints of a form that is not known here.
    """
    if "://" in log.location:
        raise UnreadableLog("its store is not a local disk")
    newest = log.newest_version()
    last = version if version is not None else newest if newest is not None else -1
    key = log.location, last == newest
    with _lock:
        state = _states.pop(key, None)
    if (
        state is None
        or state.stamp is None
        or log.stamp(state.version) != state.stamp
        or state.version > last
    ):
        state = _from_checkpoint(log, last)
    for commit in log.commits(state.version, last):
        if commit is None:
            raise UnreadableLog("a commit of its log is missing")
        state.replay(commit)
    if state.metadata is None or state.protocol is None:
        raise UnreadableLog("its log has no metadata")
    state.stamp = log.stamp(state.version)
    snapshot = Snapshot(
        log.location, state.version, state.metadata, state.protocol, tuple(state.files.values())
    )
    _keep(key, state)
    return snapshot


def _keep(key: tuple[str, bool], state: _State) -> None:
    with _lock:
        _states[key] = state
        while len(_states) > _SNAPSHOTS_KEPT:
            _states.popitem(last=False)


def _file_key(action: Action) -> tuple[str, str]:
    """Tell a file with one vector from the same file with another, as Delta does."""
    vector = action.get("deletionVector")
    if not vector:
        return action["path"], ""
    offset = vector.get("offset")
    place = "" if offset is None else f"@{offset}"
    return action["path"], f"{vector['storageType']}{vector['pathOrInlineDv']}{place}"


def _from_checkpoint(log: DeltaLog, last: int) -> _State:
    """Start from the newest checkpoint up to a version, or from nothing."""
    if not log.exists():
        raise UnreadableLog("it is gone")
    checkpoint = log.newest_checkpoint(last)
    if checkpoint is None:
        return _State()
    version, parts = checkpoint
    if not all(is_classic(name) for name in parts):
        raise UnreadableLog("its checkpoints are of the second version")
    state = _State()
    for part in parts:
        for row in _checkpoint_rows(Path(log.location) / "_delta_log" / part):
            _replay_row(state, row)
    state.version = version
    return state


def is_classic(name: str) -> bool:
    """Know a checkpoint in one file or in numbered parts.

    >>> is_classic("00000000000000000010.checkpoint.parquet")
    True
    >>> is_classic("00000000000000000010.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.json")
    False
    """
    middle = name.split(".")[2:-1]
    return name.endswith(".parquet") and all(part.isdigit() for part in middle)


def _checkpoint_rows(path: Path) -> Iterable[dict[str, Any]]:
    file = pq.ParquetFile(path)
    # Parsed statistics and partition values repeat what the text forms say.
    leaves = [*(f"add.{name}" for name in _ADD_FIELDS), "metaData", "protocol", "sidecar"]
    for batch in file.iter_batches(columns=leaves):
        yield from batch.to_pylist(maps_as_pydicts="strict")


_ADD_FIELDS = (
    "path",
    "partitionValues",
    "size",
    "modificationTime",
    "dataChange",
    "stats",
    "tags",
    "deletionVector",
    "baseRowId",
    "defaultRowCommitVersion",
    "clusteringProvider",
)


def _replay_row(state: _State, row: Mapping[str, Any]) -> None:
    if row.get("add") and row["add"].get("path"):
        add = {key: value for key, value in row["add"].items() if value is not None}
        state.files[_file_key(add)] = DataFile(add)
    if row.get("metaData") and row["metaData"].get("id"):
        state.metadata = row["metaData"]
    if row.get("protocol") and row["protocol"].get("minReaderVersion") is not None:
        state.protocol = row["protocol"]
    if row.get("sidecar") and row["sidecar"].get("path"):
        raise UnreadableLog("its checkpoints are of the second version")
