"""Every fixture is compared as text and run: over DuckDB its change leads from each result to the next."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from headrace.delta import State, compile_change, query_sql
from headrace.plan.nodes import Opaque
from headrace.sql.names import TableName
from tests.algebra.campaign import change_of
from tests.algebra.engine import Database, Subject, check_round, name_of
from tests.algebra.queries import random_row
from tests.plan.fixtures import Pair, pairs, write

SCHEMAS = {
    "t": [("id", "INTEGER"), ("k", "INTEGER"), ("a", "INTEGER"), ("s", "VARCHAR")],
    "u": [("id", "INTEGER"), ("k", "INTEGER"), ("b", "INTEGER")],
    "v": [("k", "INTEGER"), ("c", "INTEGER"), ("s", "VARCHAR")],
}
EVERY = frozenset(map(name_of, SCHEMAS))
# Over no rows Spark's grouping sets give no total, DuckDB's give one; ROWS frames leave ties open; Spark puts
# the columns of a natural join first; DuckDB knows no LATERAL VIEW; and Spark says false where it is unknown
# whether a subquery has a value.
NOT_COMPARED = (
    *("cube(", "rollup(", "grouping sets", "rows between", "natural join", "explode("),
    *("k in (select k from u) as m", "k in (select k from u)) as m"),
)


def named(name: TableName, state: State) -> str:
    return f"{name.sql}.{state.value}"


def subject(text: str, rows: dict[str, Counter[tuple[object, ...]]] | None = None) -> Subject:
    return Subject(Database.shared(SCHEMAS, rows or {}), text)


def plan_text(text: str) -> str:
    return query_sql(subject(text).plan, named, pretty=True)


def change_text(text: str) -> str:
    return compile_change(subject(text).plan, EVERY).sql(named, pretty=True)


@pytest.mark.parametrize("pair", pairs("plans"), ids=str)
def test_a_query_becomes_this_plan(pair: Pair) -> None:
    assert plan_text(pair.query) == pair.becomes


@pytest.mark.parametrize("pair", pairs("changes"), ids=str)
def test_a_query_has_this_change(pair: Pair) -> None:
    assert change_text(pair.query) == pair.becomes


@pytest.mark.parametrize("pair", [*pairs("plans"), *pairs("changes")], ids=str)
def test_the_change_leads_from_each_result_to_the_next(pair: Pair) -> None:
    random = Random(9)
    rows = {t: Counter(random_row(random, columns) for _ in range(6)) for t, columns in SCHEMAS.items()}
    query = subject(pair.query, rows)
    assert not isinstance(query.plan.root, Opaque)
    moved = rounds = 0
    while rounds < 4 or (moved < 2 and rounds < 60):
        rounds += 1
        changes = {table: change_of(random, query.database, table) for table in SCHEMAS}
        query.database.change(changes)
        compared = not any(word in pair.query.lower() for word in NOT_COMPARED)
        moved += bool(check_round(query, EVERY, as_written=compared))
    assert moved >= 2, "the result hardly ever changed, so nothing was tried"


if __name__ == "__main__":
    write("plans", plan_text)
    write("changes", change_text)
