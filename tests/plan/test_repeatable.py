"""Results that computing again may give otherwise are known as such."""

from __future__ import annotations

import pytest

from headrace.plan.repeatable import unrepeatable
from tests.algebra.engine import Database, Subject
from tests.delta.test_families import SCHEMAS

TYPED = {
    **{
        table: [(c, t.replace("INTEGER", "int").lower()) for c, t in columns]
        for table, columns in SCHEMAS.items()
    }
}


def doubts(text: str) -> tuple[str, ...]:
    return unrepeatable(Subject(Database.shared(TYPED, {}), text).plan)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT k, COUNT(*) AS n, MIN(x) AS lo, MAX(s) AS hi FROM f CROSS JOIN (SELECT s FROM t) GROUP BY k",
        "SELECT k, SUM(a * (1 - a)) AS s, AVG(a) AS m FROM t GROUP BY k",
        "SELECT k, SUM(price) AS s, SUM(DISTINCT price) AS d FROM d GROUP BY k",
        "SELECT k, SUM(price / 2) AS s FROM d GROUP BY k",
        "SELECT k, SUM(p) AS s FROM (SELECT k, price AS p FROM d UNION ALL SELECT k, a FROM t) GROUP BY k",
        "SELECT SUM(s / 3) AS s FROM (SELECT SUM(price) AS s FROM d GROUP BY k)",
        "SELECT k, SUM(CASE WHEN s = 'x' THEN a ELSE 0 END) AS s FROM t GROUP BY k",
        "SELECT id, ROW_NUMBER() OVER (PARTITION BY k ORDER BY a) AS r FROM t",
        "SELECT id, SUM(a) OVER (PARTITION BY k) AS s FROM t",
        "SELECT k, x * 2 AS y FROM f",
        "SELECT n, SUM(s) AS t FROM (SELECT k, COUNT(*) AS n, SUM(a) AS s FROM t GROUP BY k) GROUP BY n",
        "SELECT id, (SELECT b FROM u WHERE u.id = t.id) AS b FROM t",
    ],
)
def test_exact_results_are_repeatable(text: str) -> None:
    assert doubts(text) == ()


@pytest.mark.parametrize(
    ("text", "functions"),
    [
        ("SELECT k, SUM(x) AS s FROM f GROUP BY k", ("SUM",)),
        ("SELECT k, AVG(x + 1) AS s FROM f GROUP BY k", ("AVG",)),
        ("SELECT k, SUM(CAST(a AS DOUBLE)) AS s FROM t GROUP BY k", ("SUM",)),
        ("SELECT k, SUM(a / 2) AS s FROM t GROUP BY k", ("SUM",)),
        ("SELECT k, STDDEV(a) AS s, COLLECT_LIST(a) AS l FROM t GROUP BY k", ("STDDEV", "COLLECT_LIST")),
        ("SELECT SUM(m) AS s FROM (SELECT k, AVG(a) AS m FROM t GROUP BY k)", ("SUM",)),
        ("SELECT k, SUM(x) OVER (PARTITION BY k) AS s FROM f", ("SUM",)),
        ("SELECT k, FIRST(a) AS s FROM t GROUP BY k", ("FIRST",)),
        ("SELECT t.id, g.s FROM t JOIN (SELECT k, SUM(x) AS s FROM f GROUP BY k) g ON g.k = t.k", ("SUM",)),
    ],
)
def test_sums_of_floats_and_what_depends_on_order_are_not(text: str, functions: tuple[str, ...]) -> None:
    assert doubts(text) == functions
