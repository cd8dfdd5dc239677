"""What shows one of several values that a collation calls equal is known before it is computed."""

from __future__ import annotations

import pytest

from headrace.plan.collations import picks_among_equals
from tests.algebra.engine import Database, Subject
from tests.plan.test_repeatable import TYPED

LOOSE = "s COLLATE UTF8_LCASE"

# What is planned as one and the same thing, of which the query has one.
ONE_OF_THREE = "GROUP BY, DISTINCT or UNION"


def picked(text: str) -> str | None:
    return picks_among_equals(Subject(Database.shared(TYPED, {}), text).plan.root)


@pytest.mark.parametrize(
    "text",
    [
        f"SELECT MIN(a) AS first, COUNT(*) AS n FROM t GROUP BY {LOOSE}",
        f"SELECT COUNT(DISTINCT {LOOSE}) AS n FROM t",
        f"SELECT a, s FROM t WHERE {LOOSE} IN ('ada', 'bo')",
        f"SELECT k, COUNT(*) OVER (PARTITION BY {LOOSE}) AS n FROM t",
        f"SELECT x.a FROM t x JOIN t y ON x.{LOOSE} = y.{LOOSE}",
        f"SELECT DISTINCT {LOOSE} COLLATE UTF8_BINARY AS s FROM t",
        f"SELECT CASE WHEN {LOOSE} = 'ada' THEN 1 ELSE 0 END AS g, COUNT(*) AS n FROM t GROUP BY 1",
        "SELECT s, MAX(s) AS hi FROM t GROUP BY s",
    ],
)
def test_what_is_the_same_for_all_equal_values_is_no_pick(text: str) -> None:
    assert picked(text) is None


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (f"SELECT v COLLATE UTF8_BINARY AS v FROM (SELECT DISTINCT {LOOSE} AS v FROM t)", ONE_OF_THREE),
        (
            f"SELECT v COLLATE UTF8_BINARY AS v FROM (SELECT {LOOSE} AS v, COUNT(*) AS n FROM t GROUP BY 1)",
            ONE_OF_THREE,
        ),
        (
            f"SELECT v COLLATE UTF8_BINARY AS v, n "
            f"FROM (SELECT {LOOSE} AS v, COUNT(*) AS n FROM t GROUP BY 1)",
            "GROUP BY",
        ),
        (f"SELECT MAX({LOOSE}) COLLATE UTF8_BINARY AS hi FROM t", "MAX"),
        ("SELECT MIN(collate(s, 'UTF8_LCASE')) COLLATE UTF8_BINARY AS lo FROM t", "MIN"),
        (f"SELECT k, LAG({LOOSE}) OVER (ORDER BY a) COLLATE UTF8_BINARY AS b FROM t", "LAG"),
        (f"SELECT k, MAX({LOOSE}) OVER (PARTITION BY k) COLLATE UTF8_BINARY AS b FROM t", "MAX"),
        (
            f"SELECT v COLLATE UTF8_BINARY AS v FROM (SELECT {LOOSE} AS v FROM t ORDER BY v LIMIT 1)",
            "ORDER BY with LIMIT",
        ),
        (
            f"SELECT v COLLATE UTF8_BINARY AS v FROM (SELECT {LOOSE} AS v FROM t "
            f"EXCEPT ALL SELECT {LOOSE} AS v FROM t WHERE a > 1)",
            "EXCEPT",
        ),
        (
            f"SELECT v COLLATE UTF8_BINARY AS v FROM (SELECT {LOOSE} AS v FROM t "
            f"UNION SELECT {LOOSE} AS v FROM t WHERE a > 1)",
            ONE_OF_THREE,
        ),
    ],
)
def test_one_of_several_equal_values_is_a_pick(text: str, what: str) -> None:
    assert picked(text) == what
