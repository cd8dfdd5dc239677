"""The catalog as DataFrames, and as `headrace.*` tables in SQL."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from sqlglot import Token, TokenType
from sqlglot.dialects.spark import Spark

from headrace.catalog import Catalog, StreamTable, encode_frontier

_STREAM_TABLES = (
    "name string, status string, refresh_mode string, effective_mode string, mode_reason string, "
    "schedule string, data_timestamp timestamp, frontier string, consecutive_errors int, last_error string, "
    "query string, expanded_query string, comment string, location string, created_at timestamp, "
    "last_refresh_at timestamp"
)
_DEPENDENCIES = "stream_table string, source string, source_type string, columns_used array<string>"
_HISTORY = (
    "refresh_id bigint, stream_table string, state string, action string, reason string, "
    "start_time timestamp, end_time timestamp, data_timestamp timestamp, rows_inserted bigint, "
    "rows_deleted bigint, delta_row_count bigint, frontier string, duration_ms double, spark_jobs int, "
    "error_code string, error string, details string"
)
_SOURCES = "name string, kind string, options map<string, string>, created_at timestamp"
_ALERTS = "alert_id bigint, stream_table string, kind string, message string, raised_at timestamp"
_SETTINGS = "key string, value string"


class CatalogFrames:
    """Reads the catalog into DataFrames of the connection's session."""

    def __init__(self, spark: SparkSession, catalog: Catalog) -> None:
        self._spark = spark
        self._catalog = catalog

    def stream_tables(self) -> DataFrame:
        return self.frame([_stream_table(table) for table in self._catalog.all()], _STREAM_TABLES)

    def dependencies(self) -> DataFrame:
        rows = [
            (str(edge.stream_table), str(edge.source), edge.kind, list(edge.columns_used))
            for edge in self._catalog.dependencies()
        ]
        return self.frame(rows, _DEPENDENCIES)

    def refresh_history(self, name: Any = None) -> DataFrame:
        rows = [_refresh(record) for record in self._catalog.history(name)]
        return self.frame(rows, _HISTORY)

    def sources(self) -> DataFrame:
        rows = [
            (str(source.name), source.kind, dict(source.options), source.created_at)
            for source in self._catalog.sources()
        ]
        return self.frame(rows, _SOURCES)

    def alerts(self) -> DataFrame:
        rows = [
            (
                alert.id,
                str(alert.stream_table) if alert.stream_table else None,
                alert.kind,
                alert.message,
                alert.raised_at,
            )
            for alert in self._catalog.alerts()
        ]
        return self.frame(rows, _ALERTS)

    def settings(self) -> DataFrame:
        return self.frame(list(self._catalog.settings().items()), _SETTINGS)

    def frame(self, rows: Sequence[tuple[Any, ...]], schema: str) -> DataFrame:
        return self._spark.createDataFrame(list(rows), schema)

    def bind(self, text: str) -> str:
        """Replace `headrace.x` in a statement by a view of the catalog as it is now.

        A temporary view cannot live in a schema, so the name is rewritten where it stands; an unaliased one
        gets its own name as the alias, so that `stream_tables.status` still resolves.
        """
        edits = []
        for name, start, end, alias in _mentions(text, self._readers()):
            view = f"__headrace_{name}"
            self._readers()[name]().createOrReplaceTempView(view)
            edits.append((start, end, name if alias is None else f"{view}{alias}"))
        for start, end, replacement in reversed(edits):
            text = text[:start] + replacement + text[end:]
        return text

    def _readers(self) -> dict[str, Callable[[], DataFrame]]:
        return {
            "stream_tables": self.stream_tables,
            "dependencies": self.dependencies,
            "refresh_history": self.refresh_history,
            "sources": self.sources,
            "alerts": self.alerts,
            "settings": self.settings,
        }


def _mentions(text: str, names: Any) -> list[tuple[str, int, int, str | None]]:
    """Find `headrace.x` with its place and the alias to add; None where it qualifies a column.

    >>> _mentions("SELECT * FROM headrace.alerts", {"alerts"})
    [('alerts', 14, 29, ' AS alerts')]
    >>> _mentions("SELECT headrace.alerts.kind FROM headrace.alerts a", {"alerts"})
    [('alerts', 7, 22, None), ('alerts', 33, 48, '')]
    """
    if "headrace" not in text.lower():
        return []
    found = []
    stream = Spark().tokenize(text)
    for before, schema, dot, table, after in zip(
        [None, *stream], stream, stream[1:], stream[2:], [*stream[3:], None], strict=False
    ):
        if (schema.text.lower(), dot.token_type) != ("headrace", TokenType.DOT):
            continue
        if table.text.lower() not in names or (before and before.token_type is TokenType.DOT):
            continue
        alias = _alias_to_add(table.text.lower(), after)
        found.append((table.text.lower(), schema.start, table.end + 1, alias))
    return found


def _alias_to_add(name: str, after: Token | None) -> str | None:
    if after is not None and after.token_type is TokenType.DOT:
        return None
    aliased = after is not None and after.token_type in {TokenType.VAR, TokenType.ALIAS, TokenType.IDENTIFIER}
    return "" if aliased else f" AS {name}"


def _stream_table(table: StreamTable) -> tuple[Any, ...]:
    return (
        str(table.name),
        str(table.status),
        str(table.refresh_mode),
        table.effective_mode,
        table.mode_reason,
        table.schedule,
        table.data_timestamp,
        encode_frontier(table.frontier) if table.frontier is not None else None,
        table.consecutive_errors,
        table.last_error,
        table.query,
        table.expanded_query,
        table.comment,
        table.location,
        table.created_at,
        table.last_refresh_at,
    )


def _refresh(record: Any) -> tuple[Any, ...]:
    return (
        record.id,
        str(record.stream_table),
        str(record.state),
        str(record.action) if record.action else None,
        record.reason,
        record.started_at,
        record.ended_at,
        record.data_timestamp,
        record.rows_inserted,
        record.rows_deleted,
        record.delta_row_count,
        encode_frontier(record.frontier) if record.frontier is not None else None,
        record.duration_ms,
        record.spark_jobs,
        record.error_code,
        record.error,
        str(dict(record.details)) if record.details else None,
    )
