"""Large changes are cut into parts, which together give the same change."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from headrace.delta.compile import compile_change
from headrace.delta.contract import consolidated
from headrace.delta.parts import MOST_OPERATORS, in_parts, operators, with_made
from headrace.delta.statements import Route, change_statements
from headrace.plan.nodes import Opaque, State, sources
from headrace.plan.render import render
from headrace.sql.names import TableName
from tests.algebra.campaign import change_of
from tests.algebra.engine import Database, Subject, bind, name_of
from tests.algebra.queries import Generator, random_row, random_schema
from tests.delta.test_families import SCHEMAS

EVERY = frozenset(map(name_of, SCHEMAS))
# Each level reads the one below twice.
NESTED = (
    "WITH a AS (SELECT k, COUNT(*) AS n FROM t GROUP BY k), "
    "b AS (SELECT x.k, x.n + y.n AS n FROM a x LEFT JOIN a y ON x.k = y.n), "
    "c AS (SELECT x.k, x.n + y.n AS n FROM b x LEFT JOIN b y ON x.k = y.n), "
    "d AS (SELECT x.k, x.n + y.n AS n FROM c x LEFT JOIN c y ON x.k = y.n) "
    "SELECT x.k, x.n + y.n AS n FROM d x LEFT JOIN d y ON x.k = y.n"
)


def placeholder(name: TableName, state: State) -> str:
    return f"`{name.table} @ {state.value}`"


def test_a_query_that_nests_deeply_is_cut_into_parts_that_spark_can_plan() -> None:
    plan = Subject(Database(SCHEMAS), NESTED).plan
    change = compile_change(plan, EVERY).change
    assert change is not None
    whole = consolidated(change)
    assert operators(whole) > 10 * MOST_OPERATORS
    parts, root = in_parts(whole)
    assert max(operators(one) for one in (root, *(part.node for part in parts))) < MOST_OPERATORS
    statements = list(change_statements(plan, EVERY))[-1]
    assert statements.route is Route.CHANGE
    shown = statements.shown(placeholder)
    assert len(shown) == len(parts) + 1
    assert any("`part1`" in sql for _, sql in shown[1:]), "later statements read the earlier ones"


def test_a_query_of_ordinary_size_stays_in_one_piece() -> None:
    plan = Subject(Database(SCHEMAS), "SELECT t.k, MAX(b) AS m FROM t JOIN u ON t.k = u.k GROUP BY t.k").plan
    for statements in change_statements(plan, EVERY):
        assert not any(statement.parts for statement in statements.listed)


@pytest.mark.parametrize("seed", range(40))
def test_the_parts_give_the_same_change(seed: int) -> None:
    random = Random(seed)
    schema = random_schema(random)
    rows = {t: Counter(random_row(random, columns) for _ in range(6)) for t, columns in schema.items()}
    database = Database.shared(schema, rows)
    subject = Subject(database, Generator(random, schema).query(3).sql)
    changed = sources(subject.plan.root)
    change = compile_change(subject.plan, changed).change
    if change is None or isinstance(subject.plan.root, Opaque):
        return
    database.change({name.table: change_of(random, database, name.table) for name in sorted(changed)})
    parts, root = in_parts(consolidated(change), most=0, worth=2)
    given = {one.name: f'"{one.name}"' for one in parts}
    for part in parts:
        sql = render(part.node, with_made(bind, given), dialect="duckdb")
        database.connection.execute(f'CREATE OR REPLACE TEMP TABLE "{part.name}" AS {sql}')
    whole = render(root, with_made(bind, given), dialect="duckdb")
    assert Counter(database.run(whole)) == Counter(
        {(*row, n): 1 for row, n in subject.change(changed).items()}
    )
