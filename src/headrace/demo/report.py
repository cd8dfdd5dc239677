"""How the demonstration looks on a terminal."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from rich.syntax import Syntax
from rich.table import Table

from headrace.demo.tables import TOP_CATEGORIES
from headrace.display import duration

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from rich.console import Console


class Refresh(Protocol):
    """What a refresh's result and a row of the history have in common."""

    @property
    def action(self) -> str: ...
    @property
    def reason(self) -> str: ...
    @property
    def rows_inserted(self) -> int: ...
    @property
    def rows_deleted(self) -> int: ...
    @property
    def duration_ms(self) -> float: ...


class Check(Protocol):
    """The answer of `verify`."""

    @property
    def ok(self) -> bool: ...
    @property
    def missing(self) -> int: ...
    @property
    def extra(self) -> int: ...


@dataclass(frozen=True)
class Line:
    """One stream table in one round: what its refresh did, and whether it equals its query."""

    stream_table: str
    refresh: Refresh
    check: Check

    @property
    def cells(self) -> tuple[str, ...]:
        refresh, check = self.refresh, self.check
        verdict = "[green]equal[/]" if check.ok else "[red]differs[/]"
        rows = (f"+{refresh.rows_inserted:,}", f"-{refresh.rows_deleted:,}")
        took = duration(refresh.duration_ms / 1000)
        return (self.stream_table, str(refresh.action), *rows, took, verdict)

    @property
    def note(self) -> str:
        """Say why the refresh did what it did and, if the contents are wrong, by how many rows."""
        check = self.check
        fault = "" if check.ok else f"; {check.missing:,} missing, {check.extra:,} extra against its query"
        return f"{self.stream_table}: {self.refresh.reason}{fault}"


def headline(console: Console, text: str) -> None:
    console.print()
    console.print(text, style="bold")


def show_statement(console: Console, statement: str) -> None:
    console.print(Syntax(statement, "sql", background_color="default", word_wrap=True))


def show_lines(console: Console, lines: Sequence[Line]) -> None:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for title in ("stream table", "action"):
        table.add_column(title, no_wrap=True)
    for title in ("rows in", "rows out", "time"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("check", no_wrap=True)
    for line in lines:
        table.add_row(*line.cells)
    console.print(table)
    # A column of reasons would leave no room for them on a terminal of 80 columns.
    for line in lines:
        console.print(
            f"  {line.note}", style="dim" if line.check.ok else "red", markup=False, highlight=False
        )


def show_rows(console: Console, rows: DataFrame) -> None:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for column in rows.columns:
        table.add_column(column, justify="right")
    for row in rows.collect():
        table.add_row(*("NULL" if value is None else str(value) for value in row))
    console.print()
    console.print(table)


def farewell(console: Console, warehouse: Path, *, holds: bool, elapsed: float) -> None:
    """Say how it went, where the tables are, and what to do with them."""
    if holds:
        headline(
            console, f"Every stream table equalled its query after every round. {duration(elapsed)} in all."
        )
    else:
        headline(console, f"A stream table differed from its query: see above. {duration(elapsed)} in all.")
    headrace, place = shlex.quote(program()), f"--warehouse {shlex.quote(str(warehouse))}"
    console.print(f"The tables are in {warehouse}. Try:", markup=False, highlight=False, soft_wrap=True)
    for command in (
        f'{headrace} sql {place} -c "SELECT * FROM {TOP_CATEGORIES.name} ORDER BY place"',
        f"{headrace} history {place}",
        f"{headrace} explain {TOP_CATEGORIES.name} {place}",
        f"{headrace} sql {place}",
    ):
        console.print(f"  {command}", markup=False, highlight=False, soft_wrap=True)


def program() -> str:
    """Name the command line as the user can call it: in a checkout it is not on PATH."""
    beside = Path(sys.executable).with_name("headrace")
    return "headrace" if shutil.which("headrace") or not beside.exists() else os.path.relpath(beside)
