"""Differential refreshes on real Spark and Delta: each applies exactly the change, and says so."""

from __future__ import annotations

import pytest

from headrace import Headrace
from headrace.refresh import choice, differential
from tests.conftest import refreshed, rows
from tests.lake_algebra.play import Story, play

ROUNDS = [
    [
        "INSERT INTO orders VALUES (5, 3, 30), (6, NULL, 6), (6, NULL, 6)",
        "INSERT INTO customers VALUES (4, 'Di', 'east')",
    ],
    [
        "UPDATE orders SET customer = 4 WHERE id = 3",
        "DELETE FROM orders WHERE id = 2",
        "UPDATE customers SET region = 'north' WHERE id = 2",
    ],
    [
        "DELETE FROM customers WHERE id = 1",
        "MERGE INTO orders o USING (SELECT 5 AS id UNION ALL SELECT 77) n ON o.id = n.id "
        "WHEN MATCHED THEN UPDATE SET amount = amount + 1 "
        "WHEN NOT MATCHED THEN INSERT (id, customer, amount) VALUES (77, 1, 77)",
    ],
    ["DELETE FROM orders", "DELETE FROM customers"],
    [
        "INSERT INTO orders VALUES (1, 1, 1), (1, 1, 1)",
        "INSERT INTO customers VALUES (1, 'Ada', 'north'), (1, 'Eve', NULL)",
    ],
]

QUERIES = {
    "scan": "SELECT id, customer, amount FROM orders",
    "filter": "SELECT id, amount * 2 AS double FROM orders WHERE amount > 5 OR customer IS NULL",
    "join": "SELECT o.id, c.name, o.amount FROM orders o JOIN customers c ON o.customer = c.id",
    "left join": "SELECT o.id, c.name FROM orders o LEFT JOIN customers c ON o.customer = c.id",
    "full join": "SELECT o.id, c.name FROM orders o FULL JOIN customers c ON o.customer = c.id",
    "aggregate": "SELECT customer, SUM(amount) AS s, COUNT(*) AS n, AVG(amount) AS a, MIN(amount) AS m "
    "FROM orders GROUP BY customer",
    "no group": "SELECT SUM(amount) AS s, COUNT(*) AS n FROM orders",
    "join and aggregate": "SELECT c.region, SUM(o.amount) AS s FROM orders o "
    "JOIN customers c ON o.customer = c.id GROUP BY c.region HAVING COUNT(*) > 0",
    "distinct": "SELECT DISTINCT customer, amount FROM orders",
    "window": "SELECT id, amount, ROW_NUMBER() OVER (PARTITION BY customer ORDER BY id, amount) AS r "
    "FROM orders",
    "exists": "SELECT name FROM customers c WHERE EXISTS (SELECT 1 FROM orders o WHERE o.customer = c.id)",
    "not in": "SELECT name FROM customers WHERE id NOT IN (SELECT customer FROM orders WHERE amount > 1)",
    "scalar": "SELECT name, (SELECT COUNT(*) FROM orders o WHERE o.customer = c.id) AS n FROM customers c",
    "union": "SELECT id FROM orders UNION SELECT id FROM customers",
    "except all": "SELECT id FROM orders EXCEPT ALL SELECT id FROM customers",
    "top": "SELECT id, amount FROM orders ORDER BY amount DESC NULLS LAST, id LIMIT 2",
    "rollup": "SELECT customer, id, SUM(amount) AS s FROM orders GROUP BY ROLLUP (customer, id)",
}


@pytest.fixture(scope="module")
def stories(standing_shop: Headrace) -> dict[str, Story]:
    return play(standing_shop, QUERIES, ROUNDS)


@pytest.mark.parametrize("case", QUERIES)
def test_five_rounds_on_both_sides(stories: dict[str, Story], case: str) -> None:
    contents = stories[case].check()
    assert len({frozenset(rows.items()) for rows in contents}) > 2, "the result must really change"


def test_unused_columns_make_no_change(shop: Headrace) -> None:
    shop.sql("CREATE STREAM TABLE names REFRESH MODE DIFFERENTIAL AS SELECT id, name FROM customers")
    version = shop.catalog.find(shop.qualify("names")).storage_version
    shop.sql("UPDATE customers SET region = 'nowhere'")
    result = refreshed(shop, "names")
    assert (result.rows_inserted, result.rows_deleted) == (0, 0)
    assert shop.catalog.find(shop.qualify("names")).storage_version == version


def test_a_change_that_nets_out_makes_no_version(shop: Headrace) -> None:
    shop.sql("CREATE STREAM TABLE names REFRESH MODE DIFFERENTIAL AS SELECT id, name FROM customers")
    version = shop.catalog.find(shop.qualify("names")).storage_version
    shop.sql("INSERT INTO customers VALUES (8, 'H', 'x')")
    shop.sql("DELETE FROM customers WHERE id = 8")
    result = refreshed(shop, "names")
    assert (result.rows_inserted, result.rows_deleted) == (0, 0)
    assert shop.catalog.find(shop.qualify("names")).storage_version == version


def test_a_change_flows_through_a_chain_and_a_diamond(shop: Headrace) -> None:
    shop.sql("CREATE STREAM TABLE base REFRESH MODE DIFFERENTIAL AS SELECT id, customer, amount FROM orders")
    shop.sql(
        "CREATE STREAM TABLE totals REFRESH MODE DIFFERENTIAL AS "
        "SELECT customer, SUM(amount) AS s FROM base GROUP BY customer"
    )
    shop.sql(
        "CREATE STREAM TABLE counts REFRESH MODE DIFFERENTIAL AS "
        "SELECT customer, COUNT(*) AS n FROM base GROUP BY customer"
    )
    shop.sql(
        "CREATE STREAM TABLE tip REFRESH MODE DIFFERENTIAL AS "
        "SELECT t.customer, s, n FROM totals t JOIN counts c ON t.customer <=> c.customer"
    )
    before = rows(shop, "SELECT * FROM tip")
    shop.sql("UPDATE orders SET customer = 3 WHERE id = 3")
    for name in ("base", "totals", "counts", "tip"):
        result = refreshed(shop, name)
        assert result.action == "DIFFERENTIAL"
        assert result.delta_row_count > 0
    assert rows(shop, "SELECT * FROM tip") != before
    assert rows(shop, "SELECT * FROM tip") == rows(
        shop, "SELECT customer, SUM(amount) AS s, COUNT(*) AS n FROM orders GROUP BY customer"
    )


def test_a_small_change_of_every_shape_starts_no_spark_job(lake: Headrace) -> None:
    """Through a chain too: the tables below take what changed above, and read neither table whole."""
    lake.sql(
        "CREATE TABLE sales USING delta AS SELECT id, CAST(id % 50 AS INT) AS customer, "
        "CAST(id % 7 AS DECIMAL(10,2)) AS amount FROM range(20000)"
    )
    lake.sql("CREATE TABLE people USING delta AS SELECT CAST(id AS INT) AS id, 'p' AS name FROM range(60)")
    mode = "REFRESH MODE DIFFERENTIAL"
    queries = {
        "scans": "SELECT id, customer, amount FROM sales WHERE amount > 0",
        "joins": "SELECT s.id, p.name, s.amount FROM scans s LEFT JOIN people p ON s.customer = p.id",
        "sums": "SELECT customer, COUNT(*) AS n, SUM(amount) AS s FROM scans GROUP BY customer",
        "rows": "SELECT DISTINCT customer, amount FROM scans",
        "both": "SELECT s.customer, s.n, p.name FROM sums s JOIN people p ON s.customer = p.id",
    }
    for name, query in queries.items():
        lake.sql(f"CREATE STREAM TABLE {name} {mode} AS {query}")
    writes = (
        "INSERT INTO sales VALUES (20001, 3, 5), (20002, 4, 6), (20003, NULL, 7)",
        "UPDATE sales SET amount = amount + 1, customer = 55 WHERE id IN (5, 6)",
        "DELETE FROM sales WHERE id BETWEEN 100 AND 130",
    )
    for number, write in enumerate(writes):
        lake.sql(write)
        for name in queries:
            before = rows(lake, f"SELECT * FROM {name}")
            result = refreshed(lake, name)
            assert result.action == "DIFFERENTIAL"
            # The first change makes the state of the groups.
            assert number == 0 or result.spark_jobs == 0, (name, result.reason)
            if name not in ("rows", "both"):
                assert rows(lake, f"SELECT * FROM {name}") != before, (name, write)


def test_auto_takes_full_when_most_of_a_large_source_changed(
    shop: Headrace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(choice, "_BEARABLE_MS", 0)
    shop.sql("CREATE STREAM TABLE copy AS SELECT id, amount FROM orders")
    shop.sql("UPDATE orders SET amount = 1")
    result = refreshed(shop, "copy")
    assert result.action == "FULL"
    assert "threshold" in result.reason
    assert shop.catalog.history(shop.qualify("copy"))[0].details["change_ratio"] > 0.1


def test_auto_knows_how_little_a_full_refresh_above_changed(
    shop: Headrace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its files say that every row came and went; its commit says what really did."""
    monkeypatch.setattr(choice, "_BEARABLE_MS", 0)
    shop.sql("INSERT INTO orders SELECT id, id % 7, id FROM range(10, 5000)")
    shop.sql("CREATE STREAM TABLE above REFRESH MODE FULL AS SELECT id, customer, amount FROM orders")
    shop.sql("CREATE STREAM TABLE below AS SELECT customer, SUM(amount) AS s FROM above GROUP BY customer")
    before = rows(shop, "SELECT * FROM below")
    shop.sql("UPDATE orders SET amount = amount + 1 WHERE id = 77")
    shop.sql("INSERT INTO orders VALUES (3, 2, 7.25)")
    full = refreshed(shop, "above")
    assert (full.action, full.rows_inserted, full.rows_deleted) == ("FULL", 4996, 4995)
    result = refreshed(shop, "below")
    assert result.action == "DIFFERENTIAL", result.reason
    assert rows(shop, "SELECT * FROM below") != before
    details = shop.catalog.history(shop.qualify("below"))[0].details
    assert (details["change_rows"], details["source_rows"]) == (3, 4996)


def test_auto_tries_a_large_change_where_recomputing_is_quick_and_learns_from_it(
    shop: Headrace, monkeypatch: pytest.MonkeyPatch
) -> None:
    # On a busy machine the first load may take longer than that, and a change longer than recomputing.
    monkeypatch.setattr(choice, "_BEARABLE_MS", 10**6)
    monkeypatch.setattr(choice, "_NOTICED_MS", 10**6)
    shop.sql("CREATE STREAM TABLE copy AS SELECT id, amount FROM orders")
    for number in range(2):
        shop.sql(f"UPDATE orders SET amount = {number}")
        assert refreshed(shop, "copy").action == "DIFFERENTIAL"
    again, first = (
        record.details for record in shop.catalog.history(shop.qualify("copy")) if record.action != "FULL"
    )
    assert first["change_ratio"] > 0.1
    assert (first["expected_differential_ms"], again["expected_from_rows"]) == (None, first["change_rows"])


def test_rows_that_compute_otherwise_today_are_loaded_anew(lake: Headrace) -> None:
    lake.sql("CREATE TABLE t (id INT, k INT, x DOUBLE) USING delta")
    # From the largest down they add up to 4.0, however the rows are split.
    values = "(1, 1, 0.1), (2, 1, 0.5), (3, 1, 0.7), (4, 1, 0.8), (5, 1, 0.9), (6, 1, 1.0)"
    lake.sql(f"INSERT INTO t SELECT /*+ COALESCE(1) */ * FROM VALUES {values}")
    lake.sql(
        "CREATE STREAM TABLE st REFRESH MODE DIFFERENTIAL AS SELECT t.id, g.s FROM t "
        "JOIN (SELECT k, SUM(x) AS s FROM t GROUP BY k) g ON g.k = t.k"
    )
    assert rows(lake, "SELECT DISTINCT s FROM st") == [(3.9999999999999996,)]
    lake.sql("INSERT OVERWRITE t SELECT /*+ COALESCE(1) */ * FROM t ORDER BY x DESC")
    assert refreshed(lake, "st").delta_row_count == 0, "the same rows in another order are no change"
    lake.sql("INSERT INTO t VALUES (7, 1, 1)")
    result = refreshed(lake, "st")
    assert (result.action, len(rows(lake, "SELECT * FROM st"))) == ("REINITIALIZE", 7)
    assert "SUM" in result.reason
    assert "reinitialize_needed" in {kind for (kind,) in rows(lake, "SELECT kind FROM headrace.alerts")}


@pytest.mark.parametrize(
    ("query", "routes"),
    [
        (
            "SELECT customer, SUM(amount) AS s FROM orders GROUP BY customer",
            ["state of the groups", "replacement by key"],
        ),
        (
            "SELECT id, amount FROM orders ORDER BY amount DESC, id LIMIT 3",
            ["first rows in an order", "change query"],
        ),
        (
            "SELECT id FROM orders WHERE amount > (SELECT AVG(amount) FROM orders)",
            ["state of the groups inside the query, then change query", "change query"],
        ),
    ],
)
def test_the_route_that_was_taken_is_named_and_a_dry_run_lists_it(
    shop: Headrace, monkeypatch: pytest.MonkeyPatch, query: str, routes: list[str]
) -> None:
    shop.sql(f"CREATE STREAM TABLE st REFRESH MODE DIFFERENTIAL AS {query}")
    for number, route in enumerate(routes):
        # No change is small enough for the cheap route the second time.
        monkeypatch.setattr(differential, "DRIVER_ROWS", differential.DRIVER_ROWS if number == 0 else 0)
        shop.sql(f"INSERT INTO orders VALUES ({number + 70}, 1, {number + 500})")
        plan, before = shop.plan_refresh("st"), rows(shop, "SELECT * FROM st")
        result = refreshed(shop, "st")
        assert result.action == "DIFFERENTIAL"
        assert rows(shop, "SELECT * FROM st") != before
        assert f"; by {route}; " in result.reason
        record = shop.catalog.history()[0]
        assert (record.reason, record.details["route"]) == (result.reason, route)
        assert f"by {routes[0]}" in plan.reason
        assert [one.route for one in plan.otherwise] == routes[1:]
        assert all(one.statements and one.when.startswith("where ") for one in plan.otherwise)
        assert f"-- Else, {plan.otherwise[0].when}: by {routes[1]}" in str(plan)


def test_a_dry_run_says_what_a_refresh_would_do_and_does_nothing(shop: Headrace) -> None:
    shop.sql(
        "CREATE STREAM TABLE st REFRESH MODE DIFFERENTIAL AS "
        "SELECT customer, MAX(amount) AS m FROM orders GROUP BY customer"
    )
    assert str(shop.plan_refresh("st")) == "default.st: NO_DATA (no source changed)"
    shop.sql("INSERT INTO orders VALUES (9, 1, 99)")
    before = shop.catalog.find(shop.qualify("st")), len(shop.catalog.history())
    plan = shop.plan_refresh("st")
    assert (plan.action, len(plan.statements)) == ("DIFFERENTIAL", 3)
    assert "by replacement by key" in plan.reason
    assert "`default.orders @ changes after version 1 up to 2`" in str(plan)
    whole = shop.plan_refresh("st", full=True)
    assert (whole.action, len(whole.statements)) == ("FULL", 1)
    assert "`orders` VERSION AS OF 2" in str(whole)
    assert (shop.catalog.find(shop.qualify("st")), len(shop.catalog.history())) == before
    result = refreshed(shop, "st")
    assert (result.action, result.rows_inserted, result.rows_deleted) == ("DIFFERENTIAL", 1, 1)
