"""What Spark reads otherwise than a parser might is read as Spark does, or kept as text with the reason."""

from __future__ import annotations

import pytest
from sqlglot import exp

from headrace.plan.nodes import Aggregate, Filter, Node, Opaque, walk
from headrace.sql.dialect import VerbatimSpark
from headrace.sql.references import parse_query
from tests.algebra.engine import Database, Subject
from tests.plan.test_repeatable import TYPED


def root(text: str) -> Node:
    return Subject(Database.shared(TYPED, {}), text).plan.root


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("SELECT transform(array(1), k -> k + t.k) AS x FROM t", "a lambda whose variable"),
        ("SELECT transform(array(1), K -> k + 1) AS x FROM t", "a lambda whose variable"),
        ("SELECT id FROM t WHERE exists(array(1), id -> id = t.id)", "a lambda whose variable"),
        ("SELECT a + 1 AS x, transform(array(1), a -> a + x) AS y FROM t", "a lambda whose variable"),
        ("SELECT to_json((id, k)) AS j FROM t", "a row of values"),
        ("SELECT arrays_zip(array(id), array(k)) AS z FROM t", "arrays_zip()"),
        ("SELECT id AS x FROM (SELECT t.* FROM d JOIN t USING (k))", "t.* behind USING"),
        ("SELECT id AS x FROM (SELECT t.* FROM t JOIN d USING (k))", "t.* behind USING"),
        ("SELECT hash(t.*) AS h FROM d NATURAL JOIN t", "t.* behind USING"),
        ("SELECT COUNT(*) AS n FROM t GROUP BY session_window(s, '5 minutes')", "session_window()"),
        ("SELECT COUNT(*) AS n FROM t GROUP BY window(s, '10 minutes', '5 minutes')", "window()"),
        ("SELECT CAST(TIME '01:02:03' AS STRING) AS c, id FROM t", "a time of the day"),
        ("SELECT `1` AS x FROM (SELECT k, a FROM t) PIVOT (collect_list(a) FOR k IN (1, 2))", "PIVOT with"),
    ],
)
def test_what_is_not_planned_is_kept_with_the_reason(text: str, reason: str) -> None:
    reasons = [node.reason for node in walk(root(text)) if isinstance(node, Opaque)]
    assert len(reasons) == 1
    assert reason in reasons[0]


@pytest.mark.parametrize(
    "text",
    [
        "SELECT id, transform(array(1), x -> x + t.k) AS x FROM t",
        "SELECT id FROM t WHERE (k, a) IN ((1, 2), (3, 4))",
        "SELECT id, hash(*) AS h FROM t",
        "SELECT d.*, t.id FROM d JOIN t ON d.k = t.k",
        "SELECT d.*, t.id FROM d JOIN t USING (k)",
        "SELECT d.*, t.id FROM t LEFT JOIN d USING (k)",
        "SELECT e.*, id FROM t LATERAL VIEW explode(array(a)) e AS x",
        "SELECT id FROM t WHERE (k, a) = (1, 2)",
        "SELECT COUNT(DISTINCT (a, id)) AS n FROM t",
        "SELECT t.id FROM t JOIN d ON (t.k, t.a) = (d.k, d.k)",
        "SELECT id, struct((k), a AS b).k AS x FROM t",
        "SELECT k, SUM(a) OVER w AS s FROM t WINDOW w AS (PARTITION BY k)",
    ],
)
def test_what_is_like_it_is_planned(text: str) -> None:
    assert not any(isinstance(node, Opaque) for node in walk(root(text)))


@pytest.mark.parametrize(
    ("text", "is_key"),
    [
        ("SELECT k % 10 AS g, SUM(a) AS k FROM t GROUP BY k % 10 HAVING k > 5", False),
        ("SELECT k AS g, SUM(a) AS k FROM t GROUP BY k HAVING k > 5", True),
        ("SELECT k AS g, SUM(a) AS k FROM t GROUP BY 1 HAVING k > 5", True),
        ("SELECT k AS g, SUM(a) AS k FROM t GROUP BY g HAVING k > 5", True),
        ("SELECT k AS g, SUM(a) AS k FROM t GROUP BY ALL HAVING k > 5", True),
        ("SELECT k AS g, SUM(a) AS k FROM t GROUP BY ROLLUP (t.k) HAVING k > 5", True),
        ("SELECT k AS g, SUM(a) AS k FROM t GROUP BY (k), id HAVING k > 5", True),
    ],
)
def test_having_means_a_key_before_a_name_of_the_list(text: str, is_key: bool) -> None:
    (conditions,) = [node.condition for node in walk(root(text)) if isinstance(node, Filter)]
    (aggregate,) = [node for node in walk(root(text)) if isinstance(node, Aggregate)]
    (column,) = conditions.find_all(exp.Column)
    assert (column.name in aggregate.keys) == is_key


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("SELECT current_date, current_date() FROM t", "SELECT current_date, CURRENT_DATE() FROM t"),
        ("SELECT array[0], list[1], array(a)[0] FROM t", "SELECT array[0], list[1], ARRAY(a)[0] FROM t"),
        ("SELECT interval[0] FROM t", "SELECT interval[0] FROM t"),
        (
            "SELECT d - INTERVAL 1 DAY 2 HOURS FROM t",
            "SELECT d - (INTERVAL '1' DAY + INTERVAL '2' HOURS) FROM t",
        ),
        ("SELECT 1 FROM t GROUP BY window(d, 'x')", "SELECT 1 FROM t GROUP BY WINDOW(d, 'x')"),
    ],
)
def test_texts_are_written_as_they_were_read(text: str, written: str) -> None:
    assert parse_query(text).sql(dialect=VerbatimSpark) == written
