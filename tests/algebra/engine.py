"""The algebra on DuckDB: old result + change = new result, as multisets, after every round of changes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any

import duckdb
import sqlglot
from sqlglot import exp

from headrace.delta.compile import ChangePlan, compile_change, query_sql
from headrace.plan.build import Plan, plan_query
from headrace.plan.expressions import is_aggregate_call
from headrace.plan.hidden import WEIGHT
from headrace.plan.nodes import Scan, State, walk
from headrace.sql.analysis import Analysis, Column, Table, View, analyze
from headrace.sql.dialect import VerbatimSpark
from headrace.sql.names import TableName

Row = tuple[Any, ...]
Rows = Counter[Row]
Schemas = Mapping[str, Sequence[tuple[str, str]]]

# Functions that Spark has under another name than DuckDB.
_MACROS = (
    "CREATE MACRO raise_error(m) AS error(m)",
    "CREATE MACRO collect_list(x) AS coalesce(list(x) FILTER (WHERE x IS NOT NULL), [])",
    # DuckDB's own gives NULL, not 0, where no condition is known.
    "CREATE MACRO count_if(x) AS count(CASE WHEN x THEN 1 END)",
    "CREATE MACRO collect_set(x) AS coalesce(list(DISTINCT x) FILTER (WHERE x IS NOT NULL), [])",
    "CREATE MACRO size(l) AS len(l)",
    "CREATE MACRO named_struct(a, b, c, d) AS {'p': b, 'q': d}",
    "CREATE MACRO map_from_arrays(a, b) AS map(a, b)",
)


def name_of(table: str) -> TableName:
    return TableName("default", table)


def _connect() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect(":memory:")
    connection.execute("SET threads = 1")
    for macro in _MACROS:
        connection.execute(macro)
    return connection


@cache
def _shared_connection() -> duckdb.DuckDBPyConnection:
    return _connect()


@contextmanager
def without_optimizer() -> Iterator[None]:
    """Let DuckDB run queries as they are written: now and then its optimizer loses rows."""
    _shared_connection().execute("PRAGMA disable_optimizer")
    try:
        yield
    finally:
        _shared_connection().execute("PRAGMA enable_optimizer")


def _literal(value: Any) -> str:
    match value:
        case None:
            return "NULL"
        case str():
            return "'" + value.replace("'", "''") + "'"
    return str(value)


@dataclass
class Database:
    """Tables in three states: old, new, and the change between them."""

    schemas: Schemas
    rows: dict[str, Rows] = field(default_factory=dict)
    views: Mapping[str, tuple[str, Sequence[str]]] = field(default_factory=dict)
    connection: duckdb.DuckDBPyConnection = field(default_factory=_connect)
    _moved: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        statements = []
        for table in self.schemas:
            rows = self.rows.setdefault(table, Counter())
            statements += self._states(table, rows, rows, Counter())
        self._write(statements)

    @classmethod
    def shared(
        cls,
        schemas: Schemas,
        rows: dict[str, Rows],
        views: Mapping[str, tuple[str, Sequence[str]]] | None = None,
    ) -> Database:
        """A database on the connection that all cases of a process share."""
        return cls(schemas, rows, views or {}, connection=_shared_connection())

    def change(self, changes: Mapping[str, Rows]) -> None:
        """Move every table to its next state; weights may be negative, counts may not become so."""
        statements = []
        for table in self.schemas:
            change = Counter({row: n for row, n in changes.get(table, Counter()).items() if n})
            if not change and table not in self._moved:
                continue
            old, new = self.rows[table], Counter(self.rows[table])
            new.update(change)
            assert all(count >= 0 for count in new.values()), "a row is deleted that is not there"
            self.rows[table] = +new
            statements += self._states(table, old, self.rows[table], change)
            (self._moved.add if change else self._moved.discard)(table)
        self._write(statements)

    def _states(self, table: str, old: Rows, new: Rows, change: Rows) -> list[str]:
        columns = self.schemas[table]
        weighted = ((*row, weight) for row, weight in change.items())
        return [
            _table(f"{table}_old", columns, old.elements()),
            _table(f"{table}_new", columns, new.elements()),
            _table(f"{table}_change", [*columns, (WEIGHT, "BIGINT")], weighted),
        ]

    def _write(self, statements: Sequence[str]) -> None:
        # One transaction for all of them is a good deal faster.
        self.connection.execute("; ".join(["BEGIN", *statements, "COMMIT"]))

    def run(self, sql: str) -> list[Row]:
        return [_plain(row) for row in self.connection.execute(sql).fetchall()]

    def resolve(self, name: TableName) -> Table | View | None:
        if name.table in self.schemas:
            return Table(name, tuple(Column(c, t.lower()) for c, t in self.schemas[name.table]))
        if name.table in self.views:
            text, columns = self.views[name.table]
            return View(name, text, "default", tuple(Column(column, "string") for column in columns))
        return None


def _table(name: str, columns: Sequence[tuple[str, str]], rows: Iterable[Row]) -> str:
    types = ", ".join(f'"{column}" {type_}' for column, type_ in columns)
    listed = ", ".join(f"({', '.join(map(_literal, row))})" for row in rows)
    return f"CREATE OR REPLACE TABLE {name} ({types})" + (
        f"; INSERT INTO {name} VALUES {listed}" if listed else ""
    )


def _plain(row: Row) -> Row:
    return tuple(tuple(value) if isinstance(value, list) else value for value in row)


def bind(name: TableName, state: State) -> str:
    return f"{name.table}_{state.value}"


def _keep_aggregates_of_nothing(lateral: exp.Lateral) -> None:
    """Say of every aggregate without groups what always holds, lest DuckDB lose its row.

    Below DISTINCT or a set operation in a LATERAL, it joins such a row only where a row was aggregated,
    unless a COUNT is asked for.

    Before: `(SELECT MIN(v.a) FROM v WHERE v.k = t.k)`
    After: `(SELECT MIN(v.a) FROM v WHERE v.k = t.k HAVING COUNT(*) >= 0)`
    """
    for select in lateral.find_all(exp.Select):
        if select.args.get("group") is None and any(map(_aggregates, select.expressions)):
            select.having("COUNT(*) >= 0", copy=False)


def _aggregates(expression: exp.Expr) -> bool:
    parts = expression.walk(prune=lambda node: isinstance(node, (exp.Query, exp.Window)))
    return any(map(is_aggregate_call, parts))


@dataclass
class Subject:
    """One query over a database."""

    database: Database
    text: str
    analysis: Analysis = field(init=False)
    plan: Plan = field(init=False)
    _planned: dict[State, str] = field(default_factory=dict)
    _changes: dict[frozenset[TableName], str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.analysis = analyze(self.text, current_schema="default", resolve=self.database.resolve)
        self.plan = plan_query(self.analysis)
        for node in walk(self.plan.root):
            if isinstance(node, Scan):
                # A refresh reads the change of these columns only.
                unknown = {column for _, column in node.names} - set(self.analysis.sources[node.source])
                assert not unknown, f"{self.text}\nreads {unknown}, which the analysis left out"

    @cached_property
    def _text(self) -> str:
        text = self.analysis.bound(lambda name: bind(name, State.NEW))
        tree = sqlglot.parse_one(text, dialect=VerbatimSpark)
        for lateral in tree.find_all(exp.Lateral):
            _keep_aggregates_of_nothing(lateral)
        return tree.sql(dialect="duckdb")

    def as_written(self) -> Rows:
        """The result of the query's own text, over the new state."""
        return Counter(self.database.run(self._text))

    def planned(self, state: State) -> Rows:
        """The result of the plan."""
        if state not in self._planned:
            sql = query_sql(self.plan, lambda name, _: bind(name, state), dialect="duckdb")
            self._planned[state] = sql
        return Counter(self.database.run(self._planned[state]))

    def compiled(self, changed: frozenset[TableName]) -> ChangePlan:
        return compile_change(self.plan, changed)

    def change(self, changed: frozenset[TableName]) -> Rows:
        """The net change that the compiled query gives."""
        if changed not in self._changes:
            compiled = self.compiled(changed)
            self._changes[changed] = "" if compiled.empty else compiled.sql(bind, dialect="duckdb")
        if not self._changes[changed]:
            return Counter()
        change: Rows = Counter()
        for *values, weight in self.database.run(self._changes[changed]):
            assert weight != 0, "a row without weight"
            assert tuple(values) not in change, "a row twice"
            change[tuple(values)] = weight
        return change


def check_round(
    subject: Subject, changed: frozenset[TableName], *, as_written: bool = True, old: Rows | None = None
) -> Rows:
    """Assert the invariant for one round that has been applied to the database; return the change."""
    old = subject.planned(State.OLD) if old is None else old
    new = subject.planned(State.NEW)
    change = subject.change(changed)
    assert all(change.values())
    expected = Counter(new)
    expected.subtract(old)
    assert {r: n for r, n in expected.items() if n} == dict(change), describe(subject, old, new, change)
    if as_written:
        written = subject.as_written()
        assert new == written, f"{subject.text}\nplan {new - written} text {written - new}"
    return change


def describe(subject: Subject, old: Rows, new: Rows, change: Rows) -> str:
    expected = Counter(new)
    expected.subtract(old)
    want = {row: n for row, n in expected.items() if n}
    return f"{subject.text}\nwanted {want}\ngot    {dict(change)}"
