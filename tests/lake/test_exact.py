"""What Spark rounds, pads or reads in its own way comes out the same by the change."""

from __future__ import annotations

import pytest

from headrace import Headrace
from tests.lake_algebra.play import Story, play

QUERIES = {
    "many digits after the point": "SELECT g, SUM(e) AS s, SUM(e * 2) AS t FROM v GROUP BY g",
    "a negative literal": "SELECT g, SUM(p * -1) / COUNT(*) AS r, SUM(-1 * p) AS n FROM v GROUP BY g",
    "a literal of a subquery": "SELECT g, s / three AS r FROM "
    "(SELECT g, SUM(p) AS s, 3 AS three FROM v GROUP BY g)",
    "a literal by its alias": "SELECT id, 3 AS three, p / three AS r, p / 7 AS q FROM v",
    "a literal with a type": "SELECT id, p / 3L AS r FROM v",
    "a quote": "SELECT id, s FROM v WHERE s = 'it''s' OR s = \"a\"\"b\"",
    "padded": "SELECT id, c FROM v WHERE c = 'a' OR c IN ('b', 'ab')",
    "padded in groups": "SELECT c, COUNT(*) AS n FROM v WHERE c <> 'b' GROUP BY c",
    "a key of another width": "SELECT COALESCE(w, 0) AS k, COUNT(*) AS n, SUM(w) AS s FROM v GROUP BY ALL",
    "both of a set operation": "SELECT g, SUM(x) AS s FROM "
    "(SELECT g, p AS x FROM v EXCEPT SELECT g, id FROM v) GROUP BY g",
    "a chain of comparisons": "SELECT id FROM v WHERE g = 1 = (id > 3)",
}
ROWS = """
    SELECT CAST(id AS INT), id % 3, id / 7, id / 9, elt(id % 3 + 1, 'a', 'ab', 'b'),
        elt(id % 3 + 1, 'it''s', 'its', 'a"b'), IF(id % 4 = 0, NULL, CAST(id % 5 AS SMALLINT))
    FROM range({}, {})
"""
ROUNDS = [
    [f"INSERT INTO v {ROWS.format(9, 20)}"],
    ["DELETE FROM v WHERE id % 2 = 0", "UPDATE v SET e = e / 3, p = p + 0.01, c = 'ab' WHERE id % 3 = 0"],
]


@pytest.fixture(scope="module")
def stories(standing_shop: Headrace) -> dict[str, Story]:
    columns = "id INT, g INT, e DECIMAL(20,18), p DECIMAL(10,2), c CHAR(3), s STRING, w SMALLINT"
    standing_shop.sql(f"CREATE TABLE v ({columns}) USING delta")
    standing_shop.sql(f"INSERT INTO v {ROWS.format(0, 9)}")
    return play(standing_shop, QUERIES, ROUNDS)


@pytest.mark.parametrize("case", QUERIES)
def test_the_change_comes_out_as_the_query(stories: dict[str, Story], case: str) -> None:
    stories[case].check()
