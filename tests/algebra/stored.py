"""What a refresh may keep or replace instead of applying a change row by row, held to a rebuild."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import sqlglot

from headrace.delta.keyed import KeyedChange
from headrace.delta.state import ROWS, StatePlan
from headrace.plan.nodes import State
from headrace.sql.dialect import VerbatimSpark
from headrace.sql.names import TableName
from tests.algebra.engine import Database, Rows, Subject, bind


@dataclass
class Kept:
    """The backing table of a stream table: keys and hidden state, changed only by adding."""

    database: Database
    state: StatePlan

    def __post_init__(self) -> None:
        self.database.connection.execute(f"CREATE OR REPLACE TABLE kept AS {self.rebuilt()}")

    def rebuilt(self) -> str:
        return self.state.initial_sql(lambda name, _: bind(name, State.NEW), dialect="duckdb")

    def apply(self, changed: frozenset[TableName]) -> None:
        change = self.state.change_sql(changed, bind, dialect="duckdb")
        if change is None:
            return
        names = [f'"{key}"' for key in self.state.keys]
        sums = [f'SUM("{c.name}") AS "{c.name}"' for c in self.state.columns]
        grouped = f' GROUP BY {", ".join(names)} HAVING SUM("{ROWS}") <> 0' if names else ""
        self.database.connection.execute(
            f"CREATE OR REPLACE TABLE kept AS SELECT {', '.join([*names, *sums])} "
            f"FROM (FROM kept UNION ALL BY NAME ({change})){grouped}"
        )

    def output(self) -> Rows:
        items = ", ".join(f"{sql} AS `{name}`" for name, sql in self.state.output_sql())
        having = f" WHERE {self.state.having_sql()}" if self.state.having_sql() else ""
        (sql,) = sqlglot.transpile(f"SELECT {items} FROM kept{having}", read=VerbatimSpark, write="duckdb")
        return Counter(self.database.run(sql))

    def check(self, result: Rows) -> None:
        """The output is the result, and every number is what a rebuild gives."""
        assert self.output() == result, self.state.output_sql()
        assert Counter(self.database.run("FROM kept")) == Counter(self.database.run(self.rebuilt()))


def check_replacement(subject: Subject, keyed: KeyedChange, old: Rows, new: Rows) -> None:
    """Without the rows of the touched keys, and with those they have now, the old result is the new one."""
    places = [subject.plan.columns.index(key) for key in keyed.keys]
    touched = set(subject.database.run(keyed.keys_sql(bind, dialect="duckdb")))
    result = Counter({row: n for row, n in old.items() if tuple(row[p] for p in places) not in touched})
    result.update(subject.database.run(keyed.rows_sql(bind, dialect="duckdb")))
    assert result == new, f"{subject.text}\nby replacement {result - new} missing {new - result}"
