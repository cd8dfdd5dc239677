"""`sql`: statements from the command line, a file, a pipe, or the shell."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from headrace.cli.command import Json, Place
from headrace.cli.run_sql import Style, run_script


def sql(
    place: Place,
    file: Annotated[Path | None, typer.Argument(help="File with statements; - reads standard input.")] = None,
    command: Annotated[str | None, typer.Option("--command", "-c", help="Statements to run.")] = None,
    max_rows: Annotated[
        int | None, typer.Option(min=1, help="Most rows shown; by default 1000, and all with --json.")
    ] = None,
    json: Json = False,
) -> int:
    """Run SQL: stream-table statements, and all of Spark's. Without statements, open a shell."""
    if file is not None and command is not None:
        raise typer.BadParameter("give a file or --command, not both")
    interactive = file is None and command is None and sys.stdin.isatty()
    style = Style(json=json, max_rows=max_rows, timing=interactive)
    if interactive:
        from headrace.cli.shell import run_shell

        with place.connection() as hr:
            return run_shell(hr, style)
    script = command if command is not None else _read(file)
    with place.connection() as hr:
        run_script(hr, script, style)
    return 0


def _read(file: Path | None) -> str:
    if file is None or str(file) == "-":
        return sys.stdin.read()
    return file.read_text(encoding="utf-8")
