"""What a table is at a version: identity, schema, properties, features; read from its log alone."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import pyarrow.parquet as pq

from headrace.sources.files import open_file
from headrace.sources.log import Commit, DeltaLog

# Tables without a checkpoint keep their metadata in one of the first or the last few commits.
_LOOK_BACK = 12


@dataclass(frozen=True)
class Field:
    """One column of a table; files know it by its physical name."""

    name: str
    type: Any
    metadata: Mapping[str, Any] = field(default_factory=dict)

    @property
    def physical(self) -> str:
        return str(self.metadata.get("delta.columnMapping.physicalName", self.name))


@dataclass(frozen=True)
class TableState:
    """A table's metadata and protocol as of one version."""

    metadata: Mapping[str, Any]
    protocol: Mapping[str, Any]

    @property
    def table_id(self) -> str:
        return str(self.metadata["id"])

    @cached_property
    def fields(self) -> tuple[Field, ...]:
        return fields_of(json.loads(self.metadata["schemaString"]))

    @property
    def partition_columns(self) -> tuple[str, ...]:
        return tuple(self.metadata.get("partitionColumns") or ())

    @property
    def properties(self) -> Mapping[str, str]:
        return dict(self.metadata.get("configuration") or {})

    @property
    def has_change_feed(self) -> bool:
        return self.properties.get("delta.enableChangeDataFeed", "").lower() == "true"

    @property
    def mapping_mode(self) -> str:
        return self.properties.get("delta.columnMapping.mode", "none").lower()

    @property
    def reader_features(self) -> frozenset[str]:
        return frozenset(self.protocol.get("readerFeatures") or ())

    def field(self, name: str) -> Field | None:
        """Find a column by its name, in whatever case."""
        folded = name.casefold()
        return next((found for found in self.fields if found.name.casefold() == folded), None)

    def after(self, commit: Commit) -> TableState:
        """Give the state that a commit leaves behind."""
        if commit.metadata is None and commit.protocol is None:
            return self
        return replace(
            self,
            metadata=commit.metadata if commit.metadata is not None else self.metadata,
            protocol=commit.protocol if commit.protocol is not None else self.protocol,
        )


def fields_of(struct: Mapping[str, Any]) -> tuple[Field, ...]:
    """Read the fields of a struct type as Delta writes it.

    >>> fields_of({"type": "struct", "fields": [{"name": "a", "type": "long", "metadata": {}}]})
    (Field(name='a', type='long', metadata={}),)
    """
    return tuple(Field(one["name"], one["type"], one.get("metadata") or {}) for one in struct["fields"])


def physical_names(field: Field) -> tuple[str, ...]:
    """List a column's own physical name and those of all fields inside it, in order.

    >>> inner = {"name": "b", "type": "long", "metadata": {"delta.columnMapping.physicalName": "col-7"}}
    >>> physical_names(Field("a", {"type": "array", "elementType": {"type": "struct", "fields": [inner]}}))
    ('a', 'col-7')
    """
    return (field.physical, *_physical_inside(field.type))


def _physical_inside(kind: Any) -> Iterator[str]:
    for one in fields_inside(kind):
        yield from physical_names(one)


def fields_inside(kind: Any) -> Iterator[Field]:
    """Yield the fields of the structs in a type, those of structs inside of these left out."""
    if not isinstance(kind, Mapping):
        return
    if kind["type"] == "struct":
        yield from fields_of(kind)
        return
    for part in ("elementType", "keyType", "valueType"):
        yield from fields_inside(kind.get(part))


class StateReader:
    """Finds the state at a version; what it found last makes the next search short."""

    def __init__(self, log: DeltaLog) -> None:
        self._log = log
        self._known: tuple[int, object, TableState] | None = None

    def at(self, version: int) -> TableState | None:
        """Give the state at a version, or None where the log no longer tells it."""
        found = self._from_known(version) or self._from_commits(version) or self._from_checkpoint(version)
        stamp = self._log.stamp(version)
        if found is not None and stamp is not None:
            self._known = version, stamp, found
        return found

    def _from_known(self, version: int) -> TableState | None:
        if self._known is None:
            return None
        known, stamp, state = self._known
        if known > version or self._log.stamp(known) != stamp:
            return None
        return self._forward(state, known, version)

    def _from_commits(self, version: int) -> TableState | None:
        """Look back over the newest commits for both metadata and protocol."""
        metadata = protocol = None
        for candidate in range(version, max(version - _LOOK_BACK, -1), -1):
            commit = self._log.commit(candidate)
            if commit is None:
                return None
            metadata = metadata if metadata is not None else commit.metadata
            protocol = protocol if protocol is not None else commit.protocol
            if metadata is not None and protocol is not None:
                return TableState(metadata, protocol)
        return None

    def _from_checkpoint(self, version: int) -> TableState | None:
        checkpoint = self._log.newest_checkpoint(version)
        if checkpoint is None:
            return self._from_start(version)
        at, names = checkpoint
        found: dict[str, Mapping[str, Any]] = {}
        for name in sorted(names):
            found = read_checkpoint(self._log.location, name) | found
            if {"metaData", "protocol"} <= found.keys():
                return self._forward(TableState(found["metaData"], found["protocol"]), at, version)
        return None

    def _from_start(self, version: int) -> TableState | None:
        first = self._log.commit(0)
        if first is None or first.metadata is None or first.protocol is None:
            return None
        return self._forward(TableState(first.metadata, first.protocol), 0, version)

    def _forward(self, state: TableState, known: int, version: int) -> TableState | None:
        for commit in self._log.commits(known, version):
            if commit is None:
                return None
            state = state.after(commit)
        return state


def read_checkpoint(location: str, name: str) -> dict[str, Mapping[str, Any]]:
    """Read metadata and protocol from one file of a checkpoint, leaving its list of files alone."""
    wanted = ["metaData", "protocol"]
    with open_file(location, f"_delta_log/{name}") as stream:
        if name.endswith(".json"):
            actions = [json.loads(line) for line in stream.read().decode().split("\n") if line.strip()]
            return {kind: action[kind] for action in actions for kind in wanted if kind in action}
        table = pq.ParquetFile(stream).read(columns=wanted)
    found = {}
    for kind in wanted:
        if kind in table.column_names:
            present = table[kind].drop_null()
            if len(present):
                found[kind] = _plain(present[0].as_py())
    return found


def _plain(action: Mapping[str, Any]) -> Mapping[str, Any]:
    """Turn Arrow's maps, which are lists of pairs, into dictionaries."""
    pairs = {"configuration", "options"}
    return {key: dict(value) if key in pairs and value else value for key, value in action.items()}
