"""Nobody but Headrace writes to a stream table."""

from __future__ import annotations

import shutil
from datetime import timedelta
from typing import Any

import pytest

from headrace import Headrace, HeadraceError
from headrace.refresh import recompute
from headrace.sources.log import Commit
from headrace.storage.apply import run
from headrace.storage.apply.choose import Choice, Path
from headrace.storage.apply.spark import append_by_spark, merge_by_spark
from tests.conftest import refreshed, rows

TOTALS = "SELECT customer, SUM(amount) AS total FROM orders GROUP BY customer"


@pytest.fixture
def totals(shop: Headrace) -> Headrace:
    shop.sql(f"CREATE STREAM TABLE totals AS {TOTALS}")
    return shop


WRITES = [
    "INSERT INTO totals VALUES (1, 2)",
    "INSERT OVERWRITE TABLE default.totals SELECT 1, 2",
    "WITH x AS (SELECT 1 AS a, 2 AS b) INSERT INTO totals SELECT * FROM x",
    "/* quietly */ UPDATE `Totals` SET total = 0",
    "DELETE FROM spark_catalog.default.totals",
    "MERGE INTO totals t USING orders o ON t.customer = o.customer WHEN MATCHED THEN DELETE",
    "TRUNCATE TABLE totals",
    "ALTER TABLE totals ADD COLUMN x INT",
    "DROP TABLE totals",
    "DROP TABLE IF EXISTS totals",
    "CREATE OR REPLACE TABLE totals (x INT) USING delta",
]


@pytest.mark.parametrize("statement", WRITES)
def test_writes_are_refused_with_the_statement_to_use(totals: Headrace, statement: str) -> None:
    before = rows(totals, "SELECT * FROM totals")
    with pytest.raises(HeadraceError, match=r"default\.totals") as refusal:
        totals.sql(statement)
    assert refusal.value.code == "stream_table_is_read_only"
    assert "STREAM TABLE" in refusal.value.hint
    assert rows(totals, "SELECT * FROM totals") == before


def test_writes_by_path_and_to_the_whole_schema_are_refused(totals: Headrace) -> None:
    location = totals.catalog.find(totals.qualify("totals")).location
    for statement in (f"DELETE FROM delta.`{location}`", "DROP SCHEMA default CASCADE"):
        with pytest.raises(HeadraceError) as refusal:
            totals.sql(statement)
        assert refusal.value.code == "stream_table_is_read_only"


def test_writes_through_temporary_views_are_refused(totals: Headrace) -> None:
    totals.sql("CREATE TEMP VIEW seen AS SELECT * FROM totals")
    totals.sql("CREATE GLOBAL TEMP VIEW seen_by_all AS SELECT * FROM totals")
    totals.spark.table("totals").createOrReplaceTempView("framed")
    totals.sql("DECLARE OR REPLACE statement = 'DELETE FROM seen'")
    for statement in (
        "UPDATE seen SET total = 0",
        "DELETE FROM global_temp.seen_by_all",
        "MERGE INTO framed f USING orders o ON f.customer = o.customer WHEN MATCHED THEN DELETE",
        "EXECUTE IMMEDIATE statement",
    ):
        with pytest.raises(HeadraceError, match=r"may not touch default\.totals") as refusal:
            totals.sql(statement)
        assert refusal.value.code == "stream_table_is_read_only"
    totals.sql("CREATE TEMP VIEW given AS SELECT * FROM orders")
    totals.sql("DELETE FROM given WHERE id = 3")
    assert refreshed(totals, "totals").action == "DIFFERENTIAL"
    assert [row[0] for row in rows(totals, "SELECT customer FROM totals")] == [1, None]


def test_reading_and_maintaining_are_allowed(totals: Headrace) -> None:
    totals.sql("CREATE TABLE copy USING delta AS SELECT * FROM totals")
    totals.sql("OPTIMIZE totals")
    assert refreshed(totals, "totals").action == "NO_DATA"


def test_a_foreign_commit_reinitializes_with_an_alert(totals: Headrace) -> None:
    totals.spark.sql("INSERT INTO totals VALUES (99, 99)")
    assert not totals.verify("totals").extra, "the version we wrote is still right"
    result = refreshed(totals, "totals")

    assert result.action == "REINITIALIZE"
    assert "somebody else" in result.reason
    assert rows(totals, "SELECT * FROM totals") == rows(totals, TOTALS)
    assert "reinitialize_needed" in {row.kind for row in totals.alerts().collect()}
    assert refreshed(totals, "totals").action == "NO_DATA"


def test_an_append_beside_spark_s_own_is_found(totals: Headrace, monkeypatch: pytest.MonkeyPatch) -> None:
    """The version before our commit is not the one that we looked at."""
    totals._refresher.use(totals.settings.model_copy(update={"apply": "spark"}))

    def beside(*given: Any) -> Commit:
        totals.spark.sql("INSERT INTO totals VALUES (99, 99)")
        return append_by_spark(*given)

    monkeypatch.setattr(run, "_BY_SPARK", {**run._BY_SPARK, Path.SPARK_APPEND: beside})
    totals.sql("INSERT INTO orders VALUES (9, 9, 9)")
    with pytest.raises(HeadraceError) as failure:
        totals.refresh_stream_table("totals")
    assert failure.value.code == "storage_written_by_others"
    monkeypatch.undo()
    assert refreshed(totals, "totals").action == "REINITIALIZE"
    assert rows(totals, "SELECT * FROM totals") == rows(totals, TOTALS)
    totals.sql("INSERT INTO orders VALUES (10, 9, 9)")
    assert refreshed(totals, "totals").action == "DIFFERENTIAL"


def test_an_append_right_before_the_difference_of_a_full_refresh_is_found(
    shop: Headrace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only a commit that replaces all rows takes away what came just before it."""
    shop.create_stream_table("whole", "SELECT id, amount FROM orders", refresh_mode="FULL")
    shop.create_stream_table("few", "SELECT id FROM whole WHERE amount > 5")
    shop._refresher.use(shop.settings.model_copy(update={"apply": "spark"}))
    monkeypatch.setattr(recompute, "_TIMES", 0)

    def beside(*given: Any) -> Commit:
        shop.spark.sql("INSERT INTO whole VALUES (99, 99)")
        return merge_by_spark(*given)

    monkeypatch.setattr(run, "_BY_SPARK", {**run._BY_SPARK, Path.SPARK_MERGE: beside})
    monkeypatch.setattr(run, "choose_path", lambda *_, **__: Choice(Path.SPARK_MERGE, "for the test"))
    shop.sql("UPDATE orders SET amount = amount + 1 WHERE id = 1")
    with pytest.raises(HeadraceError) as failure:
        shop.refresh_stream_table("whole")
    assert failure.value.code == "storage_written_by_others"
    monkeypatch.undo()
    assert shop.spark.sql("SELECT * FROM whole WHERE id = 99").count() == 1
    assert refreshed(shop, "whole").action == "REINITIALIZE"
    assert rows(shop, "SELECT * FROM whole") == rows(shop, "SELECT id, amount FROM orders")
    assert refreshed(shop, "few").action == "DIFFERENTIAL"


@pytest.mark.parametrize("way", ["drop", "files"])
def test_storage_gone_ends_in_error_with_a_way_out(totals: Headrace, way: str) -> None:
    if way == "drop":
        totals.spark.sql("DROP TABLE totals")
    else:
        shutil.rmtree(totals.catalog.find(totals.qualify("totals")).location)
    with pytest.raises(HeadraceError, match="is gone") as failure:
        totals.refresh_stream_table("totals")
    assert failure.value.code == "storage_missing"
    assert totals.catalog.find(totals.qualify("totals")).status == "ERROR"

    result = refreshed(totals, "totals", full=True)
    assert result.action == "FULL"
    assert totals.catalog.find(totals.qualify("totals")).status == "ACTIVE"
    assert rows(totals, "SELECT * FROM totals") == rows(totals, TOTALS)


def test_a_table_whose_storage_is_gone_can_be_dropped(totals: Headrace) -> None:
    totals.spark.sql("DROP TABLE totals")
    totals.sql("DROP STREAM TABLE totals")
    assert totals.stream_tables().count() == 0


def test_a_source_that_is_gone_ends_in_error_and_comes_back(totals: Headrace) -> None:
    totals.sql("ALTER TABLE orders RENAME TO hidden")
    with pytest.raises(HeadraceError, match=r"default\.orders") as failure:
        totals.refresh_stream_table("totals")
    assert failure.value.code == "source_missing"
    assert totals.catalog.find(totals.qualify("totals")).status == "ERROR"

    totals.sql("ALTER TABLE hidden RENAME TO orders")
    totals.sql("INSERT INTO orders VALUES (5, 3, 30)")
    assert refreshed(totals, "totals").action == "DIFFERENTIAL"
    assert (3, 30) in rows(totals, "SELECT * FROM totals")
    assert totals.catalog.find(totals.qualify("totals")).status == "ACTIVE"


def test_a_target_that_is_an_expression_is_evaluated(shop: Headrace) -> None:
    shop.sql("CREATE STREAM TABLE st AS SELECT id FROM orders")
    shop.sql("DECLARE target = 'st'")
    with pytest.raises(HeadraceError) as refused:
        shop.sql("DELETE FROM IDENTIFIER(target)")
    assert refused.value.code == "stream_table_is_read_only"
    shop.sql("DECLARE statement = 'DELETE FROM st'")
    for text in ("EXECUTE IMMEDIATE statement", "EXECUTE IMMEDIATE 'DELETE FROM ' || target"):
        with pytest.raises(HeadraceError) as refused:
            shop.sql(text)
        assert refused.value.code == "stream_table_is_read_only"
    shop.sql("SET VAR target = 'orders'")
    shop.sql("INSERT INTO IDENTIFIER(target || '') VALUES (8, 8, 8)")
    assert (8,) in rows(shop, "SELECT id FROM orders")


def test_a_table_under_refresh_is_not_dropped(shop: Headrace) -> None:
    shop.sql("CREATE STREAM TABLE st AS SELECT id FROM orders")
    name = shop.qualify("st")
    with shop.catalog.lease(name, owner="another refresher", ttl=timedelta(minutes=1)):
        for statement in ("DROP STREAM TABLE st", "ALTER STREAM TABLE st RENAME TO other"):
            with pytest.raises(HeadraceError, match="another refresher") as refused:
                shop.sql(statement)
            assert refused.value.code == "refresh_running"
    assert refreshed(shop, "st").action == "NO_DATA"
    shop.sql("DROP STREAM TABLE st")
