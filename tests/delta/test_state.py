"""State that is carried from change to change is what a rebuild would give."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from headrace.delta.keyed import keyed_change
from headrace.delta.state import state_plan
from headrace.plan.nodes import State
from tests.algebra.engine import Database, Row, Rows, Subject, name_of
from tests.algebra.stored import Kept, Replacement
from tests.delta.test_families import SCHEMAS, T1, T2

TYPED = {
    "t": [("id", "INT"), ("k", "INT"), ("a", "INT"), ("s", "VARCHAR")],
    "d": [("k", "INT"), ("price", "DECIMAL(10,2)")],
}


def random_change(random: Random, database: Database, table: str) -> Rows:
    change: Rows = Counter({row: -1 for row in database.rows[table] if random.random() < 0.4})
    for _ in range(random.randint(0, 4)):
        key = random.choice([None, 1, 2])
        amount = random.choice([None, 0, 1, 5])
        row: Row = (random.randint(0, 3), key, amount, "x") if table == "t" else (key, amount)
        change[row] += 1
    return change


@pytest.mark.parametrize(
    ("table", "text"),
    [
        ("t", "SELECT k, COUNT(*) AS n, SUM(a) AS s, COUNT(a) AS c FROM t GROUP BY k"),
        ("t", "SELECT k, AVG(a) AS m, COUNT_IF(a > 1) AS c FROM t WHERE id > 0 GROUP BY k"),
        ("t", "SELECT s, k, SUM(a) * 2 + COUNT(*) AS x FROM t GROUP BY k, s HAVING COUNT(*) > 1"),
        ("d", "SELECT k, SUM(price) AS total FROM d GROUP BY k"),
        ("t", "SELECT DISTINCT k, s FROM t"),
        ("t", "SELECT COUNT(*) AS n, SUM(a) AS s FROM t"),
        ("t", "SELECT SUM(a) * 2 AS s, COUNT(a) FILTER (WHERE id > 1) AS c FROM t HAVING COUNT(*) > 2"),
        ("t", "SELECT k, SUM(a * (id + 1)) AS s, SUM(IF(s = 'x', a, 0)) AS x FROM t GROUP BY k"),
        ("t", "SELECT k, SUM(a) FILTER (WHERE id > 1) AS s, COUNT(*) FILTER (WHERE a > 0) FROM t GROUP BY k"),
        ("d", "SELECT k, SUM(price * (1 - price)) AS a, SUM(price * price * price) AS b FROM d GROUP BY k"),
        ("d", "SELECT SUM(CASE WHEN k = 1 THEN price ELSE 0 END) AS one, SUM(-price) AS all FROM d"),
    ],
)
def test_state_after_many_changes_is_what_a_rebuild_gives(table: str, text: str) -> None:
    random = Random(4)
    database = Database(TYPED, {})
    subject = Subject(database, text)
    state = state_plan(subject.plan)
    assert state is not None
    kept = Kept(database, state)
    for _ in range(25):
        database.change({table: random_change(random, database, table)})
        kept.apply(frozenset({name_of(table)}))
        kept.check(subject.planned(State.NEW))


@pytest.mark.parametrize(
    "text",
    [
        "SELECT k, MAX(a) AS m FROM t GROUP BY k",
        "SELECT k, SUM(DISTINCT a) AS m FROM t GROUP BY k",
        "SELECT k, SUM(x) AS s FROM f GROUP BY k",
        "SELECT MAX(a) AS m, COUNT(*) AS n FROM t",
        "SELECT k, SUM(a / 2) AS s FROM t GROUP BY k",
        # What both sides of a set operation are together, neither is alone.
        "SELECT k, SUM(x) AS s FROM (SELECT k, price AS x FROM d EXCEPT SELECT k, a FROM t) AS e GROUP BY k",
        # Its scale is one that Spark may shorten.
        "SELECT k, SUM(price * price * price * 1.5) AS s FROM d GROUP BY k",
        "SELECT COUNT(*) AS n FROM t GROUP BY k",
        "SELECT k FROM t",
        # What is counted may come out otherwise when it is computed again.
        "SELECT c, COUNT(*) AS n FROM (SELECT k, FIRST(s) AS c FROM t GROUP BY k) GROUP BY c",
    ],
)
def test_what_is_no_group_or_hides_its_key_is_not_kept_by_state(text: str) -> None:
    assert state_plan(Subject(Database(SCHEMAS, {}), text).plan) is None


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ("SELECT k AS g, MAX(a) AS m FROM t GROUP BY k HAVING COUNT(*) > 1", ("g",)),
        ("SELECT id, k, RANK() OVER (PARTITION BY k ORDER BY a) AS r FROM t", ("k",)),
        ("SELECT DISTINCT k, s FROM t", ("k", "s")),
    ],
)
def test_replacing_the_touched_keys_gives_the_new_result(text: str, keys: tuple[str, ...]) -> None:
    random = Random(5)
    database = Database(SCHEMAS, {"t": Counter([T1, T2])})
    subject = Subject(database, text)
    for _ in range(15):
        database.change({"t": random_change(random, database, "t")})
        keyed = keyed_change(subject.plan, frozenset({name_of("t")}))
        assert keyed is not None
        assert keyed.keys == keys
        Replacement(subject, keyed).check(subject.planned(State.OLD), subject.planned(State.NEW))


def test_a_key_that_the_output_hides_allows_no_replacement() -> None:
    plan = Subject(Database(SCHEMAS, {}), "SELECT MAX(a) AS m FROM t GROUP BY k").plan
    assert keyed_change(plan, frozenset({name_of("t")})) is None
