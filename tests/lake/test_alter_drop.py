"""ALTER, DROP, SHOW, DESCRIBE and EXPLAIN."""

from __future__ import annotations

import pytest

from headrace import Headrace, HeadraceError
from tests.conftest import holds, refreshed, rows

TOTALS = "SELECT customer, SUM(amount) AS total FROM orders GROUP BY customer"


@pytest.fixture
def totals(shop: Headrace) -> Headrace:
    shop.sql(f"CREATE STREAM TABLE totals AS {TOTALS}")
    return shop


def test_schedule_and_mode(totals: Headrace) -> None:
    totals.sql("ALTER STREAM TABLE totals SET SCHEDULE CRON '*/5 * * * *'")
    totals.sql("ALTER STREAM TABLE totals SET REFRESH MODE FULL")
    table = totals.catalog.find(totals.qualify("totals"))
    assert table.schedule.startswith("CRON")
    assert (table.refresh_mode, table.mode_reason) == ("FULL", "refresh mode FULL")
    with pytest.raises(HeadraceError) as refusal:
        totals.sql("ALTER STREAM TABLE totals SET SCHEDULE '1 second'")
    assert refusal.value.code == "schedule_too_short"


def test_query_is_replaced_and_loaded(totals: Headrace) -> None:
    totals.sql("ALTER STREAM TABLE totals AS SELECT id, region FROM customers WHERE region IS NOT NULL")
    assert rows(totals, "SELECT * FROM totals") == [(1, "north"), (3, "south")]
    assert holds(totals, "totals")
    assert totals.catalog.history()[0].action == "REINITIALIZE"
    assert {row.source for row in totals.dependencies().collect()} == {"default.customers"}


def test_a_query_that_fails_leaves_the_old_table(totals: Headrace) -> None:
    before = rows(totals, "SELECT * FROM totals")
    with pytest.raises(HeadraceError):
        totals.sql("ALTER STREAM TABLE totals AS SELECT id, 1 / (id - 1) AS x FROM customers")
    table = totals.catalog.find(totals.qualify("totals"))
    assert (table.query, table.status) == (TOTALS, "ACTIVE")
    assert rows(totals, "SELECT * FROM totals") == before
    assert {row.source for row in totals.dependencies().collect()} == {"default.orders"}
    totals.sql("INSERT INTO orders VALUES (8, 8, 8)")
    assert refreshed(totals, "totals").action == "DIFFERENTIAL"
    assert (8, 8) in rows(totals, "SELECT * FROM totals")


def test_suspend_and_resume(totals: Headrace) -> None:
    totals.sql("ALTER STREAM TABLE totals SUSPEND")
    assert totals.catalog.find(totals.qualify("totals")).status == "SUSPENDED"
    totals.sql("ALTER STREAM TABLE totals RESUME")
    assert totals.catalog.find(totals.qualify("totals")).status == "ACTIVE"


def test_rename_keeps_contents_and_history(totals: Headrace) -> None:
    totals.sql("ALTER STREAM TABLE totals RENAME TO sums")
    assert rows(totals, "SELECT * FROM sums") == rows(totals, TOTALS)
    totals.sql("INSERT INTO orders VALUES (8, 8, 8)")
    assert refreshed(totals, "sums").action == "DIFFERENTIAL"
    assert (8, 8) in rows(totals, "SELECT * FROM sums")
    known = [record.action for record in totals.catalog.history(totals.qualify("sums"))]
    assert known == ["DIFFERENTIAL", "FULL"]
    with pytest.raises(HeadraceError) as refusal:
        totals.refresh_stream_table("totals")
    assert refusal.value.code == "unknown_stream_table"
    with pytest.raises(HeadraceError) as refusal:
        totals.sql("ALTER STREAM TABLE sums RENAME TO orders")
    assert refusal.value.code == "name_taken"


def test_drop_refuses_while_others_read_it(totals: Headrace) -> None:
    totals.sql("CREATE STREAM TABLE rich AS SELECT customer FROM totals WHERE total > 10")
    totals.sql("CREATE STREAM TABLE richest AS SELECT MAX(customer) AS c FROM rich")
    for statement in ("DROP STREAM TABLE totals", "ALTER STREAM TABLE totals RENAME TO other"):
        with pytest.raises(HeadraceError, match=r"default\.rich") as refusal:
            totals.sql(statement)
        assert refusal.value.code == "has_dependents"

    totals.sql("DROP STREAM TABLE totals CASCADE")
    assert totals.stream_tables().count() == 0
    assert {row.tableName for row in totals.sql("SHOW TABLES").collect()} == {"customers", "orders"}
    totals.sql("DROP STREAM TABLE IF EXISTS totals")
    with pytest.raises(HeadraceError) as refusal:
        totals.sql("DROP STREAM TABLE totals")
    assert refusal.value.code == "unknown_stream_table"


def test_show_describe_history_and_explain(totals: Headrace) -> None:
    assert totals.sql("SHOW STREAM TABLES").collect()[0]["name"] == "default.totals"
    facts = {row.property: row.value for row in totals.sql("DESCRIBE STREAM TABLE totals").collect()}
    assert facts["status"] == "ACTIVE"
    assert facts["reads default.orders"] == "customer, amount"
    assert totals.sql("SHOW REFRESH HISTORY FOR totals").count() == 1
    plan = "\n".join(row.plan for row in totals.sql("EXPLAIN STREAM TABLE totals").collect())
    assert "default.orders (customer, amount)" in plan
    assert "VERSION AS OF 1" in plan


def test_explain_create_creates_nothing(totals: Headrace) -> None:
    statement = "EXPLAIN CREATE STREAM TABLE s AS SELECT id, rand() AS r FROM orders"
    plan = "\n".join(row.plan for row in totals.sql(statement).collect())
    assert "rand" in plan
    assert "line 1" in plan
    assert totals.stream_tables().count() == 1


def test_catalog_tables_join_and_alias(totals: Headrace) -> None:
    joined = totals.sql(
        "SELECT t.name, stream_table, headrace.dependencies.source FROM headrace.stream_tables AS t "
        "JOIN headrace.dependencies ON t.name = dependencies.stream_table"
    ).collect()
    assert [tuple(row) for row in joined] == [("default.totals", "default.totals", "default.orders")]
