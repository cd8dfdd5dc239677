"""The first catalog: definitions, dependencies, history, alerts, sources, relations, settings, leases."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_SCHEMA = "headrace"
_ID = sa.BigInteger().with_variant(sa.Integer, "sqlite")
_MOMENT = sa.DateTime(timezone=True)


def upgrade() -> None:
    _create_definitions()
    _create_history()
    _create_registry()


def _create_definitions() -> None:
    state = op.create_table(
        "catalog_state",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("generation", sa.BigInteger, nullable=False),
        sa.Column("written_by", sa.Text, nullable=False),
        schema=_SCHEMA,
    )
    op.bulk_insert(state, [{"id": 1, "generation": 1, "written_by": ""}])
    op.create_table(
        "stream_tables",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("name", sa.Text, nullable=False, unique=True),
        sa.Column("query", sa.Text, nullable=False),
        sa.Column("expanded_query", sa.Text, nullable=False),
        sa.Column("current_schema", sa.Text, nullable=False),
        sa.Column("columns", sa.Text, nullable=False),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("refresh_mode", sa.Text, nullable=False),
        sa.Column("effective_mode", sa.Text, nullable=False),
        sa.Column("mode_reason", sa.Text, nullable=False),
        sa.Column("schedule", sa.Text, nullable=False),
        sa.Column("comment", sa.Text),
        sa.Column("cluster_by", sa.Text, nullable=False),
        sa.Column("options", sa.Text, nullable=False),
        sa.Column("location", sa.Text, nullable=False),
        sa.Column("table_id", sa.Text),
        sa.Column("storage_version", sa.BigInteger),
        sa.Column("frontier", sa.Text),
        sa.Column("data_timestamp", _MOMENT),
        sa.Column("reinitialize_reason", sa.Text),
        sa.Column("consecutive_errors", sa.Integer, nullable=False),
        sa.Column("last_error", sa.Text),
        sa.Column("created_at", _MOMENT, nullable=False),
        sa.Column("updated_at", _MOMENT, nullable=False),
        sa.Column("last_refresh_at", _MOMENT),
        schema=_SCHEMA,
    )
    op.create_table(
        "dependencies",
        sa.Column(
            "stream_table_id",
            sa.Text,
            sa.ForeignKey(f"{_SCHEMA}.stream_tables.id", ondelete="CASCADE"),
            primary_key=True,
        ),
        sa.Column("source", sa.Text, primary_key=True),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("columns_used", sa.Text, nullable=False),
        schema=_SCHEMA,
    )
    op.create_index("dependencies_by_source", "dependencies", ["source"], schema=_SCHEMA)


def _create_history() -> None:
    op.create_table(
        "refresh_history",
        sa.Column("id", _ID, primary_key=True),
        sa.Column("stream_table", sa.Text, nullable=False),
        sa.Column("stream_table_id", sa.Text, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("action", sa.Text),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("started_at", _MOMENT, nullable=False),
        sa.Column("ended_at", _MOMENT),
        sa.Column("data_timestamp", _MOMENT),
        sa.Column("rows_inserted", sa.BigInteger, nullable=False),
        sa.Column("rows_deleted", sa.BigInteger, nullable=False),
        sa.Column("delta_row_count", sa.BigInteger, nullable=False),
        sa.Column("frontier", sa.Text),
        sa.Column("error_code", sa.Text),
        sa.Column("error", sa.Text),
        sa.Column("duration_ms", sa.Float),
        sa.Column("spark_jobs", sa.Integer, nullable=False),
        sa.Column("details", sa.Text, nullable=False),
        sa.Column("lease_token", sa.Text),
        schema=_SCHEMA,
        # Without it SQLite would give the id of a pruned row to a new one.
        sqlite_autoincrement=True,
    )
    op.create_index("refresh_history_by_table", "refresh_history", ["stream_table", "id"], schema=_SCHEMA)
    op.create_index("refresh_history_by_state", "refresh_history", ["state"], schema=_SCHEMA)
    op.create_table(
        "alerts",
        sa.Column("id", _ID, primary_key=True),
        sa.Column("stream_table", sa.Text),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("message", sa.Text, nullable=False),
        sa.Column("raised_at", _MOMENT, nullable=False),
        schema=_SCHEMA,
        sqlite_autoincrement=True,
    )


def _create_registry() -> None:
    op.create_table(
        "sources",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("options", sa.Text, nullable=False),
        sa.Column("created_at", _MOMENT, nullable=False),
        schema=_SCHEMA,
    )
    op.create_table(
        "relations",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("definition", sa.Text),
        sa.Column("location", sa.Text),
        schema=_SCHEMA,
    )
    op.create_table(
        "settings",
        sa.Column("key", sa.Text, primary_key=True),
        sa.Column("value", sa.Text, nullable=False),
        schema=_SCHEMA,
    )
    op.create_table(
        "leases",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("owner", sa.Text, nullable=False),
        sa.Column("token", sa.Text, nullable=False),
        sa.Column("expires_ms", sa.BigInteger, nullable=False),
        schema=_SCHEMA,
    )
