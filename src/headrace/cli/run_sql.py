"""Run the statements of a script one by one and show what each gives."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.cli.command import out, working
from headrace.cli.failures import as_error
from headrace.display import counted, duration, frame_grid, frame_records, json_text, print_grid
from headrace.errors import HeadraceError, Position
from headrace.sql.ddl import parse_statement, split_statements
from headrace.sql.statements import (
    AlterStreamTable,
    CreateStreamTable,
    DropStreamTable,
    ExplainCreate,
    ExplainStreamTable,
    Statement,
)
from headrace.sql.tokens import position_at

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from headrace.api import Headrace

# What these give is a text, not a table.
_SPOKEN = (CreateStreamTable, AlterStreamTable, DropStreamTable, ExplainCreate, ExplainStreamTable)
SHOWN_ROWS = 1000


@dataclass(frozen=True)
class Style:
    """How results are shown; `max_rows` None means the default of the form."""

    json: bool = False
    max_rows: int | None = None
    timing: bool = False


def run_script(hr: Headrace, script: str, style: Style) -> None:
    """Run every statement of a script; the first error ends it, with its place in the whole script."""
    for text, offset in split_statements(script):
        try:
            run_statement(hr, text, style)
        except HeadraceError as error:
            raise _in_script(error, position_at(script, offset)) from error
        except Exception as error:
            raise _in_script(as_error(error), position_at(script, offset)) from error


def _in_script(error: HeadraceError, start: Position) -> HeadraceError:
    """Move an error's place in its statement to its place in the script."""
    place = error.position
    if place is None:
        return error
    column = place.column + start.column - 1 if place.line == 1 else place.column
    moved = Position(place.line + start.line - 1, column)
    return HeadraceError(error.code, error.message, hint=error.hint, position=moved)


def run_statement(hr: Headrace, text: str, style: Style) -> None:
    """Run one statement and show its result."""
    began = time.monotonic()
    statement = parse_statement(text)
    if style.json:
        with working("Running"):
            frame = hr.sql(text)
        _print_json(frame, style.max_rows)
        return
    with working("Running"):
        frame = hr.sql(text)
        grid = frame_grid(frame, max_rows=SHOWN_ROWS if style.max_rows is None else style.max_rows)
    took = f" in {duration(time.monotonic() - began)}" if style.timing else ""
    console = out()
    if _is_text(statement, grid.columns):
        for row in grid.rows:
            console.print(str(row[0]), markup=False, highlight=False, soft_wrap=True)
    elif grid.columns:
        print_grid(console, grid)
    summary = counted(len(grid.rows), "row") if grid.columns else "done"
    if grid.more:
        console.print(f"The first {summary}; --max-rows shows more.", style="dim")
    elif style.timing:
        console.print(f"{summary}{took}", style="dim", highlight=False)


def _is_text(statement: Statement, columns: tuple[str, ...]) -> bool:
    # Spark's own EXPLAIN gives one value of many lines in a column of this name.
    return isinstance(statement, _SPOKEN) or columns == ("plan",)


def _print_json(frame: DataFrame, max_rows: int | None) -> None:
    """Print a result as one JSON array on one line, row by row, so that its size does not matter."""
    print("[", end="")
    for separator, record in zip(_separators(), frame_records(frame, max_rows=max_rows), strict=False):
        print(separator + json_text(record), end="")
    print("]", flush=True)


def _separators() -> Iterator[str]:
    yield ""
    while True:
        yield ", "
