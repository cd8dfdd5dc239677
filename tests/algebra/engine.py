"""The algebra on DuckDB: old result + change = new result, as multisets, after every round of changes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import duckdb
import sqlglot

from headrace.delta.compile import ChangePlan, compile_change, query_sql
from headrace.plan.build import Plan, plan_query
from headrace.plan.nodes import State
from headrace.sql.analysis import Analysis, Column, Table, View, analyze
from headrace.sql.dialect import VerbatimSpark
from headrace.sql.names import TableName

Row = tuple[Any, ...]
Rows = Counter[Row]

# Functions that Spark has under another name than DuckDB.
_MACROS = (
    "CREATE MACRO raise_error(m) AS error(m)",
    "CREATE MACRO collect_list(x) AS list(x)",
)


def name_of(table: str) -> TableName:
    return TableName("default", table)


@dataclass
class Database:
    """Tables in three states: old, new, and the change between them."""

    schemas: Mapping[str, Sequence[tuple[str, str]]]
    views: Mapping[str, tuple[str, Sequence[str]]] = field(default_factory=dict)
    rows: dict[str, Rows] = field(default_factory=dict)
    connection: duckdb.DuckDBPyConnection = field(default_factory=lambda: duckdb.connect(":memory:"))

    def __post_init__(self) -> None:
        self.connection.execute("SET threads = 1")
        for macro in _MACROS:
            self.connection.execute(macro)
        for table, columns in self.schemas.items():
            listed = ", ".join(f'"{column}" {type_}' for column, type_ in columns)
            self.rows.setdefault(table, Counter())
            for state in ("old", "new"):
                self.connection.execute(f"CREATE TABLE {table}_{state} ({listed})")
            self.connection.execute(f"CREATE TABLE {table}_change ({listed}, __hr_weight BIGINT)")
        for table, rows in self.rows.items():
            for state in ("old", "new"):
                self._insert(f"{table}_{state}", list(rows.elements()))

    def change(self, changes: Mapping[str, Rows]) -> None:
        """Move every table to its next state; weights may be negative, counts may not become so."""
        for table in self.schemas:
            change = Counter({row: n for row, n in changes.get(table, Counter()).items() if n})
            old = self.rows[table]
            new = Counter(old)
            new.update(change)
            assert all(count >= 0 for count in new.values()), "a row is deleted that is not there"
            new = +new
            self._replace(f"{table}_old", list(old.elements()))
            self._replace(f"{table}_new", list(new.elements()))
            self._replace(f"{table}_change", [(*row, weight) for row, weight in change.items()])
            self.rows[table] = new

    def _replace(self, table: str, rows: list[Row]) -> None:
        self.connection.execute(f"DELETE FROM {table}")
        self._insert(table, rows)

    def _insert(self, table: str, rows: list[Row]) -> None:
        if rows:
            places = ", ".join("?" for _ in rows[0])
            self.connection.executemany(f"INSERT INTO {table} VALUES ({places})", rows)

    def run(self, sql: str) -> list[Row]:
        return [_plain(row) for row in self.connection.execute(sql).fetchall()]

    def resolve(self, name: TableName) -> Table | View | None:
        if name.table in self.schemas:
            return Table(name, tuple(Column(c, t.lower()) for c, t in self.schemas[name.table]))
        if name.table in self.views:
            text, columns = self.views[name.table]
            return View(name, text, "default", tuple(Column(column, "string") for column in columns))
        return None


def _plain(row: Row) -> Row:
    return tuple(tuple(value) if isinstance(value, list) else value for value in row)


def at(state: State) -> Any:
    return lambda name, _=None: f"{name.table}_{state.value}"


def bind(name: TableName, state: State) -> str:
    return f"{name.table}_{state.value}"


@dataclass
class Subject:
    """One query over a database."""

    database: Database
    text: str
    analysis: Analysis = field(init=False)
    plan: Plan = field(init=False)

    def __post_init__(self) -> None:
        self.analysis = analyze(self.text, current_schema="default", resolve=self.database.resolve)
        self.plan = plan_query(self.analysis)

    def as_written(self, state: State) -> Rows:
        """The result of the query's own text."""
        text = self.analysis.bound(lambda name: bind(name, state))
        (sql,) = sqlglot.transpile(text, read=VerbatimSpark, write="duckdb")
        return Counter(self.database.run(sql))

    def planned(self, state: State) -> Rows:
        """The result of the plan."""
        sql = query_sql(self.plan, lambda name, _: bind(name, state), dialect="duckdb")
        return Counter(self.database.run(sql))

    def compiled(self, changed: frozenset[TableName]) -> ChangePlan:
        return compile_change(self.plan, changed)

    def change(self, changed: frozenset[TableName]) -> Rows:
        """The net change that the compiled query gives."""
        compiled = self.compiled(changed)
        if compiled.empty:
            return Counter()
        rows = self.database.run(compiled.sql(bind, dialect="duckdb"))
        change: Rows = Counter()
        for *values, weight in rows:
            assert weight != 0, "a row without weight"
            assert tuple(values) not in change, "a row twice"
            change[tuple(values)] = weight
        return change


def check_round(subject: Subject, changed: frozenset[TableName], *, as_written: bool = True) -> Rows:
    """Assert the invariant for one round that has been applied to the database; return the change."""
    old, new = subject.planned(State.OLD), subject.planned(State.NEW)
    change = subject.change(changed)
    assert all(change.values())
    expected = Counter(new)
    expected.subtract(old)
    assert {r: n for r, n in expected.items() if n} == dict(change), describe(subject, old, new, change)
    if as_written:
        written = subject.as_written(State.NEW)
        assert new == written, f"{subject.text}\nplan {new - written} text {written - new}"
    return change


def describe(subject: Subject, old: Rows, new: Rows, change: Rows) -> str:
    expected = Counter(new)
    expected.subtract(old)
    want = {row: n for row, n in expected.items() if n}
    return f"{subject.text}\nwanted {want}\ngot    {dict(change)}"
