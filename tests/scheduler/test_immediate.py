"""IMMEDIATE tables on real Spark and Delta: current when the write returns, or the write is undone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

import headrace
from headrace import Headrace, HeadraceError
from headrace.api import immediate
from tests.conftest import SMALL, holds, rows

QUERY = "SELECT customer, SUM(100 DIV amount) AS q, COUNT(*) AS n FROM {} GROUP BY customer"
WRITES = [
    "INSERT INTO orders VALUES (10, 7, 20)",
    "UPDATE orders SET customer = 8 WHERE id = 10",
    "MERGE INTO orders o USING (SELECT 10 AS id) n ON o.id = n.id WHEN MATCHED THEN UPDATE SET amount = 50",
    "DELETE FROM orders WHERE id = 2",
    "INSERT OVERWRITE orders SELECT id, customer, amount + 1 FROM orders WHERE id <> 1",
]


@pytest.fixture(scope="module")
def hr(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Headrace]:
    folder: Path = tmp_path_factory.mktemp("immediate")
    with headrace.connect(warehouse=folder / "lake", spark_conf=SMALL) as hr:
        hr.sql("CREATE TABLE orders (id INT, customer INT, amount INT) USING delta")
        hr.sql("INSERT INTO orders VALUES (1, 1, 10), (2, 1, 20), (3, 2, 30)")
        hr.sql("CREATE STREAM TABLE middle SCHEDULE DOWNSTREAM AS SELECT id, customer, amount FROM orders")
        hr.sql(f"CREATE STREAM TABLE top REFRESH MODE IMMEDIATE AS {QUERY.format('middle')}")
        hr.sql("CREATE STREAM TABLE copy REFRESH MODE IMMEDIATE AS SELECT id, amount FROM orders")
        hr.sql("CREATE STREAM TABLE later AS SELECT id FROM orders")
        yield hr


def follows(hr: Headrace) -> bool:
    """Tell whether both IMMEDIATE tables equal their queries over the table as it is now."""
    assert all(holds(hr, name) for name in ("middle", "top", "copy", "later"))
    return rows(hr, "SELECT * FROM top") == rows(hr, QUERY.format("orders")) and rows(
        hr, "SELECT * FROM copy"
    ) == rows(hr, "SELECT id, amount FROM orders")


@pytest.mark.parametrize("write", WRITES)
def test_a_write_returns_when_all_depths_reflect_it(hr: Headrace, write: str) -> None:
    before, later = rows(hr, "SELECT * FROM orders"), hr.catalog.find(hr.qualify("later")).data_timestamp
    hr.sql(write)
    assert rows(hr, "SELECT * FROM orders") != before
    assert follows(hr)
    assert hr.catalog.history(hr.qualify("copy"))[0].action == "DIFFERENTIAL"
    assert hr.catalog.find(hr.qualify("later")).data_timestamp == later, "it is not IMMEDIATE"


def test_a_frame_is_written_so_too(hr: Headrace) -> None:
    more = hr.spark.createDataFrame([(20, 5, 25)], "id int, customer int, amount int")
    hr.write(more, "orders")
    assert (20, 25) in rows(hr, "SELECT * FROM copy")
    assert follows(hr)
    hr.write(hr.spark.table("orders").where("id <> 20").localCheckpoint(), "orders", mode="overwrite")
    assert (20, 25) not in rows(hr, "SELECT * FROM copy")
    assert follows(hr)
    with pytest.raises(HeadraceError) as refused:
        hr.write(more, "copy")
    assert refused.value.code == "stream_table_is_read_only"
    with pytest.raises(HeadraceError) as refused:
        hr.write(more, "orders", mode="maybe")
    assert refused.value.code == "invalid_write_mode"


def test_a_write_that_a_table_cannot_follow_is_undone(hr: Headrace) -> None:
    before = rows(hr, "SELECT * FROM orders")
    with pytest.raises(HeadraceError) as failed:
        hr.sql("INSERT INTO orders VALUES (30, 1, 0)")
    assert failed.value.code == "immediate_refresh_failed"
    assert "INSERT INTO on default.orders was undone" in failed.value.message
    assert "default.top" in failed.value.message
    assert "DIVIDE_BY_ZERO" in failed.value.message
    assert rows(hr, "SELECT * FROM orders") == before
    assert follows(hr)
    assert hr.catalog.find(hr.qualify("top")).consecutive_errors == 0
    hr.sql("INSERT INTO orders VALUES (31, 1, 5)")
    assert follows(hr)


def test_a_write_is_not_undone_over_the_writes_of_others(
    hr: Headrace, monkeypatch: pytest.MonkeyPatch
) -> None:
    look = hr.scheduler.networks.look
    calls = []

    def look_and_write() -> object:
        calls.append(1)
        if len(calls) == 2:
            hr.spark.sql("INSERT INTO orders VALUES (41, 1, 4)")
        return look()

    monkeypatch.setattr(hr.scheduler.networks, "look", look_and_write)
    with pytest.raises(HeadraceError, match="others have written to it meanwhile"):
        hr.sql("INSERT INTO orders VALUES (40, 1, 0)")
    monkeypatch.undo()
    assert (40,) in rows(hr, "SELECT id FROM orders")
    assert (41,) in rows(hr, "SELECT id FROM orders")
    hr.sql("DELETE FROM orders WHERE id = 40")
    assert follows(hr)


def test_what_others_write_while_a_write_is_undone_stays(
    hr: Headrace, monkeypatch: pytest.MonkeyPatch
) -> None:
    plainly = type(hr.spark).sql

    def write_first(spark: SparkSession, text: str, **options: object) -> DataFrame:
        if text.startswith("RESTORE"):
            monkeypatch.undo()
            plainly(spark, "INSERT INTO orders VALUES (46, 1, 6)")
        return plainly(spark, text, **options)

    monkeypatch.setattr(type(hr.spark), "sql", write_first)
    with pytest.raises(HeadraceError) as failed:
        hr.sql("INSERT INTO orders VALUES (45, 1, 0)")
    assert "others have written to it meanwhile" in failed.value.message
    assert {(45,), (46,)} <= set(rows(hr, "SELECT id FROM orders"))
    hr.sql("DELETE FROM orders WHERE id = 45")
    assert (46, 6) in rows(hr, "SELECT * FROM copy")
    assert follows(hr)


def beside(hr: Headrace, monkeypatch: pytest.MonkeyPatch, others: str, *, first: bool) -> None:
    """Let an outside writer commit just before or just after the next write through Headrace."""
    plainly = type(hr.spark).sql

    def write(spark: SparkSession, text: str, **options: object) -> DataFrame:
        monkeypatch.undo()
        if first:
            outside(hr).sql(others)
        try:
            return plainly(spark, text, **options)
        finally:
            if not first:
                outside(hr).sql(others)

    monkeypatch.setattr(type(hr.spark), "sql", write)


def outside(hr: Headrace) -> SparkSession:
    """A session of somebody else's on the same tables."""
    session = hr.spark._jsparkSession.cloneSession()
    session.conf().unset("spark.databricks.delta.commitInfo.userMetadata")
    return SparkSession(hr.spark.sparkContext, session)


@pytest.mark.parametrize(
    "mine", ["UPDATE orders SET amount = 5 WHERE id = 999", "DELETE FROM orders WHERE id = 999"]
)
def test_a_statement_that_wrote_nothing_takes_away_nothing(
    hr: Headrace, monkeypatch: pytest.MonkeyPatch, mine: str
) -> None:
    """The outside row makes the reader fail, and is not this statement's to undo."""
    before = rows(hr, "SELECT * FROM orders")
    beside(hr, monkeypatch, "INSERT INTO orders VALUES (70, 1, 0)", first=False)
    hr.sql(mine)
    assert rows(hr, "SELECT * FROM orders") == sorted([*before, (70, 1, 0)], key=repr)
    hr.sql("DELETE FROM orders WHERE id = 70")
    assert rows(hr, "SELECT * FROM orders") == before
    assert follows(hr)


def test_a_statement_that_fails_takes_away_nothing_of_others(
    hr: Headrace, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = rows(hr, "SELECT * FROM orders")
    beside(hr, monkeypatch, "INSERT INTO orders VALUES (71, 1, 0)", first=True)
    with pytest.raises(HeadraceError, match="not_there"):
        hr.sql("UPDATE orders SET not_there = 5")
    beside(hr, monkeypatch, "INSERT INTO orders VALUES (72, 1, 0)", first=True)
    with pytest.raises(Exception, match="not now"):
        hr.sql("UPDATE orders SET amount = raise_error('not now')")
    assert rows(hr, "SELECT * FROM orders") == sorted([*before, (71, 1, 0), (72, 1, 0)], key=repr)
    hr.sql("DELETE FROM orders WHERE id IN (71, 72)")
    assert follows(hr)


def test_a_statement_that_is_executed_claims_only_what_it_wrote(
    two: Headrace, monkeypatch: pytest.MonkeyPatch
) -> None:
    two.sql("DECLARE OR REPLACE statement = 'INSERT INTO left_in VALUES (3, 30)'")
    beside(two, monkeypatch, "INSERT INTO right_in VALUES (1, 0)", first=False)
    with pytest.raises(HeadraceError, match=r"on default\.left_in was undone, because default\.shares"):
        two.sql("EXECUTE IMMEDIATE statement")
    assert rows(two, "SELECT * FROM left_in") == [(1, 10), (2, 20)]
    assert rows(two, "SELECT * FROM right_in") == [(1, 0), (1, 10), (2, 20)]
    two.sql("DELETE FROM right_in WHERE amount = 0")
    assert all_follow(two)


def test_only_the_own_write_is_undone_where_another_came_before_it(
    hr: Headrace, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = rows(hr, "SELECT * FROM orders")
    beside(hr, monkeypatch, "INSERT INTO orders VALUES (73, 1, 9)", first=True)
    with pytest.raises(HeadraceError, match=r"on default\.orders was undone, because default\.top"):
        hr.sql("INSERT INTO orders VALUES (74, 1, 0)")
    assert rows(hr, "SELECT * FROM orders") == sorted([*before, (73, 1, 9)], key=repr)
    assert follows(hr)


def test_a_write_is_undone_though_its_files_were_moved(hr: Headrace, monkeypatch: pytest.MonkeyPatch) -> None:
    before = rows(hr, "SELECT * FROM orders")
    beside(hr, monkeypatch, "OPTIMIZE orders", first=False)
    with pytest.raises(HeadraceError, match="was undone"):
        hr.sql("INSERT INTO orders VALUES (75, 1, 0)")
    assert rows(hr, "SELECT * FROM orders") == before
    assert follows(hr)
    monkeypatch.setattr(type(hr.spark), "sql", optimized_before_restore(monkeypatch))
    with pytest.raises(HeadraceError, match="was undone"):
        hr.sql("INSERT INTO orders VALUES (76, 1, 0)")
    assert rows(hr, "SELECT * FROM orders") == before
    assert follows(hr)


def optimized_before_restore(monkeypatch: pytest.MonkeyPatch) -> Callable[..., DataFrame]:
    plainly = SparkSession.sql

    def write(spark: SparkSession, text: str, **options: object) -> DataFrame:
        if text.startswith("RESTORE"):
            monkeypatch.undo()
            plainly(spark, "OPTIMIZE orders")
        return plainly(spark, text, **options)

    return write


def test_what_a_user_notes_in_commits_stays(hr: Headrace) -> None:
    key = "spark.databricks.delta.commitInfo.userMetadata"
    log = hr._refresher.sources.find(hr.qualify("orders")).log
    for note in ('{"job": 7}', "nightly"):
        hr.sql(f"SET {key} = {note}")
        hr.sql("UPDATE orders SET amount = amount + 1 WHERE id = 3")
        said = log.commit(log.newest_version() or 0)
        assert said is not None
        assert said.user_metadata.startswith(note.removesuffix("}"))
        assert hr.spark.conf.get(key) == note
        with pytest.raises(HeadraceError, match="was undone"):
            hr.sql("INSERT INTO orders VALUES (77, 1, 0)")
    hr.spark.conf.unset(key)
    hr.sql("UPDATE orders SET amount = amount + 1 WHERE id = 3")
    assert hr.spark.conf.get(key, None) is None
    assert follows(hr)


def test_a_frame_of_another_session_is_undone_too(hr: Headrace) -> None:
    before = rows(hr, "SELECT * FROM orders")
    more = outside(hr).createDataFrame([(78, 1, 0)], "id int, customer int, amount int")
    with pytest.raises(HeadraceError, match="was undone"):
        hr.write(more, "orders")
    assert rows(hr, "SELECT * FROM orders") == before
    assert follows(hr)


def test_a_write_waits_no_longer_than_it_says_for_a_table_that_others_keep(
    hr: Headrace, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = rows(hr, "SELECT * FROM orders")
    monkeypatch.setattr(immediate, "_WAIT_SECONDS", 0.5)
    kept = hr.catalog.lease(hr.qualify("copy"), owner="elsewhere/1-2/3/4", ttl=timedelta(minutes=1))
    with kept, pytest.raises(HeadraceError) as failed:
        hr.sql("INSERT INTO orders VALUES (47, 1, 7)")
    assert failed.value.code == "immediate_refresh_failed"
    assert "INSERT INTO on default.orders was undone, because default.copy" in failed.value.message
    assert "Another process has kept default.copy for 0.5 seconds" in failed.value.message
    assert rows(hr, "SELECT * FROM orders") == before
    hr.sql("INSERT INTO orders VALUES (48, 1, 8)")
    assert (48, 8) in rows(hr, "SELECT * FROM copy")
    assert follows(hr)


def test_a_statement_in_a_variable_is_followed(hr: Headrace) -> None:
    hr.sql("DECLARE OR REPLACE statement = 'INSERT INTO orders VALUES (60, 6, 12)'")
    hr.sql("EXECUTE IMMEDIATE statement")
    assert (60, 12) in rows(hr, "SELECT * FROM copy")
    assert follows(hr)
    assert hr.catalog.history(hr.qualify("copy"))[0].action == "DIFFERENTIAL"
    hr.sql("BEGIN DECLARE v = 'DELETE FROM orders WHERE id = 60'; EXECUTE IMMEDIATE v; END")
    assert (60, 12) not in rows(hr, "SELECT * FROM copy")
    assert follows(hr)
    assert hr.catalog.history(hr.qualify("copy"))[0].action == "DIFFERENTIAL"


def test_what_a_failing_script_wrote_is_followed(hr: Headrace) -> None:
    with pytest.raises(Exception, match="not now"):
        hr.sql("BEGIN INSERT INTO orders VALUES (61, 6, 13); SELECT raise_error('not now'); END")
    assert (61, 13) in rows(hr, "SELECT * FROM copy")
    assert follows(hr)
    assert hr.catalog.history(hr.qualify("copy"))[0].action == "DIFFERENTIAL"
    before = rows(hr, "SELECT * FROM orders")
    with pytest.raises(HeadraceError, match="was undone") as failed:
        hr.sql("BEGIN INSERT INTO orders VALUES (62, 1, 0); SELECT raise_error('not now'); END")
    assert failed.value.code == "immediate_refresh_failed"
    assert "The statement itself had failed" in failed.value.message
    assert "not now" in failed.value.message
    assert rows(hr, "SELECT * FROM orders") == before
    assert follows(hr)


def test_writes_through_temporary_views_are_followed(hr: Headrace) -> None:
    hr.sql("CREATE OR REPLACE TEMP VIEW given AS SELECT * FROM orders")
    hr.sql("UPDATE given SET amount = amount + 1 WHERE id = 3")
    assert follows(hr)
    hr.sql(
        "MERGE INTO given g USING (SELECT 63 AS i) n ON g.id = n.i "
        "WHEN NOT MATCHED THEN INSERT (id, customer, amount) VALUES (63, 1, 3)"
    )
    assert (63, 3) in rows(hr, "SELECT * FROM copy")
    with pytest.raises(HeadraceError, match=r"UPDATE on default\.orders was undone"):
        hr.sql("UPDATE given SET amount = 0 WHERE id = 63")
    hr.sql(
        "BEGIN CREATE OR REPLACE TEMP VIEW late AS SELECT * FROM orders; DELETE FROM late WHERE id = 63; END"
    )
    assert (63, 3) not in rows(hr, "SELECT * FROM copy")
    assert follows(hr)
    assert hr.catalog.history(hr.qualify("copy"))[0].action == "DIFFERENTIAL"


def test_a_suspended_table_lets_writes_pass(hr: Headrace) -> None:
    hr.sql("ALTER STREAM TABLE top SUSPEND")
    hr.sql("INSERT INTO orders VALUES (50, 1, 0)")
    assert (50, 0) in rows(hr, "SELECT * FROM copy")
    hr.sql("DELETE FROM orders WHERE id = 50")
    hr.sql("ALTER STREAM TABLE top RESUME")
    hr.sql("INSERT INTO orders VALUES (51, 1, 1)")
    assert follows(hr)


def test_what_cannot_be_maintained_cannot_be_immediate(hr: Headrace) -> None:
    with pytest.raises(HeadraceError, match="cannot be maintained"):
        hr.sql("CREATE STREAM TABLE never REFRESH MODE IMMEDIATE AS SELECT id, rand() AS r FROM orders")


@pytest.fixture
def two(lake: Headrace) -> Headrace:
    """Two tables, each with an IMMEDIATE reader, and one that reads both and fails at a zero."""
    for name in ("left_in", "right_in"):
        lake.sql(f"CREATE TABLE {name} (id INT, amount INT) USING delta")
        lake.sql(f"INSERT INTO {name} VALUES (1, 10), (2, 20)")
        lake.sql(f"CREATE STREAM TABLE {name}_copy REFRESH MODE IMMEDIATE AS SELECT * FROM {name}")
    lake.sql(f"CREATE STREAM TABLE shares REFRESH MODE IMMEDIATE AS {SHARES}")
    return lake


SHARES = "SELECT l.id, l.amount DIV r.amount AS share FROM left_in l JOIN right_in r ON l.id = r.id"
BOTH = "FROM (SELECT {} AS id, {} AS amount) INSERT INTO left_in SELECT * INSERT INTO right_in SELECT *"


def all_follow(hr: Headrace) -> bool:
    return all(holds(hr, name) for name in ("left_in_copy", "right_in_copy", "shares")) and rows(
        hr, "SELECT * FROM shares"
    ) == rows(hr, SHARES)


def test_a_statement_that_writes_several_tables_is_undone_in_all(two: Headrace) -> None:
    two.sql(BOTH.format(3, 30))
    assert (3, 1) in rows(two, "SELECT * FROM shares")
    assert all_follow(two)
    before = rows(two, "SELECT * FROM left_in"), rows(two, "SELECT * FROM right_in")
    with pytest.raises(HeadraceError) as failed:
        two.sql(BOTH.format(4, 0))
    assert "default.left_in, default.right_in was undone" in failed.value.message
    assert (rows(two, "SELECT * FROM left_in"), rows(two, "SELECT * FROM right_in")) == before
    assert all_follow(two)


def test_an_emptied_table_is_followed(two: Headrace) -> None:
    two.sql("TRUNCATE TABLE right_in")
    assert rows(two, "SELECT * FROM right_in_copy") == rows(two, "SELECT * FROM shares") == []
    assert all_follow(two)


def test_a_table_that_is_made_anew_is_followed(two: Headrace) -> None:
    two.sql("CREATE OR REPLACE TABLE right_in USING delta AS SELECT 2 AS id, 5 AS amount")
    assert rows(two, "SELECT * FROM right_in_copy") == [(2, 5)]
    assert rows(two, "SELECT * FROM shares") == [(2, 4)]
    assert all_follow(two)
    with pytest.raises(HeadraceError, match=r"REPLACE TABLE on default\.right_in was undone"):
        two.sql("CREATE OR REPLACE TABLE right_in USING delta AS SELECT 2 AS id, 0 AS amount")
    assert rows(two, "SELECT * FROM right_in") == [(2, 5)]
    assert all_follow(two)
    two.sql("DROP TABLE right_in")
    two.write(two.spark.createDataFrame([(1, 2)], "id int, amount int"), "right_in")
    assert rows(two, "SELECT * FROM shares") == [(1, 5)]
    assert all_follow(two)


def test_a_table_that_is_made_where_there_is_none_is_followed(two: Headrace) -> None:
    two.sql("CREATE TABLE IF NOT EXISTS right_in USING delta AS SELECT 1 AS id, 0 AS amount")
    assert rows(two, "SELECT * FROM right_in") == [(1, 10), (2, 20)]
    assert all_follow(two)
    two.sql("DROP TABLE right_in")
    two.sql("CREATE TABLE IF NOT EXISTS right_in USING delta AS SELECT 2 AS id, 5 AS amount")
    assert rows(two, "SELECT * FROM right_in_copy") == [(2, 5)]
    assert rows(two, "SELECT * FROM shares") == [(2, 4)]
    assert all_follow(two)


def test_views_and_diamonds_are_followed(two: Headrace) -> None:
    """Two ways lead from one table to the last, one of them over a view."""
    two.sql("CREATE VIEW large AS SELECT id, amount FROM left_in WHERE amount > 15")
    two.sql("CREATE STREAM TABLE many REFRESH MODE IMMEDIATE AS SELECT COUNT(*) AS n FROM large")
    two.sql(
        "CREATE STREAM TABLE most SCHEDULE DOWNSTREAM REFRESH MODE DIFFERENTIAL "
        "AS SELECT MAX(amount) AS m FROM left_in"
    )
    last = "SELECT n, 100 DIV (m - 50) AS q FROM {} CROSS JOIN {}"
    two.sql(f"CREATE STREAM TABLE tip REFRESH MODE IMMEDIATE AS {last.format('many', 'most')}")
    tables = ("many", "most", "tip")
    for write, expected in (
        ("INSERT INTO left_in VALUES (3, 30)", (2, -5)),
        ("UPDATE left_in SET amount = 40 WHERE id = 1", (3, -10)),
        ("DELETE FROM left_in WHERE amount > 25", (1, -3)),
    ):
        two.sql(write)
        assert rows(two, "SELECT * FROM tip") == [expected]
        assert all(holds(two, name) for name in tables)
        assert {two.catalog.history(two.qualify(name))[0].action for name in tables} == {"DIFFERENTIAL"}
    with pytest.raises(HeadraceError, match=r"was undone, because default\.tip"):
        two.sql("INSERT INTO left_in VALUES (4, 50)")
    assert rows(two, "SELECT * FROM left_in") == [(2, 20)]
    assert rows(two, "SELECT * FROM tip") == [(1, -3)]
    assert all(holds(two, name) for name in tables)
    assert all_follow(two)


def test_what_failed_between_follows_or_the_write_is_undone(two: Headrace) -> None:
    two.sql("CREATE TABLE extra (id INT) USING delta")
    two.sql("INSERT INTO extra VALUES (1), (3)")
    join = "SELECT l.id, amount FROM left_in l JOIN extra e ON l.id = e.id"
    two.sql(f"CREATE STREAM TABLE joined SCHEDULE DOWNSTREAM AS {join}")
    two.sql("CREATE STREAM TABLE above REFRESH MODE IMMEDIATE AS SELECT id FROM joined")
    two.sql("DROP TABLE extra")
    with pytest.raises(HeadraceError):
        two.refresh_stream_table("joined")
    assert two.catalog.find(two.qualify("joined")).status == "ERROR"
    before = rows(two, "SELECT * FROM left_in")
    with pytest.raises(HeadraceError, match=r"was undone, because default\.joined") as failed:
        two.sql("INSERT INTO left_in VALUES (3, 30)")
    assert "default.extra is gone" in failed.value.message
    assert rows(two, "SELECT * FROM left_in") == before
    two.sql("CREATE TABLE extra USING delta AS SELECT 3 AS id")
    two.sql("INSERT INTO left_in VALUES (3, 30)")
    assert rows(two, "SELECT * FROM above") == [(3,)]
    assert two.catalog.find(two.qualify("joined")).status == "ACTIVE"
    assert two.catalog.history(two.qualify("joined"))[0].action == "DIFFERENTIAL"
    assert holds(two, "joined")
    assert holds(two, "above")
