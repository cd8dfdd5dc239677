"""`refresh`, `verify`, `explain`: work on the contents of stream tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from graphlib import TopologicalSorter
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.command import Json, Place, out, show_error, working
from headrace.cli.failures import as_error
from headrace.display import Grid, duration, json_text, print_grid
from headrace.errors import HeadraceError

if TYPE_CHECKING:
    from headrace.api import Headrace
    from headrace.catalog import Catalog
    from headrace.sql.names import TableName

Names = Annotated[list[str] | None, typer.Argument(help="Stream tables.", show_default=False)]
All = Annotated[bool, typer.Option("--all", help="Every stream table, upstream before downstream.")]


def refresh(
    place: Place,
    names: Names = None,
    all_: All = False,
    full: Annotated[bool, typer.Option("--full", help="Recompute the whole table.")] = False,
    upstream: Annotated[
        bool, typer.Option("--upstream", help="First bring what it reads to the same moment.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be done, with the statements, and do nothing.")
    ] = False,
    json: Json = False,
) -> int:
    """Bring stream tables up to date now."""
    _require_choice(names, all_)
    if dry_run and upstream:
        raise typer.BadParameter("--dry-run tells of the named tables alone; leave --upstream out")
    if dry_run:
        return _show_plans(place, names, all_, full=full, json=json)
    done: list[dict[str, Any]] = []
    failed = False
    with place.connection() as hr:
        for table in _chosen(hr, names, all_):
            try:
                with working(f"Refreshing {table}"):
                    done.append(_refreshed(hr, table, full=full, upstream=upstream))
            except HeadraceError as error:
                failed = True
                show_error(error)
    if json:
        print(json_text(done))
    elif done:
        shown = [{**result, "time": duration(result["duration_ms"] / 1000)} for result in done]
        columns = ["stream_table", "action", "rows_inserted", "rows_deleted", "time", "reason"]
        print_grid(out(), Grid.of(shown, columns))
    return 1 if failed else 0


def _show_plans(place: Place, names: Sequence[str] | None, every: bool, *, full: bool, json: bool) -> int:
    with place.connection() as hr:
        plans = [hr.plan_refresh(table.sql, full=full) for table in _chosen(hr, names, every)]
    if json:
        print(json_text([asdict(plan) for plan in plans]))
    else:
        for plan in plans:
            out().print(str(plan), markup=False, highlight=False, soft_wrap=True)
    return 0


def _refreshed(hr: Headrace, table: TableName, *, full: bool, upstream: bool) -> dict[str, Any]:
    result = hr.refresh_stream_table(table.sql, full=full, upstream=upstream)
    return {
        "stream_table": result.stream_table,
        "action": str(result.action),
        "reason": result.reason,
        "rows_inserted": result.rows_inserted,
        "rows_deleted": result.rows_deleted,
        "delta_row_count": result.delta_row_count,
        "data_timestamp": result.data_timestamp,
        "duration_ms": round(result.duration_ms, 1),
    }


def verify(place: Place, names: Names = None, all_: All = False, json: Json = False) -> int:
    """Compare stream tables with their queries."""
    _require_choice(names, all_)
    checked: list[dict[str, Any]] = []
    failed = False
    with place.connection() as hr:
        for table in _chosen(hr, names, all_):
            try:
                with working(f"Verifying {table}"):
                    check = hr.verify(table.sql)
            except Exception as error:  # noqa: BLE001 - one table's failure must not hide the others
                failed = True
                show_error(as_error(error))
                continue
            checked.append(
                {"stream_table": str(table), "ok": check.ok, "missing": check.missing, "extra": check.extra}
            )
    if json:
        print(json_text(checked))
    elif checked:
        shown = [{**check, "against its query": "equal" if check["ok"] else "DIFFERS"} for check in checked]
        print_grid(out(), Grid.of(shown, ["stream_table", "against its query", "missing", "extra"]))
    return 1 if failed or not all(check["ok"] for check in checked) else 0


def explain(
    place: Place,
    name: Annotated[str, typer.Argument(help="Stream table.", show_default=False)],
    json: Json = False,
) -> None:
    """Show how a stream table is maintained, and why so."""
    with place.connection() as hr:
        explanation = hr.explain(name)
    if json:
        facts = ("stream_table", "mode", "reason", "text")
        print(json_text({fact: getattr(explanation, fact) for fact in facts}))
    else:
        out().print(str(explanation), markup=False, highlight=False, soft_wrap=True)


def _require_choice(names: Sequence[str] | None, every: bool) -> None:
    if bool(names) == every:
        raise typer.BadParameter("name the stream tables, or give --all")


def _chosen(hr: Headrace, names: Sequence[str] | None, every: bool) -> list[TableName]:
    return in_order(hr.catalog) if every else [hr.qualify(name) for name in names or ()]


def in_order(catalog: Catalog) -> list[TableName]:
    """List the stream tables so that each comes after those it reads."""
    tables = {table.name: set[Any]() for table in catalog.all()}
    for edge in catalog.dependencies():
        if edge.source in tables:
            tables[edge.stream_table].add(edge.source)
    return list(TopologicalSorter({name: sorted(tables[name]) for name in sorted(tables)}).static_order())
