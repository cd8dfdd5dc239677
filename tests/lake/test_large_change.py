"""Changes of more rows than the driver takes: Spark computes and applies them, and nothing of them stays."""

from __future__ import annotations

import pytest

from headrace import Headrace
from headrace.refresh import differential
from tests.conftest import refreshed

# Arrow does not compute these, or not from so many rows.
TABLES = {
    "plain": "SELECT id, initcap(name) AS name, amount FROM sales",
    "joined": "SELECT s.id, initcap(h.name) AS shop, s.amount "
    "FROM sales s LEFT JOIN shops h ON s.shop = h.id",
    # Equal rows several times, of which a change takes some and leaves others.
    "alike": "SELECT initcap(name) AS name, id % 5 AS g, amount % 3 AS a FROM sales",
    "ranked": "SELECT id, RANK() OVER (PARTITION BY initcap(name) ORDER BY amount, id) AS place FROM sales",
}


def test_a_change_too_large_for_the_driver_is_exact_and_leaves_nothing_cached(
    lake: Headrace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(differential, "DRIVER_ROWS", 20)
    monkeypatch.setattr(differential, "_MANY_CHANGED", 50)
    lake.sql("CREATE TABLE sales (id BIGINT, shop INT, name STRING, amount BIGINT) USING delta")
    lake.sql(
        "CREATE TABLE shops USING delta AS "
        "SELECT CAST(id AS INT) AS id, concat('s', id) AS name FROM range(9)"
    )
    lake.sql(
        "INSERT INTO sales SELECT id, IF(id % 5 = 0, NULL, CAST(id % 10 AS INT)), "
        "concat('n', id % 7), id * 7919 % 101 FROM range(300)"
    )
    for name, query in TABLES.items():
        lake.sql(f"CREATE STREAM TABLE {name} REFRESH MODE DIFFERENTIAL AS {query}")
    cached_before = cached(lake)

    lake.sql("UPDATE sales SET amount = amount + 1 WHERE id % 2 = 0")
    lake.sql("DELETE FROM sales WHERE id % 11 = 1")
    lake.sql("INSERT INTO sales SELECT id, 3, 'n3', NULL FROM range(300, 330)")
    for name in TABLES:
        result = refreshed(lake, name)
        assert result.action == "DIFFERENTIAL", name
        assert "the change is large" in result.reason, name
        assert result.rows_inserted > 20, name
        assert result.rows_deleted > 20, name
    assert cached(lake) == cached_before


def cached(hr: Headrace) -> list[str]:
    """The frames that Spark keeps, but for what Delta remembers of its tables."""
    kept = hr.spark.sparkContext._jsc.getPersistentRDDs().values()
    names = [str(rdd.name()) for rdd in kept]
    return [name for name in names if not name.startswith("Delta Table State")]
