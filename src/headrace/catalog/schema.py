"""The catalog's tables: in PostgreSQL under the schema `headrace`, in SQLite under their plain names."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Float, ForeignKey, Index, Integer, MetaData, Table, Text

from headrace.catalog import types
from headrace.catalog.records import (
    Action,
    RefreshMode,
    RefreshState,
    Status,
    decode_frontier,
    encode_frontier,
)
from headrace.catalog.types import Encoded, UtcDateTime

SCHEMA = "headrace"
metadata = MetaData(schema=SCHEMA)

# SQLite gives out ids by itself only for a column of exactly the type INTEGER.
_ID = BigInteger().with_variant(Integer, "sqlite")

# One row. Its presence also tells our catalog from another program's tables.
catalog_state = Table(
    "catalog_state",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("generation", BigInteger, nullable=False),
    Column("written_by", Text, nullable=False),
)

stream_tables = Table(
    "stream_tables",
    metadata,
    Column("id", Text, primary_key=True),
    Column("name", types.name(), nullable=False, unique=True),
    Column("query", Text, nullable=False),
    Column("expanded_query", Text, nullable=False),
    Column("current_schema", Text, nullable=False),
    Column("columns", types.pairs(), nullable=False),
    Column("status", types.choice(Status), nullable=False),
    Column("refresh_mode", types.choice(RefreshMode), nullable=False),
    Column("effective_mode", Text, nullable=False),
    Column("mode_reason", Text, nullable=False),
    Column("schedule", Text, nullable=False),
    Column("comment", Text),
    Column("cluster_by", types.texts(), nullable=False),
    Column("options", types.mapping(), nullable=False),
    Column("location", Text, nullable=False),
    Column("table_id", Text),
    Column("storage_version", BigInteger),
    Column("frontier", Encoded(encode_frontier, decode_frontier)),
    Column("data_timestamp", UtcDateTime),
    Column("reinitialize_reason", Text),
    Column("consecutive_errors", Integer, nullable=False),
    Column("last_error", Text),
    Column("created_at", UtcDateTime, nullable=False),
    Column("updated_at", UtcDateTime, nullable=False),
    Column("last_refresh_at", UtcDateTime),
)

dependencies = Table(
    "dependencies",
    metadata,
    Column("stream_table_id", Text, ForeignKey(stream_tables.c.id, ondelete="CASCADE"), primary_key=True),
    Column("source", types.name(), primary_key=True),
    Column("kind", Text, nullable=False),
    Column("columns_used", types.texts(), nullable=False),
    Index("dependencies_by_source", "source"),
)

# The history outlives its stream table, so the id is no foreign key.
refresh_history = Table(
    "refresh_history",
    metadata,
    Column("id", _ID, primary_key=True),
    Column("stream_table", types.name(), nullable=False),
    Column("stream_table_id", Text, nullable=False),
    Column("state", types.choice(RefreshState), nullable=False),
    Column("action", types.choice(Action)),
    Column("reason", Text, nullable=False),
    Column("started_at", UtcDateTime, nullable=False),
    Column("ended_at", UtcDateTime),
    Column("data_timestamp", UtcDateTime),
    Column("rows_inserted", BigInteger, nullable=False),
    Column("rows_deleted", BigInteger, nullable=False),
    Column("delta_row_count", BigInteger, nullable=False),
    Column("frontier", Encoded(encode_frontier, decode_frontier)),
    Column("error_code", Text),
    Column("error", Text),
    Column("duration_ms", Float),
    Column("spark_jobs", Integer, nullable=False),
    Column("details", types.mapping(), nullable=False),
    Column("lease_token", Text),
    Index("refresh_history_by_table", "stream_table", "id"),
    Index("refresh_history_by_state", "state"),
)

alerts = Table(
    "alerts",
    metadata,
    Column("id", _ID, primary_key=True),
    Column("stream_table", types.name()),
    Column("kind", Text, nullable=False),
    Column("message", Text, nullable=False),
    Column("raised_at", UtcDateTime, nullable=False),
)

sources = Table(
    "sources",
    metadata,
    Column("name", types.name(), primary_key=True),
    Column("kind", Text, nullable=False),
    Column("options", types.mapping(), nullable=False),
    Column("created_at", UtcDateTime, nullable=False),
)

relations = Table(
    "relations",
    metadata,
    Column("name", types.name(), primary_key=True),
    Column("kind", Text, nullable=False),
    Column("definition", Text),
    Column("location", Text),
)

settings = Table(
    "settings",
    metadata,
    Column("key", Text, primary_key=True),
    Column("value", Text, nullable=False),
)

leases = Table(
    "leases",
    metadata,
    Column("name", Text, primary_key=True),
    Column("owner", Text, nullable=False),
    Column("token", Text, nullable=False),
    Column("expires_ms", BigInteger, nullable=False),
)
