"""What the catalog keeps, as frozen records: the only shapes that leave this folder."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Literal, TypedDict

from headrace.sql.names import TableName


class Status(StrEnum):
    """Where a stream table stands in its life."""

    INITIALIZING = "INITIALIZING"
    ACTIVE = "ACTIVE"
    SUSPENDED = "SUSPENDED"
    ERROR = "ERROR"


class RefreshMode(StrEnum):
    """What the user asked for."""

    AUTO = "AUTO"
    DIFFERENTIAL = "DIFFERENTIAL"
    FULL = "FULL"
    IMMEDIATE = "IMMEDIATE"


class Action(StrEnum):
    """What one refresh did."""

    NO_DATA = "NO_DATA"
    DIFFERENTIAL = "DIFFERENTIAL"
    FULL = "FULL"
    REINITIALIZE = "REINITIALIZE"
    SKIPPED = "SKIPPED"


class RefreshState(StrEnum):
    """How far one refresh came."""

    RUNNING = "RUNNING"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    SKIPPED = "SKIPPED"


DependencyKind = Literal["TABLE", "STREAM_TABLE", "VIEW"]
RelationKind = Literal["TABLE", "VIEW"]


@dataclass(frozen=True, eq=False)
class SourceVersion:
    """One version of one Delta table; the id tells a re-created table from the one it replaced.

    The digest of its `commit`, where it is known, tells it from the same version of a copy that went its own
    way: a copied folder keeps the id.

    >>> SourceVersion(7, "a1", "c1") == SourceVersion(7, "a1")
    True
    >>> SourceVersion(7, "a1", "c1") == SourceVersion(7, "a1", "c2")
    False
    """

    version: int
    table_id: str
    commit: str | None = field(default=None, repr=False)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SourceVersion):
            return NotImplemented
        alike = None in (self.commit, other.commit) or self.commit == other.commit
        return alike and (self.version, self.table_id) == (other.version, other.table_id)

    def __hash__(self) -> int:
        return hash((self.version, self.table_id))


Frontier = Mapping[str, SourceVersion]
"""The version of every source that a stream table reflects, keyed by `str(TableName)`."""


def encode_frontier(frontier: Frontier) -> str:
    """Write a frontier as JSON, with sorted keys so that equal frontiers are equal texts.

    >>> encode_frontier({"shop.orders": SourceVersion(7, "a1")})
    '{"shop.orders": {"table_id": "a1", "version": 7}}'
    """
    return json.dumps({name: _encoded(at) for name, at in frontier.items()}, sort_keys=True)


def decode_frontier(text: str) -> dict[str, SourceVersion]:
    """Read a frontier back from JSON.

    >>> decode_frontier('{"shop.orders": {"version": 7, "table_id": "a1"}}')
    {'shop.orders': SourceVersion(version=7, table_id='a1')}
    """
    found = json.loads(text).items()
    return {name: SourceVersion(at["version"], at["table_id"], at.get("commit")) for name, at in found}


def _encoded(at: SourceVersion) -> dict[str, object]:
    known = {"version": at.version, "table_id": at.table_id}
    return known if at.commit is None else {**known, "commit": at.commit}


@dataclass(frozen=True, kw_only=True)
class NewStreamTable:
    """A stream table as it is handed to the catalog, before it has an id and a history."""

    name: TableName
    query: str
    expanded_query: str
    current_schema: str
    columns: tuple[tuple[str, str], ...]
    refresh_mode: RefreshMode
    effective_mode: str
    mode_reason: str
    schedule: str
    location: str
    status: Status = Status.INITIALIZING
    comment: str | None = None
    cluster_by: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    table_id: str | None = None
    storage_version: int | None = None
    frontier: Frontier | None = None
    data_timestamp: datetime | None = None


@dataclass(frozen=True, kw_only=True)
class StreamTable:
    """A stream table: its definition, and how far its contents have come.

    `id` is unique for all time, so that a table dropped and created again is another one. `effective_mode` is
    DIFFERENTIAL or FULL; `mode_reason` says why. `columns` are (name, Spark type) pairs.
    """

    id: str
    name: TableName
    query: str
    expanded_query: str
    current_schema: str
    columns: tuple[tuple[str, str], ...]
    status: Status
    refresh_mode: RefreshMode
    effective_mode: str
    mode_reason: str
    schedule: str
    comment: str | None
    cluster_by: tuple[str, ...]
    options: Mapping[str, str]
    location: str
    table_id: str | None
    storage_version: int | None
    frontier: Frontier | None
    data_timestamp: datetime | None
    reinitialize_reason: str | None
    consecutive_errors: int
    last_error: str | None
    created_at: datetime
    updated_at: datetime
    last_refresh_at: datetime | None


class StreamTableChanges(TypedDict, total=False):
    """The fields of a stream table that may change; its name changes by `rename` only."""

    query: str
    expanded_query: str
    current_schema: str
    columns: tuple[tuple[str, str], ...]
    status: Status
    refresh_mode: RefreshMode
    effective_mode: str
    mode_reason: str
    schedule: str
    comment: str | None
    cluster_by: tuple[str, ...]
    options: Mapping[str, str]
    location: str
    table_id: str | None
    storage_version: int | None
    frontier: Frontier | None
    data_timestamp: datetime | None
    reinitialize_reason: str | None
    consecutive_errors: int
    last_error: str | None
    last_refresh_at: datetime | None


@dataclass(frozen=True)
class Dependency:
    """One stream table reads one source, and these columns of it."""

    stream_table: TableName
    source: TableName
    kind: DependencyKind
    columns_used: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class RefreshRecord:
    """One refresh in the history; `details` holds the figures behind a choice."""

    id: int
    stream_table: TableName
    stream_table_id: str
    state: RefreshState
    action: Action | None
    reason: str
    started_at: datetime
    ended_at: datetime | None
    data_timestamp: datetime | None
    rows_inserted: int
    rows_deleted: int
    delta_row_count: int
    frontier: Frontier | None
    error_code: str | None
    error: str | None
    duration_ms: float | None
    spark_jobs: int
    details: Mapping[str, Any]


class RefreshOutcome(TypedDict, total=False):
    """What is known of a refresh once it has ended; the fields of `RefreshRecord` that a caller may give."""

    action: Action | None
    reason: str
    ended_at: datetime
    data_timestamp: datetime | None
    rows_inserted: int
    rows_deleted: int
    delta_row_count: int
    frontier: Frontier | None
    error_code: str | None
    error: str | None
    duration_ms: float
    spark_jobs: int
    details: Mapping[str, Any]


@dataclass(frozen=True)
class Alert:
    """Something a person should look at."""

    id: int
    stream_table: TableName | None
    kind: str
    message: str
    raised_at: datetime


@dataclass(frozen=True)
class SourceRecord:
    """A source outside the lake, such as a table of PostgreSQL."""

    name: TableName
    kind: str
    options: Mapping[str, str]
    created_at: datetime


@dataclass(frozen=True)
class Relation:
    """A view or an external table of the embedded lake, kept so that every process sees it."""

    name: TableName
    kind: RelationKind
    definition: str | None = None
    location: str | None = None
