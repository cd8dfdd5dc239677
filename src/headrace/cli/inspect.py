"""`list`, `status`, `history`, `dag`: what the catalog knows, read without starting Spark."""

from __future__ import annotations

from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.command import Json, Place, err, out
from headrace.cli.graph import as_dot, as_mermaid, as_tree
from headrace.cli.svg import as_svg
from headrace.display import Grid, duration, json_text, print_grid
from headrace.errors import HeadraceError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.catalog import Catalog, RefreshRecord, StreamTable

# Enough to find the last refreshes that did something.
_ENOUGH_HISTORY = 50


def list_(place: Place, json: Json = False) -> None:
    """List the stream tables."""
    with place.catalog() as catalog:
        records = [_listed(table) for table in catalog.all()]
    if json:
        print(json_text(records))
    elif records:
        columns = ["name", "status", "refresh_mode", "effective_mode", "schedule", "data_timestamp"]
        print_grid(out(), Grid.of(records, columns))
    else:
        _none_yet()


def _listed(table: StreamTable) -> dict[str, Any]:
    from headrace.catalog import encode_frontier

    return {
        "name": str(table.name),
        "status": str(table.status),
        "refresh_mode": str(table.refresh_mode),
        "effective_mode": table.effective_mode,
        "mode_reason": table.mode_reason,
        "schedule": table.schedule,
        "data_timestamp": table.data_timestamp,
        "frontier": encode_frontier(table.frontier) if table.frontier is not None else None,
        "consecutive_errors": table.consecutive_errors,
        "last_error": table.last_error,
        "query": table.query,
        "expanded_query": table.expanded_query,
        "comment": table.comment,
        "location": table.location,
        "created_at": table.created_at,
        "last_refresh_at": table.last_refresh_at,
    }


def status(place: Place, json: Json = False) -> None:
    """Show how fresh each stream table is, and its errors."""
    now = datetime.now(UTC)
    with place.catalog() as catalog:
        records = [_state(catalog, table, now) for table in catalog.all()]
    if json:
        print(json_text(records))
    elif records:
        columns = [
            "name",
            "status",
            "schedule",
            "every",
            "lag",
            "last_action",
            "took",
            "errors",
            "last_error",
        ]
        print_grid(out(), Grid.of([_readable_state(record) for record in records], columns))
    else:
        _none_yet()


def _state(catalog: Catalog, table: StreamTable, now: datetime) -> dict[str, Any]:
    past = catalog.history(table.name, limit=_ENOUGH_HISTORY)
    newest = next(iter(past), None)
    stamp = table.data_timestamp
    period, doublings = _pace(table, past)
    return {
        "name": str(table.name),
        "status": str(table.status),
        "schedule": table.schedule,
        "period_seconds": period,
        "period_doublings": doublings,
        "data_timestamp": stamp,
        "lag_seconds": max((now - stamp).total_seconds(), 0) if stamp else None,
        "last_refresh_at": table.last_refresh_at,
        "last_action": _action(newest) if newest else None,
        "last_duration_ms": newest.duration_ms if newest else None,
        "consecutive_errors": table.consecutive_errors,
        "last_error": table.last_error,
    }


def _pace(table: StreamTable, past: Sequence[RefreshRecord]) -> tuple[float | None, int]:
    """The seconds between refreshes as the service keeps them, and how often it had to double them."""
    from headrace.scheduler.pace import current_period
    from headrace.scheduler.schedule import Every, parse_schedule

    try:
        schedule = parse_schedule(table.schedule, minimum_seconds=0, is_stored=True)
    except HeadraceError:  # It names a time zone that is not known here, say.
        return None, 0
    return current_period(schedule.seconds, past) if isinstance(schedule, Every) else (None, 0)


def _readable_state(record: dict[str, Any]) -> dict[str, Any]:
    took, lag, period = record["last_duration_ms"], record["lag_seconds"], record["period_seconds"]
    slowed = " (falls behind)" if record["period_doublings"] else ""
    return {
        **record,
        "every": "" if period is None else f"{duration(period)}{slowed}",
        "lag": "" if lag is None else duration(lag),
        "last_action": record["last_action"] or "",
        "took": "" if took is None else duration(took / 1000),
        "errors": record["consecutive_errors"],
        "last_error": record["last_error"] or "",
    }


def history(
    place: Place,
    name: Annotated[str | None, typer.Argument(help="Stream table; all of them when left out.")] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="How many, the newest first.")] = 20,
    json: Json = False,
) -> None:
    """Show what past refreshes did, and why."""
    from headrace.sql.names import parse_name

    with place.catalog() as catalog:
        table = catalog.find(parse_name(name)).name if name else None
        records = [_past(record) for record in catalog.history(table, limit=limit)]
    if json:
        print(json_text(records))
    elif records:
        columns = ["started", "stream_table", "action", "inserted", "deleted", "took", "reason"]
        print_grid(out(), Grid.of([_readable_past(record) for record in records], columns))
    else:
        out().print("No refresh yet.")


def _past(record: RefreshRecord) -> dict[str, Any]:
    return {
        "refresh_id": record.id,
        "stream_table": str(record.stream_table),
        "state": str(record.state),
        "action": str(record.action) if record.action else None,
        "reason": record.reason,
        "start_time": record.started_at,
        "end_time": record.ended_at,
        "data_timestamp": record.data_timestamp,
        "rows_inserted": record.rows_inserted,
        "rows_deleted": record.rows_deleted,
        "delta_row_count": record.delta_row_count,
        "duration_ms": record.duration_ms,
        "error_code": record.error_code,
        "error": record.error,
    }


def _action(record: RefreshRecord) -> str:
    return str(record.action if record.action and record.state == "COMPLETED" else record.state)


def _readable_past(record: dict[str, Any]) -> dict[str, Any]:
    took = record["duration_ms"]
    action = record["action"] if record["action"] and record["state"] == "COMPLETED" else record["state"]
    return {
        **record,
        "started": record["start_time"],
        "action": action,
        "inserted": record["rows_inserted"],
        "deleted": record["rows_deleted"],
        "took": "" if took is None else duration(took / 1000),
        "reason": record["error"] or record["reason"],
    }


class GraphFormat(StrEnum):
    """How `dag` draws."""

    TREE = "tree"
    MERMAID = "mermaid"
    DOT = "dot"
    SVG = "svg"


def dag(
    place: Place,
    format_: Annotated[GraphFormat, typer.Option("--format", help="How to draw.")] = GraphFormat.TREE,
    json: Json = False,
) -> None:
    """Show which stream table reads what."""
    with place.catalog() as catalog:
        tables = [str(table.name) for table in catalog.all()]
        notices = _notices(catalog)
        edges = [(str(edge.source), str(edge.stream_table)) for edge in catalog.dependencies()]
        kinds = {str(edge.source): edge.kind for edge in catalog.dependencies()}
    if json:
        print(
            json_text(
                [
                    {"source": source, "source_type": kinds[source], "stream_table": reader}
                    for source, reader in sorted(edges)
                ]
            )
        )
    elif not tables:
        _none_yet()
    else:
        draw = {"tree": as_tree, "mermaid": as_mermaid, "dot": as_dot, "svg": as_svg}[format_]
        out().print(draw(tables, edges), markup=False, highlight=False, soft_wrap=True)
        for notice in notices:
            err().print(f"notice: {notice}", markup=False, highlight=False, soft_wrap=True)


def _notices(catalog: Catalog) -> list[str]:
    """Say which tables are refreshed otherwise than their own schedule tells."""
    from headrace.scheduler.graph import pace_notices
    from headrace.scheduler.network import build_network

    network = build_network(catalog.all(), catalog.dependencies())
    return list(pace_notices(network.paces, network.schedules).values())


def _none_yet() -> None:
    example = 'headrace sql -c "CREATE STREAM TABLE t AS SELECT …"'
    out().print(f"No stream tables yet. Make one: {example}", highlight=False, soft_wrap=True)
