"""The first rows from the stored ones and the change below are those that the query gives."""

from __future__ import annotations

from collections import Counter
from random import Random

import pyarrow as pa
import pytest

from headrace.delta.first import first_rows
from headrace.plan.nodes import State
from headrace.plan.render import render
from headrace.refresh.first import first_of
from tests.algebra.campaign import change_of
from tests.algebra.engine import Database, Subject, bind, name_of
from tests.algebra.queries import random_row

SCHEMA = {
    "t": [("id", "INTEGER"), ("k", "INTEGER"), ("s", "VARCHAR")],
    "u": [("k", "INTEGER"), ("b", "INTEGER")],
}
CHANGED = frozenset(map(name_of, SCHEMA))


@pytest.mark.parametrize(
    "text",
    [
        "SELECT id, k, s FROM t ORDER BY id LIMIT 3",
        "SELECT id AS a, s AS b FROM t ORDER BY s DESC, id LIMIT 5",
        "SELECT s, id FROM t ORDER BY s NULLS LAST, id DESC NULLS FIRST LIMIT 4",
        "SELECT k, COUNT(*) AS n, SUM(id) AS x FROM t GROUP BY k ORDER BY n DESC, k LIMIT 2",
        "SELECT t.id, u.b FROM t JOIN u ON t.k = u.k ORDER BY u.b DESC, t.id LIMIT 6",
        "SELECT t.id, t.k FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.k = t.k) ORDER BY t.k, t.id LIMIT 3",
    ],
)
def test_the_first_rows_follow(text: str) -> None:
    random = Random(text)
    start = {table: Counter(random_row(random, SCHEMA[table]) for _ in range(12)) for table in SCHEMA}
    database = Database(SCHEMA, start)
    subject = Subject(database, text)
    first = first_rows(subject.plan, CHANGED)
    assert first is not None
    certain = changed = 0
    for _ in range(60):
        database.change({table: change_of(random, database, table) for table in SCHEMA})
        sql = (
            f"SELECT * FROM ({render(subject.plan.root, lambda n, _: bind(n, State.OLD), dialect='duckdb')})"
        )
        stored = database.connection.sql(sql).to_arrow_table()
        held = stored.rename_columns([dict(first.shown)[name] for name in stored.column_names])
        moved = database.connection.sql(render(first.below, bind, dialect="duckdb")).to_arrow_table()
        rows = first_of(first, held, moved)
        if rows is not None:
            certain += 1
            shown = rows.rename_columns(stored.column_names)
            assert _counted(shown) == subject.planned(State.NEW), text
            changed += _counted(shown) != _counted(stored)
        now = database.connection.sql(render(first.now, bind, dialect="duckdb")).to_arrow_table()
        assert _counted(now.select(held.column_names)) == subject.planned(State.NEW)
    assert certain > 15
    assert changed > 5


def _counted(rows: pa.Table) -> Counter[tuple[object, ...]]:
    return Counter(tuple(row.values()) for row in rows.to_pylist())


@pytest.mark.parametrize(
    "text",
    [
        "SELECT id FROM t ORDER BY k LIMIT 3",
        "SELECT id, k FROM t ORDER BY k LIMIT 3 OFFSET 1",
        "SELECT * FROM (SELECT id, k FROM t ORDER BY k LIMIT 3) WHERE id > 1",
    ],
)
def test_what_the_stored_rows_do_not_tell(text: str) -> None:
    subject = Subject(Database(SCHEMA, {}), text)
    assert first_rows(subject.plan, CHANGED) is None
