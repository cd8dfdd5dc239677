"""Groups inside a query, kept and carried from change to change, are tables to the rest of it."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from headrace.delta.compile import compile_change
from headrace.delta.kept import is_kept, kept_plan, state_plans
from headrace.delta.statements import Route, change_statements
from headrace.plan.nodes import State, sources
from headrace.sql.names import TableName
from tests.algebra.engine import Database, Subject, name_of
from tests.algebra.stored import Inside
from tests.delta.test_state import TYPED, random_change

CHANGED = frozenset({name_of("t"), name_of("d")})
QUERIES = {
    "joined": (
        "SELECT t.id, g.s FROM t JOIN (SELECT k, SUM(a) AS s FROM t GROUP BY k) AS g ON t.k <=> g.k",
        1,
    ),
    "a scalar subquery": ("SELECT id, a FROM t WHERE a > (SELECT AVG(a) FROM t)", 1),
    "a correlated subquery": ("SELECT id FROM t WHERE a >= (SELECT SUM(price) FROM d WHERE d.k = t.k)", 1),
    "a scalar subquery over groups": (
        "SELECT k, SUM(price) AS s FROM d GROUP BY k HAVING SUM(price) > (SELECT SUM(price) / 3 FROM d)",
        2,
    ),
    "groups of groups": (
        "SELECT n, COUNT(*) AS m FROM (SELECT k, COUNT(*) AS n FROM t GROUP BY k) GROUP BY n",
        1,
    ),
    "three times grouped": (
        "SELECT m, COUNT(*) AS c FROM (SELECT n, COUNT(*) AS m FROM (SELECT k, s, COUNT(a) AS n FROM t "
        "GROUP BY k, s) GROUP BY n) GROUP BY m",
        2,
    ),
    "the largest of groups": ("SELECT MAX(s) AS m FROM (SELECT k, SUM(a) AS s FROM t GROUP BY k)", 1),
    "the first of groups": ("SELECT k, COUNT(*) AS n FROM t GROUP BY k ORDER BY n DESC, k LIMIT 2", 1),
    "a key that is not shown": ("SELECT SUM(a) AS s FROM t GROUP BY k", 1),
    "a union": (
        "SELECT k, COUNT(*) AS n FROM t GROUP BY k UNION ALL SELECT k, COUNT(*) AS n FROM t GROUP BY k",
        2,
    ),
    "groups that are left out": (
        "SELECT id FROM t WHERE k NOT IN (SELECT k FROM d WHERE k > 0 GROUP BY k HAVING COUNT(*) > 1)",
        1,
    ),
}


@pytest.mark.parametrize("case", QUERIES)
def test_the_query_over_its_groups_changes_as_the_query_does(case: str) -> None:
    random = Random(7)
    text, count = QUERIES[case]
    database = Database(TYPED, {})
    subject = Subject(database, text)
    kept = kept_plan(subject.plan)
    assert kept is not None
    assert len(kept.groups) == count
    assert {groups.source for groups in kept.groups} >= {n for n in sources(kept.plan.root) if is_kept(n)}
    inside = Inside(database, kept, CHANGED)
    moved, result = 0, Counter(subject.planned(State.NEW))
    for _ in range(25):
        database.change({table: random_change(random, database, table) for table in ("t", "d")})
        old, result = result, Counter(subject.planned(State.NEW))
        inside.check(old, result)
        moved += old != result
    assert moved > 3


@pytest.mark.parametrize(
    "text",
    [
        "SELECT k, COUNT(*) AS n FROM t GROUP BY k",
        "SELECT t.id FROM t JOIN (SELECT DISTINCT k FROM d) AS e ON t.k = e.k",
        "SELECT t.id, m.x FROM t JOIN (SELECT k, MAX(price) AS x FROM d GROUP BY k) AS m ON t.k = m.k",
        "SELECT t.id FROM t CROSS JOIN (SELECT COUNT(*) AS n FROM VALUES (1), (2) AS v (x))",
        # What is counted may come out otherwise when it is computed again.
        "SELECT c, COUNT(*) AS n FROM (SELECT FIRST(s) AS c FROM t GROUP BY k) GROUP BY c LIMIT 1",
    ],
)
def test_other_groups_are_not_kept_inside(text: str) -> None:
    assert kept_plan(Subject(Database(TYPED, {}), text).plan) is None


def test_what_reads_groups_is_told_apart_by_what_these_are() -> None:
    over = "SELECT n, COUNT(*) AS m FROM (SELECT k, COUNT(*) AS n FROM t WHERE {} GROUP BY k) GROUP BY n"
    one, other = (
        {state.definition for state in state_plans(Subject(Database(TYPED, {}), over.format(test)).plan)}
        for test in ("id > 1", "id > 2")
    )
    assert len(one) == len(other) == 3
    assert not one & other


def test_groups_that_do_not_change_are_read_as_they_are() -> None:
    plan = Subject(Database(TYPED, {}), QUERIES["a correlated subquery"][0]).plan

    def listed(table: str) -> list[str]:
        first = next(change_statements(plan, frozenset({name_of(table)})))
        assert first.route is Route.KEPT
        return [statement.name.split(" ")[-1] for statement in first.listed]

    assert (listed("d"), listed("t")) == (["state", "added", "change"], ["state", "change"])


def test_what_is_shown_names_the_groups() -> None:
    plan = Subject(Database(TYPED, {}), QUERIES["joined"][0]).plan

    def placeholder(name: TableName, state: State) -> str:
        return f"`{name.table} @ {state.value}`"

    shown = next(change_statements(plan, CHANGED)).shown(placeholder)
    kept = kept_plan(plan)
    assert kept is not None
    (groups,) = kept.groups
    assert [groups.source.table in purpose for purpose, _ in shown] == [True, True, False]
    assert f"`{groups.source.table} @ change`" in shown[-1][1]


def test_the_explanation_tells_the_state_of_groups_inside() -> None:
    plan = Subject(Database(TYPED, {}), QUERIES["a scalar subquery over groups"][0]).plan
    steps = compile_change(plan, CHANGED).explain()
    kept = [step.state for step in steps if step.operator == "Aggregate"]
    assert kept == ["__hr_rows, __hr_sum1, __hr_n1"] * 2
