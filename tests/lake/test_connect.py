"""Connecting: folders that cannot be used, catalogs that cannot be read, sessions of the user's own."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import headrace
from headrace import Headrace, HeadraceError
from headrace.runtime.lake import Lake
from headrace.runtime.session import DELTA_CATALOG, DELTA_EXTENSION
from tests.conftest import SMALL, refreshed, rows
from tests.postgres import PostgresServer, postgres_server

__all__ = ["postgres_server"]  # a fixture, used by its name


def test_a_warehouse_that_cannot_be_written() -> None:
    with pytest.raises(HeadraceError, match="/proc/lake") as refusal:
        headrace.connect(warehouse="/proc/lake")
    assert refusal.value.code == "warehouse_not_writable"
    assert refusal.value.hint


def test_a_corrupt_catalog_is_refused_and_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "lake" / "_headrace" / "catalog.sqlite"
    file.parent.mkdir(parents=True)
    file.write_bytes(b"not a database at all" * 100)
    with pytest.raises(HeadraceError) as refusal:
        headrace.connect(warehouse=tmp_path / "lake")
    assert refusal.value.code in {"catalog_corrupt", "catalog_foreign"}
    assert file.read_bytes() == b"not a database at all" * 100


def test_an_unknown_setting_suggests_the_right_one(tmp_path: Path) -> None:
    with pytest.raises(HeadraceError, match="warehouse"):
        headrace.connect(warehous=tmp_path)


def test_a_closed_connection_says_so(lake: Headrace) -> None:
    lake.close()
    with pytest.raises(HeadraceError) as refusal:
        lake.sql("SELECT 1")
    assert refusal.value.code == "connection_closed"


def test_the_user_s_own_session_with_a_postgresql_catalog(
    shop: Headrace, postgres_server: PostgresServer
) -> None:
    url = postgres_server.create_database()
    with headrace.connect(spark=shop.spark, catalog_url=url) as hr:
        hr.sql("CREATE STREAM TABLE named AS SELECT id, name FROM customers WHERE name IS NOT NULL")
        hr.sql("INSERT INTO customers VALUES (4, 'Di', 'east')")
        assert refreshed(hr, "named").action == "DIFFERENTIAL"
        assert rows(hr, "SELECT name FROM named") == [("Ada",), ("Bo",), ("Di",)]
        assert [row["name"] for row in hr.stream_tables().collect()] == ["default.named"]
    with headrace.connect(spark=shop.spark, catalog_url=url) as again:
        assert refreshed(again, "named").action == "NO_DATA"
    assert shop.stream_tables().count() == 0


def test_the_user_s_session_needs_a_catalog(lake: Headrace) -> None:
    with pytest.raises(HeadraceError) as refusal:
        headrace.connect(spark=lake.spark)
    assert refusal.value.code == "catalog_url_missing"


def test_a_session_without_delta_is_told_exactly_what_is_missing(lake: Headrace, tmp_path: Path) -> None:
    context = lake.spark.sparkContext
    options = context._jvm.java.util.HashMap()
    options.put("spark.sql.extensions", "")
    options.put("spark.sql.catalog.spark_catalog", "")
    bare = SparkSession(
        context, SparkSession._get_j_spark_session_class(context._jvm)(context._jsc.sc(), options)
    )
    with pytest.raises(HeadraceError) as refusal:
        headrace.connect(spark=bare, catalog_url=f"sqlite:///{tmp_path}/c.sqlite")
    assert refusal.value.code == "delta_not_configured"
    assert f"spark.sql.extensions={DELTA_EXTENSION}" in refusal.value.message
    assert f"spark.sql.catalog.spark_catalog={DELTA_CATALOG}" in refusal.value.message
    assert not (tmp_path / "c.sqlite").exists()


def views_of(hr: Headrace) -> set[str]:
    return {row.viewName for row in hr.sql("SHOW VIEWS").collect()}


def test_views_over_views_are_made_in_another_session(shop: Headrace) -> None:
    """By name the first reads the last."""
    shop.sql("CREATE VIEW c AS SELECT id, amount FROM orders")
    shop.sql("CREATE VIEW b AS SELECT id FROM c WHERE amount > 5")
    shop.sql("CREATE VIEW a AS SELECT id AS x FROM b")
    shop.sql("CREATE STREAM TABLE st REFRESH MODE DIFFERENTIAL AS SELECT x FROM a")
    shop.sql("INSERT INTO orders VALUES (70, 7, 70)")
    with headrace.connect(warehouse=shop.settings.warehouse_folder, spark_conf=SMALL) as other:
        assert views_of(other) == {"a", "b", "c"}
        assert refreshed(other, "st").action == "DIFFERENTIAL"
        assert (70,) in rows(other, "SELECT * FROM st")
        shop.sql("CREATE OR REPLACE VIEW c AS SELECT id + 1 AS id, amount FROM orders")
        assert rows(other, "SELECT * FROM a") == rows(shop, "SELECT * FROM a")


def test_a_view_that_cannot_be_made_stops_nobody(shop: Headrace, caplog: pytest.LogCaptureFixture) -> None:
    shop.sql("CREATE STREAM TABLE st REFRESH MODE DIFFERENTIAL AS SELECT id FROM orders")
    with headrace.connect(warehouse=shop.settings.warehouse_folder, spark_conf=SMALL) as there:
        shop.sql("CREATE TABLE base USING delta AS SELECT 1 AS id")
        shop.sql("CREATE VIEW b AS SELECT id FROM base")
        shop.sql("CREATE VIEW a AS SELECT id FROM b")
        shop.sql("CREATE VIEW fine AS SELECT id FROM orders")
        shop.sql("DROP TABLE base")
        with headrace.connect(warehouse=shop.settings.warehouse_folder, spark_conf=SMALL) as late:
            shop.sql("INSERT INTO orders VALUES (70, 7, 70)")
            for hr in (there, late):
                assert views_of(hr) == {"fine"}
                with pytest.raises(HeadraceError, match="`a`") as failure:
                    hr.sql("SELECT * FROM a")
                assert failure.value.code == "unknown_table"
            assert there.run_once(at=datetime.now(UTC) + timedelta(hours=1)).ok
            assert (70,) in rows(late, "SELECT * FROM st")
            assert caplog.text.count("view default.a cannot be made") == 2, "once in each"
            late.sql("CREATE VIEW another AS SELECT 1 AS x")
            assert {one.name.table for one in shop.catalog.relations()} == {"a", "another", "b", "fine"}
            late.sql("DROP VIEW a")
            assert {one.name.table for one in shop.catalog.relations()} == {"another", "b", "fine"}
            shop.sql("CREATE TABLE base USING delta AS SELECT 2 AS id")
            assert rows(late, "SELECT * FROM b") == rows(there, "SELECT * FROM b") == [(2,)]
            assert views_of(shop) == {"another", "b", "fine"}


def test_everything_else_passes_to_spark(lake: Headrace) -> None:
    assert lake.sql("SELECT 1 + 1 AS two").collect()[0].two == 2
    assert lake.sql("SHOW SCHEMAS").count() == 1
    assert lake.sql("VALUES (1), (2)").count() == 2


@pytest.mark.parametrize("dropped_at", ["_forget_missing", "_register_managed"])
def test_a_table_dropped_while_another_thread_looks_is_gone(
    lake: Headrace, monkeypatch: pytest.MonkeyPatch, dropped_at: str
) -> None:
    """Right after it was listed, or with its name gone and its last files still there."""
    lake.sql("CREATE TABLE doomed (id INT) USING delta")
    lake.sql("INSERT INTO doomed VALUES (1)")
    location = Path(str(lake.settings.warehouse_folder), "doomed")
    step = getattr(Lake, dropped_at)

    def dropping(self: Lake, *given: Any) -> None:
        monkeypatch.undo()
        if dropped_at == "_forget_missing":
            lake.spark.sql("DROP TABLE doomed")
            step(self, *given)
        else:
            step(self, *given)
            shutil.rmtree(location)

    monkeypatch.setattr(Lake, dropped_at, dropping)
    if dropped_at == "_register_managed":
        aside = shutil.copytree(location, location.with_name("_aside"))
        lake.spark.sql("DROP TABLE doomed")
        aside.rename(location)
    else:
        lake.sql("CREATE SCHEMA moved")
    assert rows(lake, "SELECT 1") == [(1,)]
    lake.sql("CREATE TABLE doomed (id INT, name STRING) USING delta")
    lake.sql("INSERT INTO doomed VALUES (7, 'x')")
    assert rows(lake, "SELECT * FROM doomed") == [(7, "x")]


def test_a_closed_lake_leaves_nothing_of_its_tables_in_the_jvm(tmp_path: Path) -> None:
    """A process that opens one lake after another, as these tests do, would fill its heap."""
    held = []
    for number in range(3):
        with headrace.connect(warehouse=tmp_path / f"lake{number}", spark_conf=SMALL) as hr:
            hr.sql("CREATE TABLE t (id INT) USING delta")
            hr.sql("INSERT INTO t VALUES (1)")
            assert rows(hr, "SELECT id FROM t") == [(1,)]
            jvm: Any = hr.spark._jvm
            logs = getattr(getattr(jvm.org.apache.spark.sql.delta, "DeltaLog$"), "MODULE$")
            held.append(logs.cacheSize())
    assert held[-1] > 0
    assert logs.cacheSize() == 0
