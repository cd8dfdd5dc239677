"""What DuckDB must be told, so that a query's own text is a fair judge of its plan."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.algebra.engine import Database, Subject, check_round, name_of

SCHEMA = {"t": [("k", "INTEGER")], "v": [("k", "INTEGER"), ("a", "INTEGER")]}


@pytest.mark.parametrize(
    "lateral",
    [
        "(SELECT MIN(v.a) AS m FROM v WHERE v.k = t.k) EXCEPT ALL (SELECT 9 AS m FROM v WHERE v.a = t.k)",
        "(SELECT MIN(v.a) AS m FROM v WHERE v.k = t.k) UNION (SELECT 9 AS m FROM v WHERE v.a = t.k)",
        "(SELECT 9 AS m FROM v WHERE v.a = t.k) UNION ALL (SELECT MAX(v.a) AS m FROM v WHERE v.k = t.k)",
        "SELECT DISTINCT m.a AS m FROM (SELECT SUM(v.a) AS a FROM v WHERE v.k = t.k) m",
    ],
)
def test_an_aggregate_of_nothing_in_a_lateral_keeps_its_row(lateral: str) -> None:
    database = Database(SCHEMA, {"t": Counter([(1,), (2,), (None,)]), "v": Counter([(1, 5), (1, 9)])})
    subject = Subject(database, f"SELECT t.k, l.m FROM t JOIN LATERAL ({lateral}) l ON TRUE")
    start = subject.as_written()
    assert {(2, None), (None, None)} <= set(start)
    database.change({"t": Counter([(3,)]), "v": Counter({(1, 5): -1, (1, 9): -1, (2, 7): 1})})
    change = check_round(subject, frozenset(map(name_of, SCHEMA)))
    assert change[(3, None)] == change[(2, 7)] == change[(1, None)] == 1
    assert change[(2, None)] == -1
