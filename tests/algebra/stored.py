"""What a refresh may keep or replace instead of applying a change row by row, held to a rebuild."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property

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
    _changes: dict[frozenset[TableName], str | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.database.connection.execute(f"CREATE OR REPLACE TABLE kept AS {self._rebuilt}")

    @cached_property
    def _rebuilt(self) -> str:
        return self.state.initial_sql(lambda name, _: bind(name, State.NEW), dialect="duckdb")

    def apply(self, changed: frozenset[TableName]) -> None:
        if changed not in self._changes:
            self._changes[changed] = self.state.change_sql(changed, bind, dialect="duckdb")
        change = self._changes[changed]
        if change is None:
            return
        names = [f'"{key}"' for key in self.state.keys]
        sums = [f'SUM("{c.name}") AS "{c.name}"' for c in self.state.columns]
        grouped = f' GROUP BY {", ".join(names)} HAVING SUM("{ROWS}") <> 0' if names else ""
        self.database.connection.execute(
            f"CREATE OR REPLACE TABLE kept AS SELECT {', '.join([*names, *sums])} "
            f"FROM (FROM kept UNION ALL BY NAME ({change})){grouped}"
        )

    @cached_property
    def _output(self) -> str:
        items = ", ".join(f"{sql} AS `{name}`" for name, sql in self.state.output_sql())
        having = f" WHERE {self.state.having_sql()}" if self.state.having_sql() else ""
        (sql,) = sqlglot.transpile(f"SELECT {items} FROM kept{having}", read=VerbatimSpark, write="duckdb")
        return sql

    def check(self, result: Rows) -> None:
        """The output is the result, and every number is what a rebuild gives."""
        assert Counter(self.database.run(self._output)) == result, self.state.output_sql()
        assert Counter(self.database.run("FROM kept")) == Counter(self.database.run(self._rebuilt))


@dataclass
class Replacement:
    """The change as rows of touched keys that take the place of their old ones."""

    subject: Subject
    keyed: KeyedChange

    @cached_property
    def _keys(self) -> str:
        return self.keyed.keys_sql(bind, dialect="duckdb")

    @cached_property
    def _rows(self) -> str:
        return self.keyed.rows_sql(bind, dialect="duckdb")

    def check(self, old: Rows, new: Rows) -> None:
        """The old result without the rows of touched keys, with those they have now, is the new one."""
        run = self.subject.database.run
        places = [self.subject.plan.columns.index(key) for key in self.keyed.keys]
        touched = set(run(self._keys))
        result = Counter({row: n for row, n in old.items() if tuple(row[p] for p in places) not in touched})
        result.update(run(self._rows))
        assert result == new, f"{self.subject.text}\nby replacement {result - new} missing {new - result}"
