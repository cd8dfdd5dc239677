"""What befalls sources besides changes of rows: schemas, identities, lost history, views."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from shutil import copytree, rmtree
from types import ModuleType
from typing import Any

import pytest

import headrace
from headrace import Headrace, HeadraceError
from headrace.catalog import Action, SourceVersion
from headrace.catalog.database import sqlite_url
from headrace.refresh import decide, run
from tests.conftest import refreshed, rows

TOTALS = "SELECT customer, SUM(amount) AS total FROM orders GROUP BY customer"


@pytest.fixture
def totals(shop: Headrace) -> Headrace:
    shop.sql(f"CREATE STREAM TABLE totals REFRESH MODE DIFFERENTIAL AS {TOTALS}")
    return shop


@pytest.fixture
def twin(shop: Headrace) -> Iterator[Headrace]:
    """What another process would be: the same catalog and tables, and no memory of either."""
    with headrace.connect(spark=shop.spark, catalog_url=sqlite_url(shop.settings.catalog_file)) as hr:
        yield hr


def holds_its_query(hr: Headrace) -> None:
    assert rows(hr, "SELECT * FROM totals") == rows(hr, TOTALS)


def test_an_unused_column_added_is_nothing(totals: Headrace) -> None:
    totals.sql("ALTER TABLE orders ADD COLUMN note STRING")
    totals.sql("INSERT INTO orders VALUES (8, 8, 8, 'x')")
    assert refreshed(totals, "totals").action == "DIFFERENTIAL"
    holds_its_query(totals)


def test_a_used_column_dropped_is_an_error_until_it_is_back(totals: Headrace) -> None:
    totals.sql("ALTER TABLE orders SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')")
    totals.sql("ALTER TABLE orders RENAME COLUMN amount TO price")
    totals.sql("INSERT INTO orders VALUES (8, 8, 8)")
    with pytest.raises(HeadraceError, match=r"amount.*price") as failure:
        totals.refresh_stream_table("totals")
    assert failure.value.code == "schema_changed"
    assert totals.catalog.find(totals.qualify("totals")).status == "ERROR"

    totals.sql("ALTER TABLE orders RENAME COLUMN price TO amount")
    result = refreshed(totals, "totals")
    assert result.action in {"DIFFERENTIAL", "REINITIALIZE"}
    assert totals.catalog.find(totals.qualify("totals")).status == "ACTIVE"
    holds_its_query(totals)


def test_a_widened_type_reinitializes(totals: Headrace) -> None:
    totals.sql("ALTER TABLE orders SET TBLPROPERTIES ('delta.enableTypeWidening' = 'true')")
    totals.sql("ALTER TABLE orders ALTER COLUMN amount TYPE DECIMAL(14,2)")
    totals.sql("INSERT INTO orders VALUES (8, 8, 99999999999.99)")
    result = refreshed(totals, "totals")
    assert result.action == "REINITIALIZE"
    assert "decimal(14,2)" in result.reason
    assert dict(totals.catalog.find(totals.qualify("totals")).columns)["total"] == "decimal(24,2)"
    holds_its_query(totals)
    totals.sql("INSERT INTO orders VALUES (9, 9, 9)")
    assert refreshed(totals, "totals").action == "DIFFERENTIAL"
    holds_its_query(totals)


CHARS = {
    "altered": ("c CHAR(3)", "c", "ALTER TABLE padded ALTER COLUMN c TYPE STRING"),
    "longer": ("c CHAR(3)", "c", "ALTER TABLE padded ALTER COLUMN c TYPE VARCHAR(9)"),
    "overwritten": ("c CHAR(3)", "c", "SELECT id, rtrim(c) AS c FROM padded"),
    "inside": ("c STRUCT<p: CHAR(3)>", "c.p", "SELECT id, struct(rtrim(c.p) AS p) AS c FROM padded"),
}


@pytest.mark.parametrize("kind", CHARS)
def test_a_char_that_becomes_a_string_reinitializes(lake: Headrace, kind: str) -> None:
    """Both are stored as strings, and Spark pads the one when it reads it."""
    column, used, statement = CHARS[kind]
    lake.sql(f"CREATE TABLE padded (id INT, {column}) USING delta")
    value = "named_struct('p', 'a')" if kind == "inside" else "'a'"
    lake.sql(f"INSERT INTO padded SELECT 1, {value}")
    shown = f"SELECT id, concat('[', {used}, ']') AS shown FROM padded"
    lake.sql(f"CREATE STREAM TABLE st REFRESH MODE DIFFERENTIAL AS {shown}")
    assert rows(lake, "SELECT * FROM st") == [(1, "[a  ]")]
    if statement.startswith("ALTER"):
        lake.sql(statement)
    else:
        frame = lake.spark.sql(statement)
        frame.write.format("delta").mode("overwrite").option("overwriteSchema", "true").saveAsTable("padded")
    result = refreshed(lake, "st")
    assert result.action == "REINITIALIZE"
    assert "char(3)" in result.reason
    assert rows(lake, "SELECT * FROM st") == [(1, "[a]")]
    lake.sql(f"INSERT INTO padded SELECT 2, {value}")
    assert refreshed(lake, "st").action == "DIFFERENTIAL"
    assert rows(lake, "SELECT * FROM st") == [(1, "[a]"), (2, "[a]")]


def test_a_varchar_made_longer_is_nothing(lake: Headrace) -> None:
    lake.sql("CREATE TABLE texts (id INT, c VARCHAR(3)) USING delta")
    lake.sql("CREATE STREAM TABLE st REFRESH MODE DIFFERENTIAL AS SELECT id FROM texts WHERE c = 'a'")
    for number, kind in enumerate(["VARCHAR(9)", "STRING"]):
        lake.sql(f"ALTER TABLE texts ALTER COLUMN c TYPE {kind}")
        assert refreshed(lake, "st").action == "NO_DATA"
        lake.sql(f"INSERT INTO texts VALUES ({number}, 'a')")
        assert refreshed(lake, "st").action == "DIFFERENTIAL"
    assert rows(lake, "SELECT * FROM st") == [(0,), (1,)]


def test_a_log_that_no_longer_tells_the_old_columns_reinitializes(totals: Headrace) -> None:
    """All later commits are there, and whether a column is still the same one cannot be told."""
    totals.sql("ALTER TABLE orders SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')")
    assert refreshed(totals, "totals").action == "NO_DATA"
    (location,) = totals.sql("DESCRIBE DETAIL orders").select("location").first()
    log = Path(location.removeprefix("file:"), "_delta_log")
    read = len(list(log.glob("*.json"))) - 1
    totals.sql("ALTER TABLE orders DROP COLUMN amount")
    totals.sql("ALTER TABLE orders ADD COLUMN amount DECIMAL(10,2)")
    totals.sql("ALTER TABLE orders SET TBLPROPERTIES ('delta.checkpointInterval' = '1')")
    totals.sql("INSERT INTO orders (id, customer, amount) VALUES (8, 1, 8)")
    for version in range(read + 1):
        (log / f"{version:020d}.json").unlink()
    result = refreshed(totals, "totals")
    assert result.action == "REINITIALIZE"
    assert f"version {read} is no longer in its log" in result.reason
    assert "reinitialize_needed" in {row.kind for row in totals.alerts().collect()}
    holds_its_query(totals)
    totals.sql("INSERT INTO orders (id, customer, amount) VALUES (9, 1, 8)")
    assert refreshed(totals, "totals").action == "DIFFERENTIAL"
    holds_its_query(totals)


def test_a_column_renamed_without_a_write_is_told_at_once(totals: Headrace) -> None:
    totals.sql("ALTER TABLE orders SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')")
    assert refreshed(totals, "totals").action == "NO_DATA"
    totals.sql("ALTER TABLE orders RENAME COLUMN amount TO price")
    with pytest.raises(HeadraceError, match=r"amount.*price") as failure:
        totals.refresh_stream_table("totals")
    assert failure.value.code == "schema_changed"
    totals.sql("ALTER TABLE orders RENAME COLUMN price TO amount")
    assert refreshed(totals, "totals").action == "NO_DATA"
    assert totals.catalog.find(totals.qualify("totals")).status == "ACTIVE"
    totals.sql("INSERT INTO orders VALUES (8, 8, 8)")
    assert refreshed(totals, "totals").action == "DIFFERENTIAL"
    holds_its_query(totals)


def test_a_column_dropped_and_added_again_without_a_write_reinitializes(totals: Headrace) -> None:
    """Its values are gone, though its name and type are what they were."""
    totals.sql("ALTER TABLE orders SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')")
    totals.sql("ALTER TABLE orders DROP COLUMN amount")
    with pytest.raises(HeadraceError, match="amount") as failure:
        totals.refresh_stream_table("totals")
    assert failure.value.code == "schema_changed"
    totals.sql("ALTER TABLE orders ADD COLUMN amount DECIMAL(10,2)")
    assert refreshed(totals, "totals").action == "REINITIALIZE"
    assert {row[1] for row in rows(totals, "SELECT * FROM totals")} == {None}
    holds_its_query(totals)
    totals.sql("INSERT INTO orders (id, customer, amount) VALUES (8, 1, 8)")
    assert refreshed(totals, "totals").action == "DIFFERENTIAL"
    holds_its_query(totals)


def test_a_field_dropped_and_added_again_reinitializes(lake: Headrace) -> None:
    """Inside a column too the values are gone, though the type is what it was."""
    lake.sql(
        "CREATE TABLE deep (id INT, s STRUCT<a: INT, b: INT>, l ARRAY<STRUCT<a: INT, b: INT>>) USING delta "
        "TBLPROPERTIES ('delta.columnMapping.mode' = 'name')"
    )
    lake.sql("INSERT INTO deep SELECT 1, struct(1 AS a, 2 AS b), array(struct(3 AS a, 4 AS b))")
    lake.sql("CREATE STREAM TABLE flat REFRESH MODE DIFFERENTIAL AS SELECT id, s.b, l[0].b AS c FROM deep")
    for column, values in (("s.b", (1, None, 4)), ("l.element.b", (1, None, None))):
        lake.sql(f"ALTER TABLE deep DROP COLUMN {column}")
        lake.sql(f"ALTER TABLE deep ADD COLUMN {column} INT")
        result = refreshed(lake, "flat")
        assert result.action == "REINITIALIZE"
        assert f"a field of column {column[0]} was dropped" in result.reason
        assert rows(lake, "SELECT * FROM flat") == [values]
    lake.sql("INSERT INTO deep SELECT 2, struct(1 AS a, 2 AS b), array(struct(3 AS a, 4 AS b))")
    assert refreshed(lake, "flat").action == "DIFFERENTIAL"
    assert rows(lake, "SELECT * FROM flat") == [(1, None, None), (2, 2, 4)]


@pytest.mark.parametrize("by", [("customer",), ("customer", "id"), ()], ids=["other", "more", "none"])
def test_a_source_partitioned_anew_reinitializes(totals: Headrace, by: tuple[str, ...]) -> None:
    """Old files hold a column that new ones have in their paths only, or the other way round."""
    totals.sql("CREATE TABLE parted USING delta PARTITIONED BY (id) AS SELECT * FROM orders")
    totals.sql(
        "CREATE STREAM TABLE st REFRESH MODE DIFFERENTIAL AS "
        "SELECT id, customer, COUNT(*) AS n FROM parted GROUP BY id, customer"
    )
    before = rows(totals, "SELECT * FROM st")
    frame = totals.spark.sql("SELECT id + 1 AS id, customer, amount FROM orders")
    frame.write.format("delta").mode("overwrite").option("overwriteSchema", "true").partitionBy(
        *by
    ).saveAsTable("parted")
    result = refreshed(totals, "st")
    assert result.action == "REINITIALIZE"
    assert "partitioned by other columns" in result.reason
    assert rows(totals, "SELECT * FROM st") != before
    totals.sql("INSERT INTO parted VALUES (9, 9, 9)")
    assert refreshed(totals, "st").action == "DIFFERENTIAL"
    assert (9, 9, 1) in rows(totals, "SELECT * FROM st")


def test_a_type_widened_without_a_write_is_followed_by_sums_of_the_new_type(totals: Headrace) -> None:
    totals.sql("ALTER TABLE orders SET TBLPROPERTIES ('delta.enableTypeWidening' = 'true')")
    totals.sql("INSERT INTO orders VALUES (8, 1, 0.25)")
    assert refreshed(totals, "totals").action == "DIFFERENTIAL"
    totals.sql("ALTER TABLE orders ALTER COLUMN amount TYPE DECIMAL(14,4)")
    assert refreshed(totals, "totals").action == "REINITIALIZE"
    holds_its_query(totals)
    before = rows(totals, "SELECT * FROM totals")
    totals.sql("INSERT INTO orders VALUES (9, 1, 0.1234)")
    assert refreshed(totals, "totals").action == "DIFFERENTIAL"
    assert rows(totals, "SELECT * FROM totals") != before
    holds_its_query(totals)


def test_a_type_widened_is_followed_by_those_who_saw_the_old_one(totals: Headrace, twin: Headrace) -> None:
    totals.sql("ALTER TABLE orders SET TBLPROPERTIES ('delta.enableTypeWidening' = 'true')")
    totals.sql("INSERT INTO orders VALUES (8, 1, 0.25)")
    assert refreshed(twin, "totals").action == "DIFFERENTIAL"
    totals.sql("ALTER TABLE orders ALTER COLUMN amount TYPE DECIMAL(14,4)")
    assert refreshed(totals, "totals").action == "REINITIALIZE"
    before = rows(totals, "SELECT * FROM totals")
    totals.sql("INSERT INTO orders VALUES (9, 1, 0.1234)")
    assert refreshed(twin, "totals").action == "DIFFERENTIAL"
    assert rows(totals, "SELECT * FROM totals") != before
    holds_its_query(totals)


def test_a_star_means_the_columns_there_were(shop: Headrace, twin: Headrace) -> None:
    shop.sql("CREATE STREAM TABLE st REFRESH MODE DIFFERENTIAL AS SELECT * FROM orders WHERE amount > 1")
    shop.sql("ALTER TABLE orders ADD COLUMN note STRING")
    for number, hr in enumerate([shop, twin], start=8):
        hr.sql(f"INSERT INTO orders VALUES ({number}, 8, 8, 'x')")
        result = refreshed(hr, "st")
        assert (result.action, result.rows_inserted) == ("DIFFERENTIAL", 1)
        assert rows(hr, "SELECT * FROM st") == rows(
            hr, "SELECT id, customer, amount FROM orders WHERE amount > 1"
        )
    assert not any(hr.verify("st").missing for hr in (shop, twin))


def test_a_column_that_a_star_means_is_missed(shop: Headrace, twin: Headrace) -> None:
    shop.sql("CREATE STREAM TABLE st REFRESH MODE DIFFERENTIAL AS SELECT * FROM orders")
    shop.sql("ALTER TABLE orders SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')")
    shop.sql("ALTER TABLE orders DROP COLUMN customer")
    for hr in (shop, twin):
        with pytest.raises(HeadraceError, match="column customer is gone") as failure:
            hr.refresh_stream_table("st")
        assert failure.value.code == "schema_changed"
        assert hr.catalog.find(hr.qualify("st")).status == "ERROR"


def test_a_source_made_anew_reinitializes(totals: Headrace) -> None:
    totals.sql("DROP TABLE orders")
    totals.sql("CREATE TABLE orders (id INT, customer INT, amount DECIMAL(10,2)) USING delta")
    totals.sql("INSERT INTO orders VALUES (1, 1, 1)")
    result = refreshed(totals, "totals")
    assert result.action == "REINITIALIZE"
    assert "anew" in result.reason
    assert rows(totals, "SELECT * FROM totals") == rows(totals, TOTALS) != []


def test_a_restored_source_is_followed_by_its_difference(totals: Headrace) -> None:
    totals.sql("INSERT INTO orders VALUES (8, 8, 8)")
    assert refreshed(totals, "totals").action == "DIFFERENTIAL"
    totals.sql("RESTORE TABLE orders TO VERSION AS OF 1")
    assert refreshed(totals, "totals").action == "DIFFERENTIAL"
    holds_its_query(totals)


def test_an_overwritten_source_is_followed_by_its_difference(totals: Headrace) -> None:
    totals.sql("INSERT OVERWRITE orders VALUES (1, 1, 10.50), (50, 50, 50)")
    result = refreshed(totals, "totals")
    assert result.action == "DIFFERENTIAL"
    holds_its_query(totals)


def test_vacuumed_history_reinitializes_with_an_alert(totals: Headrace) -> None:
    totals.sql("DELETE FROM orders WHERE id = 1")
    totals.spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    totals.sql("VACUUM orders RETAIN 0 HOURS")
    result = refreshed(totals, "totals")
    assert result.action == "REINITIALIZE"
    assert "vacuumed" in result.reason
    assert "reinitialize_needed" in {row.kind for row in totals.alerts().collect()}
    holds_its_query(totals)


@pytest.mark.parametrize(("step", "moment"), [(decide, "why_reinitialize"), (run, "read_source_changes")])
def test_history_vacuumed_during_a_refresh_reinitializes_with_an_alert(
    totals: Headrace, step: ModuleType, moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the look at the history and before the estimate, or before the changes are read."""
    totals.sql("DELETE FROM orders WHERE id = 1")
    totals.spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    known = getattr(step, moment)

    def vacuuming(*given: Any) -> Any:
        if moment == "read_source_changes":
            totals.spark.sql("VACUUM orders RETAIN 0 HOURS").collect()
            return known(*given)
        found = known(*given)
        totals.spark.sql("VACUUM orders RETAIN 0 HOURS").collect()
        return found

    monkeypatch.setattr(step, moment, vacuuming)
    result = refreshed(totals, "totals")
    assert result.action == "REINITIALIZE"
    assert "vacuumed" in result.reason
    assert "reinitialize_needed" in {row.kind for row in totals.alerts().collect()}
    assert [record.state for record in totals.catalog.history(limit=1)] == ["COMPLETED"]
    holds_its_query(totals)
    totals.sql("INSERT INTO orders VALUES (9, 9, 9)")
    monkeypatch.undo()
    assert refreshed(totals, "totals").action == "DIFFERENTIAL"
    holds_its_query(totals)


def test_a_damaged_commit_stops_the_refresh_and_says_so(totals: Headrace) -> None:
    """As a power loss may leave it; the rows it was to add must not be passed over."""
    before = rows(totals, "SELECT * FROM totals")
    (location,) = totals.sql("DESCRIBE DETAIL orders").select("location").first()
    commit = Path(location.removeprefix("file:"), "_delta_log", f"{2:020d}.json")
    commit.touch()
    with pytest.raises(HeadraceError) as failure:
        totals.refresh_stream_table("totals")
    assert failure.value.code == "log_damaged"
    assert str(commit.name) in failure.value.message
    assert rows(totals, "SELECT * FROM totals") == before
    assert totals.catalog.history()[0].error_code == "log_damaged"
    commit.unlink()
    totals.sql("INSERT INTO orders VALUES (8, 8, 8)")
    assert refreshed(totals, "totals").action == "DIFFERENTIAL"
    assert rows(totals, "SELECT * FROM totals") != before


def test_a_damaged_commit_of_a_stream_table_can_be_removed(totals: Headrace) -> None:
    totals.sql("INSERT INTO orders VALUES (8, 8, 8)")
    refreshed(totals, "totals")
    location = totals.catalog.find(totals.qualify("totals")).location
    newest = max(Path(location, "_delta_log").glob("*.json"))
    newest.write_bytes(newest.read_bytes()[:200])
    with pytest.raises(HeadraceError, match="log_damaged"):
        totals.refresh_stream_table("totals")
    newest.unlink()
    assert refreshed(totals, "totals").action == "REINITIALIZE"
    totals.sql("INSERT INTO orders VALUES (9, 9, 9)")
    assert refreshed(totals, "totals").action == "DIFFERENTIAL"


def test_a_view_with_another_text_reinitializes(shop: Headrace) -> None:
    shop.sql("CREATE VIEW big AS SELECT id, amount FROM orders WHERE amount > 5")
    shop.sql("CREATE STREAM TABLE st REFRESH MODE DIFFERENTIAL AS SELECT id, amount FROM big")
    shop.sql("CREATE OR REPLACE VIEW big AS SELECT id, amount FROM orders WHERE amount < 5")
    result = refreshed(shop, "st")
    assert result.action == "REINITIALIZE"
    assert rows(shop, "SELECT * FROM st") == rows(shop, "SELECT * FROM big") != []
    assert refreshed(shop, "st").action == "NO_DATA"


def test_a_table_whose_name_a_view_takes_reinitializes(shop: Headrace, twin: Headrace) -> None:
    """In the process that knows the query already, and in one that has just begun."""
    for number, hr in enumerate([shop, twin]):
        hr.sql(f"CREATE STREAM TABLE st_{number} REFRESH MODE DIFFERENTIAL AS {TOTALS}")
    shop.sql("ALTER TABLE orders RENAME TO orders_2")
    shop.sql("CREATE VIEW orders AS SELECT id, customer, amount FROM orders_2 WHERE id <> 1")
    for number in (0, 1):
        before = rows(shop, f"SELECT * FROM st_{number}")
        assert refreshed(shop, f"st_{number}").action == "REINITIALIZE"
        assert rows(shop, f"SELECT * FROM st_{number}") == rows(shop, TOTALS) != before
        kinds = {(one.source.table, one.kind) for one in shop.catalog.dependencies(shop.qualify("st_0"))}
        assert kinds == {("orders", "VIEW"), ("orders_2", "TABLE")}
        shop.sql(f"INSERT INTO orders_2 VALUES ({number + 80}, 8, 8)")
        assert refreshed(shop, f"st_{number}").action == "DIFFERENTIAL"
        assert rows(shop, f"SELECT * FROM st_{number}") == rows(shop, TOTALS)
    assert shop.alerts().where("kind = 'refresh_failed'").count() == 0


def test_a_view_that_fails_is_not_taken_for_up_to_date_later(shop: Headrace) -> None:
    shop.sql("CREATE VIEW shares AS SELECT id, 100 / id AS share FROM orders")
    shop.sql("CREATE STREAM TABLE st REFRESH MODE DIFFERENTIAL AS SELECT id, share FROM shares")
    before = rows(shop, "SELECT * FROM st")
    shop.sql("CREATE OR REPLACE VIEW shares AS SELECT id, 100 / (id - 1) AS share FROM orders")
    for _ in range(2):
        with pytest.raises(HeadraceError, match="DIVIDE_BY_ZERO"):
            shop.refresh_stream_table("st")
        assert rows(shop, "SELECT * FROM st") == before
    shop.sql("CREATE OR REPLACE VIEW shares AS SELECT id, 100 / (id + 1) AS share FROM orders")
    assert refreshed(shop, "st").action == "REINITIALIZE"
    assert rows(shop, "SELECT * FROM st") == rows(shop, "SELECT * FROM shares") != before


def test_a_view_that_reads_other_tables_moves_the_table_in_the_graph(shop: Headrace) -> None:
    shop.sql("CREATE VIEW people AS SELECT id FROM orders")
    shop.sql("CREATE STREAM TABLE names REFRESH MODE DIFFERENTIAL AS SELECT id FROM customers")
    shop.sql("CREATE STREAM TABLE st REFRESH MODE DIFFERENTIAL AS SELECT id FROM people")
    shop.sql("CREATE OR REPLACE VIEW people AS SELECT id FROM names")
    assert refreshed(shop, "st").action == "REINITIALIZE"
    assert shop.catalog.dependents(shop.qualify("names")) == [shop.qualify("st")]
    shop.sql("INSERT INTO customers VALUES (77, 'Gus', 'west')")
    shop.refresh_stream_table("st", upstream=True)
    assert (77,) in rows(shop, "SELECT * FROM st")


def test_a_view_that_closes_a_circle_is_an_error_until_it_is_put_right(shop: Headrace) -> None:
    shop.sql("CREATE VIEW base AS SELECT id FROM orders")
    shop.sql("CREATE STREAM TABLE one REFRESH MODE DIFFERENTIAL AS SELECT id FROM base")
    shop.sql("CREATE STREAM TABLE two REFRESH MODE DIFFERENTIAL AS SELECT id FROM one")
    shop.sql("CREATE OR REPLACE VIEW base AS SELECT id FROM two")
    with pytest.raises(HeadraceError, match=r"default\.one.*default\.two.*default\.one") as failure:
        shop.refresh_stream_table("one")
    assert failure.value.code == "schema_changed"
    assert shop.catalog.find(shop.qualify("one")).status == "ERROR"
    shop.sql("CREATE OR REPLACE VIEW base AS SELECT id FROM orders")
    shop.sql("INSERT INTO orders VALUES (8, 8, 8)")
    assert refreshed(shop, "one").action in {"DIFFERENTIAL", "REINITIALIZE"}
    assert shop.catalog.find(shop.qualify("one")).status == "ACTIVE"


def test_a_view_that_can_no_longer_be_maintained_changes_the_mode(shop: Headrace) -> None:
    shop.sql("CREATE VIEW some AS SELECT id FROM orders")
    shop.sql("CREATE STREAM TABLE strict REFRESH MODE DIFFERENTIAL AS SELECT id FROM some")
    shop.sql("CREATE STREAM TABLE lax REFRESH MODE AUTO AS SELECT id FROM some")
    shop.sql("CREATE OR REPLACE VIEW some AS SELECT id FROM orders WHERE rand() < 2")
    with pytest.raises(HeadraceError, match="rand") as failure:
        shop.refresh_stream_table("strict")
    assert failure.value.code == "schema_changed"
    assert refreshed(shop, "lax").action == "REINITIALIZE"
    assert shop.catalog.find(shop.qualify("lax")).effective_mode == "FULL"
    shop.sql("INSERT INTO orders VALUES (8, 8, 8)")
    assert refreshed(shop, "lax").action == "FULL"


@pytest.mark.parametrize(("mode", "is_lost"), [("DIFFERENTIAL", False), ("FULL", True)])
def test_a_source_dropped_during_a_refresh_loses_nothing(shop: Headrace, mode: str, is_lost: bool) -> None:
    shop.sql(f"CREATE STREAM TABLE totals REFRESH MODE {mode} AS {TOTALS}")
    before = rows(shop, "SELECT * FROM totals")
    shop.sql("INSERT INTO orders VALUES (8, 8, 8)")
    name = shop.qualify("totals")

    def drop(_: Action) -> None:
        shop.spark.sql("DROP TABLE orders")

    with pytest.raises(HeadraceError, match=r"default\.orders is gone") if is_lost else nullcontext():
        shop._refresher.refresh(name, gate=drop)
    # What was computed before the source went is right for its frontier; else the old contents stay.
    assert rows(shop, "SELECT * FROM totals") == sorted([*before, *([] if is_lost else [(8, 8)])], key=repr)
    with pytest.raises(HeadraceError) as gone:
        shop.refresh_stream_table("totals")
    assert gone.value.code == "source_missing"
    assert "default.orders" in gone.value.message
    assert shop.catalog.find(name).status == "ERROR"

    shop.sql("CREATE TABLE orders (id INT, customer INT, amount DECIMAL(10,2)) USING delta")
    shop.sql("INSERT INTO orders VALUES (1, 9, 9)")
    assert refreshed(shop, "totals").action == "REINITIALIZE"
    assert rows(shop, "SELECT customer FROM totals") == [(9,)]
    assert shop.catalog.find(name).status == "ACTIVE"


COPIES = {"listed": "", "partitioned": "PARTITIONED BY (id)"}


@pytest.mark.parametrize("layout", COPIES)
@pytest.mark.parametrize("writes", [1, 2], ids=["as far", "further"])
def test_a_copy_that_went_its_own_way_reinitializes(lake: Headrace, layout: str, writes: int) -> None:
    """As where a backup is brought back: the identity and the numbers of versions are those of before."""
    lake.sql(f"CREATE TABLE t (id INT, n INT) USING delta {COPIES[layout]}")
    (location,) = lake.sql("DESCRIBE DETAIL t").select("location").first()
    place = Path(location.removeprefix("file:"))
    copytree(place, place.parent / "copy")
    lake.sql("INSERT INTO t VALUES (2, 2)")
    lake.sql("CREATE STREAM TABLE st REFRESH MODE DIFFERENTIAL AS SELECT id, n FROM t")
    lake.sql("CREATE STREAM TABLE most REFRESH MODE DIFFERENTIAL AS SELECT SUM(n) AS n FROM t")
    for number in range(writes):
        values = f"SELECT {30 + number} AS id, 1 AS n"
        lake.spark.sql(values).write.format("delta").mode("append").save(str(place.parent / "copy"))
    rmtree(place)
    (place.parent / "copy").rename(place)
    for name in ("st", "most"):
        result = refreshed(lake, name)
        assert result.action == "REINITIALIZE"
        assert "went its own way" in result.reason
    assert rows(lake, "SELECT * FROM st") == [(30 + number, 1) for number in range(writes)]
    assert refreshed(lake, "most").action == "NO_DATA"
    lake.sql("INSERT INTO t VALUES (40, 1)")
    for name in ("st", "most"):
        assert refreshed(lake, name).action == "DIFFERENTIAL"
    assert rows(lake, "SELECT * FROM most") == [(writes + 1,)]


def test_a_frontier_of_before_digests_were_kept_still_counts(totals: Headrace) -> None:
    table = totals.catalog.find(totals.qualify("totals"))
    assert table.frontier is not None
    assert all(at.commit for at in table.frontier.values())
    plain = {name: SourceVersion(at.version, at.table_id) for name, at in table.frontier.items()}
    assert plain == table.frontier
    totals.catalog.update(table.name, frontier=plain)
    assert refreshed(totals, "totals").action == "NO_DATA"
    totals.catalog.update(table.name, frontier=plain)
    totals.sql("INSERT INTO orders VALUES (9, 9, 9)")
    assert refreshed(totals, "totals").action == "DIFFERENTIAL"
    holds_its_query(totals)
