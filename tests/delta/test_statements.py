"""The list of statements is the same for running, explaining and a dry run."""

from __future__ import annotations

import pytest

from headrace.delta.statements import Route, change_statements
from headrace.plan.nodes import State
from headrace.sql.names import TableName
from tests.algebra.engine import Database, Subject, name_of
from tests.delta.test_families import SCHEMAS

CHANGED = frozenset({name_of("t")})


def placeholder(name: TableName, state: State) -> str:
    return f"`{name.table} @ {state.value}`"


@pytest.mark.parametrize(
    ("text", "routes"),
    [
        ("SELECT k, COUNT(*) AS n FROM t GROUP BY k", [Route.STATE, Route.REPLACEMENT, Route.CHANGE]),
        ("SELECT k, MAX(a) AS m FROM t GROUP BY k", [Route.REPLACEMENT, Route.CHANGE]),
        ("SELECT t.id FROM t JOIN u ON t.k = u.k", [Route.CHANGE]),
        ("SELECT k, a FROM t ORDER BY a LIMIT 3", [Route.FIRST, Route.CHANGE]),
        ("SELECT id FROM u", []),
    ],
)
def test_the_routes_come_cheapest_first(text: str, routes: list[Route]) -> None:
    plan = Subject(Database(SCHEMAS), text).plan
    assert [statements.route for statements in change_statements(plan, CHANGED)] == routes


def test_what_is_shown_is_what_is_run() -> None:
    plan = Subject(Database(SCHEMAS), "SELECT k, MAX(a) AS m FROM t GROUP BY k").plan
    first = next(change_statements(plan, CHANGED))
    shown = first.shown(placeholder)
    assert [purpose for purpose, _ in shown] == [one.purpose for one in first.listed]
    keys, now, change = ("".join(sql.split()) for _, sql in shown)
    assert keys == "".join(first.sql("keys", placeholder).split())
    assert "`t@change`" in keys
    assert "`t@old`" not in keys + now, "the stored rows are the old side"
    assert "FROM`keys`" in now
    assert all(relation in change for relation in ("`now`", "`stored`", "`keys`"))
