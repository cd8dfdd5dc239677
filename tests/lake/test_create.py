"""Creating stream tables: what is stored, and what is refused before anything is written."""

from __future__ import annotations

import re

import pytest

from headrace import Headrace, HeadraceError
from tests.conftest import holds, refreshed, rows

TOTALS = "SELECT customer, SUM(amount) AS total, COUNT(*) AS orders FROM orders GROUP BY customer"


def test_created_table_holds_the_query_s_rows_and_only_its_columns(shop: Headrace) -> None:
    shop.sql(f"CREATE STREAM TABLE totals SCHEDULE '5 minutes' AS {TOTALS}")

    assert rows(shop, "SELECT * FROM totals") == rows(shop, TOTALS)
    assert shop.sql("SELECT * FROM totals").columns == ["customer", "total", "orders"]
    assert holds(shop, "totals")


def test_definition_dependencies_and_columns_used_are_stored(shop: Headrace) -> None:
    shop.sql(f"CREATE STREAM TABLE totals SCHEDULE '90s' COMMENT 'per customer' AS {TOTALS}")

    table = shop.sql("SELECT * FROM headrace.stream_tables").collect()[0]
    assert (table["name"], table.status, table.schedule) == (
        "default.totals",
        "ACTIVE",
        "1 minute 30 seconds",
    )
    assert table.query == TOTALS
    assert table.mode_reason
    edge = shop.sql("SELECT * FROM headrace.dependencies").collect()[0]
    assert (edge.stream_table, edge.source, edge.source_type) == ("default.totals", "default.orders", "TABLE")
    assert edge.columns_used == ["customer", "amount"]
    load = shop.sql("SELECT * FROM headrace.refresh_history").collect()[0]
    assert (load.state, load.action, load.rows_inserted) == ("COMPLETED", "FULL", 3)


def test_star_is_expanded_and_recorded_with_a_notice(
    shop: Headrace, caplog: pytest.LogCaptureFixture
) -> None:
    shop.sql("CREATE STREAM TABLE copy AS SELECT * FROM customers")
    assert "id, name, region" in caplog.text

    shop.sql("ALTER TABLE customers ADD COLUMN age INT")
    shop.sql("INSERT INTO customers VALUES (4, 'Cy', 'west', 44)")
    assert shop.refresh_stream_table("copy").action == "DIFFERENTIAL"
    assert shop.sql("SELECT * FROM copy").columns == ["id", "name", "region"]
    assert shop.sql("SELECT * FROM copy WHERE id = 4").count() == 1
    assert holds(shop, "copy")


def test_created_without_loading(shop: Headrace) -> None:
    shop.sql(f"CREATE STREAM TABLE totals WITH (initialize = false) AS {TOTALS}")
    assert shop.sql("SELECT * FROM totals").count() == 0
    assert shop.catalog.find(shop.qualify("totals")).status == "INITIALIZING"

    assert shop.refresh_stream_table("totals").reason.startswith("first load; rewrite: the result has ")
    assert holds(shop, "totals")
    assert shop.sql("SELECT * FROM totals").count() == 3


def test_views_are_expanded_and_recorded(shop: Headrace) -> None:
    shop.sql("CREATE VIEW big (order_id, buyer) AS SELECT id, customer FROM orders WHERE amount > 5")
    shop.sql("CREATE STREAM TABLE buyers AS SELECT buyer, COUNT(*) AS n FROM big GROUP BY buyer")

    kinds = {(row.source, row.source_type) for row in shop.dependencies().collect()}
    assert kinds == {("default.orders", "TABLE"), ("default.big", "VIEW")}
    shop.sql("INSERT INTO orders VALUES (9, 9, 99)")
    assert shop.refresh_stream_table("buyers").action == "DIFFERENTIAL"
    assert holds(shop, "buyers")
    assert (9, 1) in rows(shop, "SELECT * FROM buyers")


def test_names_are_qualified_at_creation(shop: Headrace) -> None:
    shop.sql("CREATE SCHEMA marts")
    shop.sql("CREATE TABLE marts.customers USING delta AS SELECT 1 AS id")
    shop.sql("CREATE STREAM TABLE `Marts`.`Ids` AS SELECT id FROM customers")
    shop.sql("USE marts")

    assert shop.refresh_stream_table("ids").action == "NO_DATA"
    assert holds(shop, "ids")
    assert rows(shop, "SELECT * FROM ids") == [(1,), (2,), (3,)]
    shop.sql("DROP STREAM TABLE IDS")
    assert shop.stream_tables().count() == 0


def test_if_not_exists_changes_nothing(shop: Headrace) -> None:
    shop.sql(f"CREATE STREAM TABLE totals AS {TOTALS}")
    shop.sql("CREATE STREAM TABLE IF NOT EXISTS totals AS SELECT 1 AS x")
    assert shop.sql("SELECT * FROM totals").columns == ["customer", "total", "orders"]


def test_or_replace_changes_only_what_differs(shop: Headrace) -> None:
    shop.sql(f"CREATE STREAM TABLE totals SCHEDULE '1 minute' AS {TOTALS}")
    loads = len(shop.catalog.history())

    said = shop.sql(f"CREATE OR REPLACE STREAM TABLE totals SCHEDULE '1 minute' AS {TOTALS}").collect()[0][0]
    assert "nothing was changed" in said
    shop.sql(f"CREATE OR REPLACE STREAM TABLE totals SCHEDULE '2 minutes' AS {TOTALS}")
    assert shop.catalog.find(shop.qualify("totals")).schedule == "2 minutes"
    assert len(shop.catalog.history()) == loads, "a change of settings must not load again"

    shop.sql("CREATE OR REPLACE STREAM TABLE totals SCHEDULE '2 minutes' AS SELECT region FROM customers")
    assert rows(shop, "SELECT * FROM totals") == rows(shop, "SELECT region FROM customers")
    assert holds(shop, "totals")


REFUSED = [
    ("CREATE STREAM TABLE s AS SELEC 1", "syntax_error"),
    ("CREATE STREAM TABLE s AS SELECT id FROM nowhere", "unknown_table"),
    ("CREATE STREAM TABLE s AS SELECT nothing FROM orders", "unknown_column"),
    ("CREATE STREAM TABLE s AS SELECT id FROM orders, customers", "ambiguous_column"),
    ("CREATE STREAM TABLE s AS SELECT nofunction(id) AS x FROM orders", "unknown_function"),
    ("CREATE STREAM TABLE s AS SELECT id, COUNT(*) FROM orders GROUP BY id", "unnamed_column"),
    ("CREATE STREAM TABLE s AS SELECT id, customer AS ID FROM orders", "duplicate_column"),
    ("CREATE STREAM TABLE s AS SELECT NULL AS x, id FROM orders", "unsupported_type"),
    (
        "CREATE STREAM TABLE s AS SELECT ARRAY(name COLLATE UTF8_LCASE) AS x FROM customers",
        "unsupported_type",
    ),
    ("CREATE STREAM TABLE s AS SELECT id FROM s", "unknown_table"),
    ("CREATE STREAM TABLE s SCHEDULE '1 second' AS SELECT id FROM orders", "schedule_too_short"),
    ("CREATE STREAM TABLE s SCHEDULE 'sometimes' AS SELECT id FROM orders", "invalid_schedule"),
    ("CREATE STREAM TABLE s CLUSTER BY (nope) AS SELECT id FROM orders", "unknown_column"),
    ("CREATE STREAM TABLE nowhere.s AS SELECT id FROM orders", "unknown_schema"),
    ("CREATE STREAM TABLE orders AS SELECT id FROM orders", "name_taken"),
    ("CREATE STREAM TABLE `a b` AS SELECT id FROM orders", "invalid_name"),
    ("CREATE STREAM TABLE `naïve` AS SELECT id FROM orders", "invalid_name"),
    ("CREATE STREAM TABLE `x; DROP TABLE orders` AS SELECT id FROM orders", "invalid_name"),
    ("CREATE STREAM TABLE `a.b` AS SELECT id FROM orders", "invalid_name"),
    ("CREATE STREAM TABLE s REFRESH MODE DIFFERENTIAL AS SELECT id, rand() AS r FROM orders", None),
    ("CREATE STREAM TABLE s AS SELECT 1/0 AS x FROM orders", "refresh_failed"),
]


@pytest.mark.parametrize(("statement", "code"), REFUSED, ids=[code or "refusal" for _, code in REFUSED])
def test_refused_with_a_code_and_a_hint_and_nothing_written(
    standing_shop: Headrace, statement: str, code: str | None
) -> None:
    before = rows(standing_shop, "SHOW TABLES")
    with pytest.raises(HeadraceError) as refusal:
        standing_shop.sql(statement)

    assert code is None or refusal.value.code == code, str(refusal.value)
    assert refusal.value.hint
    assert standing_shop.stream_tables().count() == 0
    assert rows(standing_shop, "SHOW TABLES") == before
    assert standing_shop.sql("SELECT * FROM orders").count() == 5


def test_errors_name_their_place_in_the_whole_statement(shop: Headrace) -> None:
    with pytest.raises(HeadraceError) as refusal:
        shop.sql("CREATE STREAM TABLE s\n  AS SELECT id,\n         missing FROM orders")
    assert str(refusal.value.position) == "line 3, column 10"
    with pytest.raises(HeadraceError) as refusal:
        shop.sql("CREATE STREAM TABLE s AS SELECT id FROM ordrs")
    assert str(refusal.value.position) == "line 1, column 41"


def test_cycles_are_refused_with_the_path(shop: Headrace) -> None:
    shop.sql("CREATE STREAM TABLE one AS SELECT id FROM orders")
    shop.sql("CREATE STREAM TABLE two AS SELECT id FROM one")
    with pytest.raises(HeadraceError, match=r"default\.two.*default\.one") as refusal:
        shop.sql("ALTER STREAM TABLE one AS SELECT id FROM two")
    assert refusal.value.code == "cycle"
    with pytest.raises(HeadraceError) as refusal:
        shop.sql("ALTER STREAM TABLE one AS SELECT id FROM one")
    assert refusal.value.code == "cycle"


def test_sources_must_be_delta(shop: Headrace) -> None:
    shop.sql("CREATE TABLE plain (id INT) USING parquet")
    with pytest.raises(HeadraceError, match="parquet") as refusal:
        shop.sql("CREATE STREAM TABLE s AS SELECT id FROM plain")
    assert refusal.value.code == "unsupported_source"


def test_columns_with_odd_names(shop: Headrace) -> None:
    shop.sql("CREATE STREAM TABLE odd AS SELECT id AS `the id, (n)`, amount AS `naïve` FROM orders")
    assert shop.sql("SELECT * FROM odd").columns == ["the id, (n)", "naïve"]
    shop.sql("INSERT INTO orders VALUES (70, 1, 3)")
    assert shop.refresh_stream_table("odd").action == "DIFFERENTIAL"
    assert holds(shop, "odd")
    assert (70, 3) in rows(shop, "SELECT * FROM odd")


def test_python_call_matches_the_statement(shop: Headrace) -> None:
    shop.create_stream_table("totals", TOTALS, schedule="5 minutes", comment="c", cluster_by=["customer"])
    table = shop.catalog.find(shop.qualify("totals"))
    assert (table.schedule, table.comment, table.cluster_by) == ("5 minutes", "c", ("customer",))
    assert holds(shop, "totals")
    with pytest.raises(HeadraceError) as refusal:
        shop.create_stream_table("totals", TOTALS)
    assert refusal.value.code == "name_taken"


def test_a_variant_in_the_output_is_recomputed(lake: Headrace) -> None:
    lake.sql("CREATE TABLE t (id INT, v VARIANT) USING delta")
    lake.sql("INSERT INTO t SELECT 1, parse_json('{\"a\": 1}')")
    with pytest.raises(HeadraceError) as refused:
        lake.sql("CREATE STREAM TABLE st REFRESH MODE DIFFERENTIAL AS SELECT id, v FROM t")
    assert refused.value.code == "ungroupable_type"
    lake.sql("CREATE STREAM TABLE st AS SELECT id, v FROM t")
    lake.sql("INSERT INTO t SELECT 2, parse_json('[2]')")
    result = refreshed(lake, "st")
    assert (result.action, result.rows_inserted) == ("FULL", 2)
    assert "VARIANT" in result.reason


PICKED = (
    "SELECT n COLLATE UTF8_BINARY AS n, c FROM (SELECT {0} AS n, COUNT(*) AS c FROM customers GROUP BY {0})"
)


def test_a_value_picked_among_equal_ones_is_recomputed(shop: Headrace) -> None:
    query = PICKED.format("name COLLATE UTF8_LCASE")
    with pytest.raises(HeadraceError) as refused:
        shop.sql(f"CREATE STREAM TABLE st REFRESH MODE DIFFERENTIAL AS {query}")
    assert refused.value.code == "ungroupable_type"
    shop.sql(f"CREATE STREAM TABLE st AS {query}")
    shop.sql("UPDATE customers SET name = 'ADA' WHERE id = 1")
    result = refreshed(shop, "st")
    assert (result.action, "GROUP BY" in result.reason) == ("FULL", True)
    assert ("ADA", 1) in rows(shop, "SELECT * FROM st")


def test_a_collated_column_of_a_source_is_recomputed(lake: Headrace) -> None:
    # Delta makes such a table only for who insists.
    lake.spark.conf.set("spark.databricks.delta.schema.typeCheck.enabled", "false")
    lake.sql("CREATE TABLE t (id INT, name STRING COLLATE UTF8_LCASE) USING delta")
    lake.sql("INSERT INTO t VALUES (1, 'Ada'), (2, 'ADA'), (2, 'ADA'), (3, NULL)")
    lake.sql("CREATE VIEW v AS SELECT id, name AS n FROM t")
    query = "SELECT id, CAST(n AS STRING) AS n FROM v"
    with pytest.raises(HeadraceError) as refused:
        lake.sql(f"CREATE STREAM TABLE st REFRESH MODE DIFFERENTIAL AS {query}")
    assert (refused.value.code, "default.t.name" in refused.value.message) == ("ungroupable_type", True)
    lake.sql(f"CREATE STREAM TABLE st AS {query}")
    lake.sql("CREATE STREAM TABLE ids REFRESH MODE DIFFERENTIAL AS SELECT id FROM t")
    lake.sql("UPDATE t SET name = 'ADA' WHERE id = 1")
    result = refreshed(lake, "st")
    assert (result.action, "default.t.name" in result.reason) == ("FULL", True)
    assert rows(lake, "SELECT * FROM st") == [(1, "ADA"), (2, "ADA"), (2, "ADA"), (3, None)]
    lake.sql("DELETE FROM t WHERE id = 3")
    assert refreshed(lake, "ids").action == "DIFFERENTIAL"
    assert rows(lake, "SELECT * FROM ids") == [(1,), (2,), (2,)]


@pytest.mark.parametrize(
    ("query", "what"),
    [
        ("SELECT id FROM IDENTIFIER('orders')", "default.orders in a way that cannot be followed"),
        (
            "SELECT id FROM customers WHERE id IN (SELECT id FROM IDENTIFIER('default.orders'))",
            "default.orders",
        ),
        ("WITH c AS (TABLE orders) SELECT id FROM c", "default.orders"),
        ("SELECT id, most() AS m FROM customers", "default.orders"),
        ("SELECT id, q FROM customers, LATERAL of_customer(id)", "default.orders"),
        ("SELECT id FROM shown", "shown is a temporary view"),
        ("SELECT id FROM orders WHERE id > least_id", "least_id is a session variable"),
        ("SELECT id FROM orders WHERE TIMESTAMP '2020-01-01' < 'now'", "'now' is read as the moment"),
    ],
)
def test_what_is_read_without_being_named_as_a_table_is_refused(
    shop: Headrace, query: str, what: str
) -> None:
    shop.spark.sql("CREATE FUNCTION most() RETURNS INT RETURN (SELECT MAX(id) FROM orders)")
    shop.spark.sql(
        "CREATE FUNCTION of_customer(c INT) RETURNS TABLE (q INT) "
        "RETURN SELECT id AS q FROM orders WHERE customer = c"
    )
    shop.spark.sql("CREATE OR REPLACE TEMP VIEW shown AS SELECT 1 AS id")
    shop.sql("CREATE TABLE shown (id INT) USING delta")
    shop.spark.sql("DECLARE OR REPLACE VARIABLE least_id INT DEFAULT 2")
    try:
        for mode in ("FULL", "AUTO"):
            with pytest.raises(HeadraceError, match=re.escape(what)) as caught:
                shop.create_stream_table("hidden", query, refresh_mode=mode)
            assert caught.value.code == "unsupported_source"
            assert caught.value.hint
        assert not shop.catalog.all()
    finally:
        shop.spark.sql("DROP FUNCTION most")
        shop.spark.sql("DROP FUNCTION of_customer")
        shop.spark.sql("DROP VIEW shown")
        shop.spark.sql("DROP TEMPORARY VARIABLE least_id")


def test_another_mode_is_given_whatever_names_mean_by_now(shop: Headrace) -> None:
    shop.create_stream_table("ids", "SELECT id FROM orders")
    shop.spark.sql("CREATE OR REPLACE TEMP VIEW orders AS SELECT 1 AS id")
    try:
        shop.sql("ALTER STREAM TABLE ids SET REFRESH MODE FULL")
        shop.sql("INSERT INTO default.orders VALUES (50, 1, 1)")
        assert refreshed(shop, "ids").action == "FULL"
        assert (50,) in rows(shop, "SELECT * FROM ids")
        with pytest.raises(HeadraceError, match="orders is a temporary view"):
            shop.sql("ALTER STREAM TABLE ids AS SELECT id FROM orders")
    finally:
        shop.spark.sql("DROP VIEW orders")


def test_moments_written_as_texts_depend_on_time(shop: Headrace) -> None:
    for number, text in enumerate(("DATE 'today'", "CAST('now' AS TIMESTAMP)", "to_date('tomorrow')")):
        shop.create_stream_table(f"t{number}", f"SELECT id, {text} AS d FROM orders")
        assert shop.refresh_stream_table(f"t{number}").action == "FULL", "the clock moves without a change"
        with pytest.raises(HeadraceError) as caught:
            shop.create_stream_table("d", f"SELECT id, {text} AS d FROM orders", refresh_mode="DIFFERENTIAL")
        assert caught.value.code == "time_function"


@pytest.mark.parametrize(
    ("setting", "value"),
    [("spark.sql.session.timeZone", "America/New_York"), ("spark.sql.ansi.enabled", "false")],
)
def test_a_view_of_other_settings_is_refused_until_it_is_made_anew(
    shop: Headrace, setting: str, value: str
) -> None:
    shop.sql("CREATE TABLE calls (id INT, at TIMESTAMP) USING delta")
    shop.sql("INSERT INTO calls VALUES (1, TIMESTAMP '2024-01-01 00:30:00')")
    usual = shop.spark.conf.get(setting)
    view = "CREATE OR REPLACE VIEW hours AS SELECT id, hour(at) AS h FROM calls"
    shop.spark.conf.set(setting, value)
    try:
        shop.sql(view)
        shop.sql("CREATE OR REPLACE VIEW ids AS SELECT id FROM calls WHERE id > 0L")
    finally:
        shop.spark.conf.set(setting, usual)
    if setting.endswith("timeZone"):
        shop.create_stream_table("positive", "SELECT id FROM ids")
    with pytest.raises(HeadraceError, match=f"was made under {setting} = {value}") as caught:
        shop.create_stream_table("by_hour", "SELECT h, COUNT(*) AS n FROM hours GROUP BY h")
    assert caught.value.code == "unsupported_source"
    shop.sql(view)
    shop.create_stream_table("by_hour", "SELECT h, COUNT(*) AS n FROM hours GROUP BY h")
    shop.sql("INSERT INTO calls VALUES (2, TIMESTAMP '2024-01-01 05:30:00')")
    assert refreshed(shop, "by_hour").action == "DIFFERENTIAL"
    assert rows(shop, "SELECT * FROM by_hour") == rows(shop, "SELECT h, COUNT(*) FROM hours GROUP BY h")
