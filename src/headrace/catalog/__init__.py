"""Definitions, frontiers, history, alerts and locks, on SQLite or PostgreSQL."""

from __future__ import annotations

from headrace.catalog.database import sqlite_url
from headrace.catalog.leases import Lease
from headrace.catalog.owners import this_owner
from headrace.catalog.records import (
    Action,
    Alert,
    Dependency,
    Frontier,
    NewStreamTable,
    RefreshMode,
    RefreshRecord,
    RefreshState,
    Relation,
    SourceRecord,
    SourceVersion,
    Status,
    StreamTable,
    decode_frontier,
    encode_frontier,
)
from headrace.catalog.store import Catalog

__all__ = [
    "Action",
    "Alert",
    "Catalog",
    "Dependency",
    "Frontier",
    "Lease",
    "NewStreamTable",
    "RefreshMode",
    "RefreshRecord",
    "RefreshState",
    "Relation",
    "SourceRecord",
    "SourceVersion",
    "Status",
    "StreamTable",
    "decode_frontier",
    "encode_frontier",
    "sqlite_url",
    "this_owner",
]
