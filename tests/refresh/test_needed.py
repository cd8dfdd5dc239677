"""The rows that a change can meet are enough: over them alone it comes out the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructField, StructType

from headrace.delta.contract import consolidated
from headrace.delta.keyed import keyed_change
from headrace.delta.parts import is_made, made_name
from headrace.plan.hidden import WEIGHT
from headrace.plan.nodes import Node, State
from headrace.plan.render import render
from headrace.refresh.needed import Near, Needed
from headrace.refresh.stages import Given, in_stages
from headrace.refresh.supersets import Limits
from headrace.sources.search import ROW
from headrace.sql.names import TableName
from tests.algebra.engine import Database, Rows, Subject, bind, name_of
from tests.refresh.cases import random_case
from tests.refresh.test_on_driver import source_change, spark_type

CASES = 400
KEYS = "keys"


@dataclass
class InDuckDB:
    """A source in which rows are looked up."""

    database: Database
    name: TableName
    columns: Sequence[str]

    def __post_init__(self) -> None:
        listed = ", ".join(f'"{column}"' for column in self.columns)
        table = bind(self.name, State.NEW)
        self._rows = self.database.connection.sql(
            f"SELECT {listed}, rowid AS {ROW} FROM {table}"
        ).to_arrow_table()
        types = dict(self.database.schemas[self.name.table])
        fields = [StructField(column, spark_type(types[column])) for column in self.columns]
        self.schema, self.arrow_schema = StructType(fields), self._rows.schema
        # Some tables are followed whole where nothing limits them, and others are too large for that.
        self.count = self._rows.num_rows if ord(self.name.table[-1]) % 2 else 10**9

    def rows(self, tests: Limits) -> pa.Table:
        found = self._rows
        for name, values in tests.items():
            found = found.filter(pc.is_in(found[name], value_set=values))
        return found

    def expected(self, tests: Limits) -> float:
        return float(sum(map(len, tests.values())))


def needed(
    subject: Subject, changed: frozenset[TableName], root: Node, given: Given | None = None
) -> dict[TableName, Near]:
    changes = {name: source_change(subject.database, name.table) for name in changed}
    made = {made_name(name): typed for name, typed in (given or {}).items()}
    return Needed(root, changes, partial(InDuckDB, subject.database), made).tables()


def run(subject: Subject, root: Node, near: dict[TableName, Near]) -> Rows:
    """Run a plan in which the rows needed stand for their tables."""
    return Counter(subject.database.run(text(subject, root, near)))


def text(subject: Subject, root: Node, near: dict[TableName, Near]) -> str:
    database = subject.database
    for name, rows in near.items():
        for state, table in (("old", rows.old), ("new", rows.new)):
            database.connection.unregister(f"{name.table}_near_{state}")
            if table is not None:
                database.connection.register(f"{name.table}_near_{state}", table)

    def bound(name: TableName, state: State) -> str:
        if is_made(name):
            return name.table
        return (
            f"{name.table}_near_{state.value}"
            if name in near and state is not State.CHANGE
            else bind(name, state)
        )

    return render(root, bound, dialect="duckdb")


def check(subject: Subject, changed: frozenset[TableName]) -> tuple[int, int]:
    """Compare all queries of a change; tell of how many tables rows were left out, and its stages."""
    change = subject.compiled(changed).change
    if change is None:
        return 0, 0
    root = consolidated(change)
    tables = needed(subject, changed, root)
    assert run(subject, root, tables) == run(subject, root, {}), subject.text
    keyed = keyed_change(subject.plan, changed)
    if keyed is not None:
        some = needed(subject, changed, keyed.touched)
        assert set(run(subject, keyed.touched, some)) == set(run(subject, keyed.touched, {})), subject.text
        keys = subject.database.connection.sql(render(keyed.touched, bind, dialect="duckdb")).to_arrow_table()
        subject.database.connection.register(KEYS, keys)
        now = keyed.rows_of(KEYS)
        given = {KEYS: (keys, from_arrow_schema(keys.schema))}
        assert run(subject, now, needed(subject, changed, now, given)) == run(subject, now, {}), subject.text
    stages = check_stages(subject, changed, change)[0]
    sizes = {name: subject.database.rows[name.table].total() for name in tables}
    fewer = sum(rows.new.num_rows < sizes[name] for name, rows in tables.items())
    return fewer, stages


def check_stages(
    subject: Subject, changed: frozenset[TableName], change: Node
) -> tuple[int, dict[TableName, Near]]:
    """Compare a change with itself over the changes inside it; tell their number, and what it needs then."""
    connection = subject.database.connection

    def compute(node: Node, given: Given) -> pa.Table:
        net = consolidated(node)
        sql = text(subject, net, needed(subject, changed, net, given))
        rows = connection.sql(
            f"SELECT * REPLACE ({WEIGHT}::BIGINT AS {WEIGHT}) FROM ({sql})"
        ).to_arrow_table()
        # Held as long as it is read.
        connection.register(f"stage{len(given) + 1}", rows)
        return rows

    staged = in_stages(change, compute)
    assert staged is not None
    root = consolidated(staged.root)
    near = needed(subject, changed, root, staged.given)
    assert run(subject, root, near) == run(subject, consolidated(change), {}), subject.text
    return len(staged.given), near


def test_random_changes_come_out_alike_over_the_rows_they_need() -> None:
    fewer = stages = 0
    for seed in range(CASES):
        case = random_case(seed, (0, 1, 1, 2))
        left_out, computed_first = check(case.subject, case.changed)
        fewer, stages = fewer + left_out, stages + computed_first
    assert fewer > CASES / 10
    assert stages > CASES / 10


SCHEMA = {
    "c": [("id", "INTEGER"), ("name", "VARCHAR")],
    "o": [("oid", "INTEGER"), ("cid", "INTEGER"), ("day", "INTEGER")],
    "l": [("loid", "INTEGER"), ("part", "INTEGER"), ("price", "INTEGER")],
}
START = {
    "c": Counter([(i, f"n{i}") for i in range(40)] + [(None, "none")]),
    "o": Counter((i, i % 40, i % 7) for i in range(200)),
    "l": Counter((i % 200, i % 50, i % 9) for i in range(800)),
}


@pytest.mark.parametrize(
    ("query", "most"),
    {
        "three joins": (
            "SELECT name, SUM(price) s FROM c, o, l WHERE id = cid AND oid = loid GROUP BY name",
            100,
        ),
        "an outer join": ("SELECT name, oid FROM c LEFT JOIN o ON id = cid AND day > 2", 20),
        "exists": ("SELECT oid FROM o WHERE EXISTS (SELECT 1 FROM l WHERE loid = oid AND price > 7)", 40),
        "not in": ("SELECT name FROM c WHERE id NOT IN (SELECT cid FROM o WHERE day = 1)", 999),
        "groups below a join": (
            "SELECT name, n FROM c JOIN (SELECT cid, COUNT(*) n FROM o GROUP BY cid) g ON id = cid",
            20,
        ),
        "a window": ("SELECT oid, RANK() OVER (PARTITION BY cid ORDER BY day) r FROM o", 20),
        "a maximum": ("SELECT cid, MAX(day) m FROM o GROUP BY cid", 20),
        "a set operation": ("SELECT id FROM c EXCEPT SELECT cid FROM o WHERE day < 3", 20),
    }.values(),
)
def test_a_small_change_needs_few_rows(query: str, most: int) -> None:
    database = Database(SCHEMA, {name: Counter(rows) for name, rows in START.items()})
    subject = Subject(database, query)
    database.change(
        {
            "c": Counter({(3, "n3"): -1, (3, "other"): 1, (None, "none"): -1}),
            "o": Counter({(17, 17, 3): -1, (17, 18, 3): 1, (900, None, 1): 1}),
            "l": Counter({(44, 44, 8): -1, (17, 7, 5): 1}),
        }
    )
    changed = frozenset(name for name in map(name_of, SCHEMA) if name in subject.analysis.sources)
    change = subject.compiled(changed).change
    assert change is not None
    root = consolidated(change)
    tables = needed(subject, changed, root)
    found = run(subject, root, tables)
    assert found == run(subject, root, {})
    assert found
    if most < 999:
        assert set(tables) == set(changed)
    assert all(near.new.num_rows <= most for near in tables.values())


@pytest.mark.parametrize(
    "query",
    [
        # Rows without a column that Arrow compares as Spark does are rows all the same.
        "SELECT u.b FROM (SELECT 1 AS k FROM f) a JOIN u ON a.k = u.k",
        "SELECT b FROM u WHERE k IN (SELECT 2 FROM f WHERE x > 2)",
        "SELECT u.b FROM (SELECT 1 AS c, x FROM f UNION ALL SELECT 2, x + 1 FROM f) a JOIN u ON a.c = u.k",
        # What is equal to one number need not be the same text.
        "SELECT t.id, g.c FROM t JOIN (SELECT u.k, COUNT(*) AS c FROM u JOIN v ON u.k = v.vs GROUP BY u.k) g "
        "ON t.s = g.k",
        "SELECT t.id, u.b, v.vs FROM t JOIN u ON t.s = u.k LEFT JOIN v ON u.k = v.vs",
        "SELECT t.id, g.c FROM t JOIN (SELECT vs AS c FROM v UNION SELECT k FROM u) g ON t.s = g.c",
        "SELECT t.id, g.c FROM t JOIN (SELECT vs AS c FROM v EXCEPT SELECT k FROM u) g ON t.s = g.c",
    ],
)
def test_what_only_seems_to_limit(query: str) -> None:
    schema = {
        "t": [("id", "INTEGER"), ("s", "VARCHAR")],
        "u": [("k", "INTEGER"), ("b", "INTEGER")],
        "v": [("vs", "VARCHAR")],
        "f": [("x", "DOUBLE")],
    }
    start = {"u": Counter([(1, 10), (2, 20), (7, 70)]), "v": Counter([("01",), ("1",), ("5",)])}
    database = Database(schema, start)
    subject = Subject(database, query)
    database.change({"t": Counter([(1, "1"), (5, "5")]), "f": Counter([(3.5,)])})
    changed = frozenset(name for name in map(name_of, ("t", "f")) if name in subject.analysis.sources)
    change = subject.compiled(changed).change
    assert change is not None
    root = consolidated(change)
    found = run(subject, root, needed(subject, changed, root))
    assert found == run(subject, root, {})
    assert found


def test_what_cancels_out_inside_a_change_needs_no_rows() -> None:
    database = Database(SCHEMA, {name: Counter(rows) for name, rows in START.items()})
    text = "SELECT name FROM c WHERE id IN (SELECT cid FROM o JOIN l ON oid = loid WHERE price > 0)"
    subject = Subject(database, text)
    # Twenty lines move from one order of a customer to another, so that he is in the result as before.
    moved = {(i, i % 50, i % 9): -1 for i in range(20)} | {(i + 40, i % 50, i % 9): 1 for i in range(20)}
    database.change({"l": Counter(moved)})
    changed = frozenset({name_of("l")})
    change = subject.compiled(changed).change
    assert change is not None
    at_once = needed(subject, changed, consolidated(change))
    stages, staged = check_stages(subject, changed, change)
    assert stages
    assert staged[name_of("c")].new.num_rows < at_once[name_of("c")].new.num_rows
