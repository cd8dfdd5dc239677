"""`create`, `alter`, `drop`: definitions by options, for scripts that would rather not write SQL."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from headrace.cli.command import Place, out, working

Name = Annotated[str, typer.Argument(help="Stream table: table or schema.table.", show_default=False)]
Query = Annotated[str | None, typer.Option("--query", "-q", help="The defining query.")]
QueryFile = Annotated[
    Path | None, typer.Option("--file", "-f", help="File with the defining query; - reads standard input.")
]
Schedule = Annotated[
    str | None,
    typer.Option("--schedule", help="'5 minutes', \"CRON '*/5 * * * *'\" or DOWNSTREAM."),
]
Mode = Annotated[str | None, typer.Option("--mode", help="AUTO, DIFFERENTIAL, FULL or IMMEDIATE.")]


def create(
    place: Place,
    name: Name,
    query: Query = None,
    file: QueryFile = None,
    schedule: Schedule = None,
    mode: Mode = None,
    comment: Annotated[str | None, typer.Option(help="A text for readers.")] = None,
    cluster_by: Annotated[
        list[str] | None, typer.Option(help="Output column to keep rows together by; may be repeated.")
    ] = None,
    initialize: Annotated[bool, typer.Option(help="Load it at once.")] = True,
    or_replace: Annotated[bool, typer.Option("--or-replace", help="Redefine it where it exists.")] = False,
    if_not_exists: Annotated[
        bool, typer.Option("--if-not-exists", help="Do nothing where it exists.")
    ] = False,
) -> None:
    """Create a stream table."""
    if or_replace and if_not_exists:
        raise typer.BadParameter("give --or-replace or --if-not-exists, not both")
    text = _query_text(query, file)
    if text is None:
        raise typer.BadParameter("give the defining query with --query or --file")
    with place.connection() as hr, working(f"Creating {name}"):
        from headrace.api.define import Definition

        done = hr.define(
            Definition(
                name=hr.qualify(name),
                query=text,
                current_schema=hr.current_schema(),
                schedule=schedule,
                refresh_mode=mode,
                comment=comment,
                cluster_by=tuple(cluster_by or ()),
                initialize=initialize,
                or_replace=or_replace,
                if_not_exists=if_not_exists,
            )
        )
    _say(done)


def drop(
    place: Place,
    name: Name,
    cascade: Annotated[
        bool, typer.Option("--cascade", help="Also drop the stream tables that read it.")
    ] = False,
    if_exists: Annotated[bool, typer.Option("--if-exists", help="Do nothing where there is none.")] = False,
) -> None:
    """Drop a stream table and its data."""
    with place.connection() as hr, working(f"Dropping {name}"):
        table = hr.qualify(name)
        if if_exists and hr.catalog.get(table) is None:
            _say(f"there is no stream table {table}; nothing was changed")
            return
        dropped = hr.definer.drop(table, cascade=cascade)
    _say(f"dropped {', '.join(map(str, dropped))}")


def alter(
    place: Place,
    name: Name,
    schedule: Schedule = None,
    mode: Mode = None,
    query: Query = None,
    file: QueryFile = None,
    suspend: Annotated[bool, typer.Option("--suspend", help="Stop refreshing it on schedule.")] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Refresh it on schedule again.")] = False,
    rename: Annotated[str | None, typer.Option("--rename", help="Its new name.")] = None,
) -> None:
    """Make one change to a stream table."""
    text = _query_text(query, file)
    wanted: dict[str, Any] = {
        "schedule": schedule,
        "refresh_mode": mode,
        "query": text,
        "suspended": True if suspend else None,
        "rename_to": rename,
    }
    changes = {key: value for key, value in wanted.items() if value is not None}
    if resume:
        changes["suspended"] = False
    # One change at a time: a refused second one would leave the first one made.
    if len(changes) + (suspend and resume) != 1:
        raise typer.BadParameter(
            "give exactly one of --schedule, --mode, --query, --file, --suspend, --resume, --rename"
        )
    with place.connection() as hr, working(f"Altering {name}"):
        table = hr.qualify(name)
        hr.alter_stream_table(name, **changes)
        done = f"{table} is now {hr.qualify(rename)}" if rename else f"{table} was altered"
    _say(done)


def _query_text(query: str | None, file: Path | None) -> str | None:
    if query is not None and file is not None:
        raise typer.BadParameter("give --query or --file, not both")
    if file is None:
        return query
    return sys.stdin.read() if str(file) == "-" else file.read_text(encoding="utf-8")


def _say(sentence: str) -> None:
    out().print(sentence, markup=False, highlight=False, soft_wrap=True)
