"""Run the demonstration and check every stream table against its query after every round."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import headrace
from headrace.demo import report
from headrace.demo.changes import changes_of_round
from headrace.demo.shop import OWNERSHIP, SCHEMA, Shop, create_tables
from headrace.demo.tables import STREAM_TABLES, TOP_CATEGORIES
from headrace.display import duration
from headrace.errors import HeadraceError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.status import Status


def run_demo(warehouse: Path, *, order_lines: int = 200_000, rounds: int = 2, console: Console) -> int:
    """Build the shop in a warehouse, change it round by round, and return 0 if every check held."""
    shop = Shop(order_lines)
    began = time.monotonic()
    report.headline(console, f"A shop with {shop.order_lines:,} order lines")
    with console.status("Starting Spark") as status, closing(headrace.connect(warehouse=warehouse)) as hr:
        clear_earlier_run(hr)
        console.print(f"Spark and Delta Lake are ready after {duration(time.monotonic() - began)}.")
        demonstration = Demonstration(hr, shop, console, status)
        demonstration.load()
        holds = demonstration.create()
        for number in range(1, rounds + 1):
            demonstration.change(number)
            holds &= demonstration.refresh()
        report.headline(console, "Nothing changed")
        holds &= demonstration.refresh()
        report.show_rows(console, hr.sql(f"SELECT * FROM {TOP_CATEGORIES.name} ORDER BY place LIMIT 5"))
    report.farewell(console, warehouse, holds=holds, elapsed=time.monotonic() - began)
    return 0 if holds else 1


@dataclass(frozen=True)
class Demonstration:
    """The steps of one run; `status` is the line on a terminal that says what is under way."""

    hr: headrace.Headrace
    shop: Shop
    console: Console
    status: Status

    def load(self) -> None:
        """Make the base tables."""
        for table, statement in create_tables(self.shop).items():
            self.status.update(f"Loading {table}")
            began = time.monotonic()
            self.hr.sql(statement)
            rows = self.hr.sql(f"SELECT count(*) FROM {table}").collect()[0][0]
            took = duration(time.monotonic() - began)
            self.console.print(f"  {table:<18} {rows:>9,} rows in {took}")

    def create(self) -> bool:
        """Create every stream table, which loads it, and tell whether each equals its query."""
        report.headline(
            self.console, f"{len(STREAM_TABLES)} stream tables on three levels, the first of them:"
        )
        report.show_statement(self.console, STREAM_TABLES[0].statement)
        statements = {definition.name: definition.statement for definition in STREAM_TABLES}

        def create_one(name: str) -> report.Refresh:
            self.hr.sql(statements[name])
            # Creating loads the table, and the history has that as its first refresh.
            loaded: report.Refresh = self.hr.refresh_history(name).collect()[0]
            return loaded

        return self._for_each_table("Creating", create_one)

    def change(self, number: int) -> None:
        """Write one round of changes and tell what they are."""
        began = time.monotonic()
        told = []
        for change in changes_of_round(self.shop, number):
            self.status.update(f"Round {number}: {change.what}")
            outcome = self.hr.sql(change.statement)
            rows = outcome.collect()[0].num_affected_rows if change.rows is None else change.rows
            told.append(f"{rows:,} {change.what}")
        report.headline(self.console, f"Round {number}: {', '.join(told)}")
        self.console.print(f"Written in {duration(time.monotonic() - began)}.")

    def refresh(self) -> bool:
        """Refresh every stream table after those it reads, and tell whether each equals its query."""
        return self._for_each_table("Refreshing", self.hr.refresh_stream_table)

    def _for_each_table(self, verb: str, do: Callable[[str], report.Refresh]) -> bool:
        lines = []
        for definition in STREAM_TABLES:
            self.status.update(f"{verb} {definition.name}")
            refresh = do(definition.name)
            self.status.update(f"Checking {definition.name}")
            lines.append(report.Line(definition.name, refresh, self.hr.verify(definition.name)))
        report.show_lines(self.console, lines)
        return all(line.check.ok for line in lines)


def clear_earlier_run(hr: headrace.Headrace) -> None:
    """Drop what an earlier demonstration left, and nothing else."""
    hr.sql(f"CREATE SCHEMA IF NOT EXISTS {SCHEMA}")
    present = {f"{SCHEMA}.{row.tableName}" for row in hr.sql(f"SHOW TABLES IN {SCHEMA}").collect()}
    stream_tables = [definition.name for definition in STREAM_TABLES]
    tables = [table for table in create_tables(Shop(1)) if table in present and made_by_demo(hr, table)]
    # The base tables are dropped last: where there are none, nothing here is a demonstration's.
    foreign = present - {*stream_tables, *tables} if tables else present
    if foreign:
        raise HeadraceError(
            "demo_schema_taken",
            f"The schema {SCHEMA} holds tables that no demonstration made: {', '.join(sorted(foreign))}.",
            hint="Run the demonstration in another warehouse.",
        )
    for name in reversed(stream_tables):
        hr.sql(f"DROP STREAM TABLE IF EXISTS {name} CASCADE")
    for table in tables:
        hr.sql(f"DROP TABLE {table}")


def made_by_demo(hr: headrace.Headrace, table: str) -> bool:
    rows = hr.sql(f"SHOW TBLPROPERTIES {table}").collect()
    return any(row["key"] == OWNERSHIP for row in rows)
