"""What a refresh may keep or replace instead of applying a change row by row, held to a rebuild."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property

import sqlglot

from headrace.delta.compile import compile_change
from headrace.delta.kept import KeptGroups, KeptPlan
from headrace.delta.keyed import KeyedChange
from headrace.delta.state import ROWS, StatePlan
from headrace.plan.hidden import WEIGHT
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
class Inside:
    """A query over the groups inside it, which are kept: each is carried on, and is a table to the rest."""

    database: Database
    kept: KeptPlan
    changed: frozenset[TableName]

    def __post_init__(self) -> None:
        for groups in self.kept.groups:
            self._run(f"CREATE OR REPLACE TABLE {bind(groups.source, State.NEW)} AS {self._rebuilt(groups)}")

    def check(self, old: Rows, new: Rows) -> None:
        """Carry the groups over a round; the change of the query over them is that of the result."""
        changed = set(self.changed)
        for groups in self.kept.groups:
            if self._carried(groups, frozenset(changed)):
                changed.add(groups.source)
        compiled = compile_change(self.kept.plan, frozenset(changed))
        change = Counter(old)
        if not compiled.empty:
            sql = compiled.sql(bind, dialect="duckdb")
            for *values, weight in self.database.run(sql):
                change[tuple(values)] += weight
        wanted = {row: count for row, count in new.items() if count}
        assert {row: count for row, count in change.items() if count} == wanted, self._described()

    def _carried(self, groups: KeptGroups, changed: frozenset[TableName]) -> bool:
        old, new, moved = (bind(groups.source, state) for state in (State.OLD, State.NEW, State.CHANGE))
        self._run(f"CREATE OR REPLACE TABLE {old} AS FROM {new}")
        added = groups.state.change_sql(changed, bind, dialect="duckdb")
        if added is None:
            return False
        state = groups.state
        names = [f'"{key}"' for key in state.keys]
        sums = [f'SUM("{column.name}") AS "{column.name}"' for column in state.columns]
        grouped = f' GROUP BY {", ".join(names)} HAVING SUM("{ROWS}") <> 0' if names else ""
        columns = ", ".join([*names, *(f'"{column.name}"' for column in state.columns)])
        self._run(
            f"CREATE OR REPLACE TABLE {new} AS SELECT {', '.join([*names, *sums])} "
            f"FROM (FROM {old} UNION ALL BY NAME ({added})){grouped}"
        )
        rebuilt = Counter(self.database.run(self._rebuilt(groups)))
        assert Counter(self.database.run(f"FROM {new}")) == rebuilt, self._described()
        self._run(
            f"CREATE OR REPLACE TABLE {moved} AS SELECT {columns}, SUM(w)::BIGINT AS {WEIGHT} FROM "
            f"(SELECT *, 1 AS w FROM {new} UNION ALL BY NAME SELECT *, -1 AS w FROM {old}) "
            f"GROUP BY {columns} HAVING SUM(w) <> 0"
        )
        return True

    def _rebuilt(self, groups: KeptGroups) -> str:
        return groups.state.initial_sql(lambda name, _: bind(name, State.NEW), dialect="duckdb")

    def _run(self, sql: str) -> None:
        self.database.connection.execute(sql)

    def _described(self) -> str:
        return (
            f"{self.kept.plan.analysis.expanded}\nover {[one.state.definition for one in self.kept.groups]}"
        )


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
