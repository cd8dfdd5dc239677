"""Changes of real Delta tables, read on every path and held to old rows + change = new rows."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headrace import Headrace, HeadraceError
from headrace.catalog import SourceVersion
from headrace.sources.changes import Limits, estimate_changes
from headrace.sources.difference import Difference, net_difference
from headrace.sources.spark_changes import _read_by_sql
from headrace.storage.read import small_table
from tests.sources.exact import assert_exact, at, change, newest, source_of, weights

KINDS = {
    "plain": "",
    "feed": "'delta.enableChangeDataFeed' = 'true'",
    "vectors": "'delta.enableDeletionVectors' = 'true'",
    "feed and vectors": "'delta.enableChangeDataFeed' = 'true', 'delta.enableDeletionVectors' = 'true'",
}


def make(
    hr: Headrace, properties: str = "", columns: str = "id INT, v STRING, n INT", tail: str = ""
) -> None:
    told = f"TBLPROPERTIES ({properties})" if properties else ""
    hr.sql(f"CREATE TABLE t ({columns}) USING delta {tail} {told}")


@pytest.mark.parametrize("properties", KINDS.values(), ids=KINDS)
def test_every_kind_of_write(lake: Headrace, properties: str) -> None:
    make(lake, properties)
    lake.sql("INSERT INTO t SELECT id, concat('v', id % 3), NULL FROM range(0, 40, 1, 1)")
    lake.sql("INSERT INTO t SELECT id % 2, NULL, 7 FROM range(0, 6, 1, 1)")
    lake.sql("UPDATE t SET n = 1 WHERE id < 5")
    lake.sql("DELETE FROM t WHERE id = 0 OR v IS NULL AND id = 1")
    lake.sql(
        "MERGE INTO t USING (SELECT id, 'new' AS v FROM range(3, 45, 1, 1)) s "
        "ON t.id = s.id AND t.id % 7 = 3 "
        "WHEN MATCHED AND t.id = 10 THEN DELETE WHEN MATCHED THEN UPDATE SET v = s.v "
        "WHEN NOT MATCHED AND s.id > 42 THEN INSERT (id, v) VALUES (s.id, s.v)"
    )
    found = assert_exact(lake, "t", 2)
    assert {path: one.place for path, one in found.items()} == {
        "feed on the driver": "driver",
        "files on the driver": "driver",
        "feed in Spark": "spark",
        "files in Spark": "spark",
    }
    has_feed = "ChangeDataFeed" in properties
    assert found["feed on the driver"].method == ("change feed" if has_feed else "file difference")
    lake.sql("INSERT OVERWRITE t SELECT id, v, n FROM t WHERE id > 20")
    lake.sql("OPTIMIZE t")
    lake.sql("DELETE FROM t WHERE id = 30")
    assert_exact(lake, "t", 3, paths=["feed on the driver", "files in Spark"])
    lake.sql("RESTORE TABLE t TO VERSION AS OF 3")
    assert change(lake, "t", 3).is_empty
    assert_exact(lake, "t", 5, paths=["files on the driver", "feed in Spark"])


def test_five_updates_are_one_change_and_a_row_that_came_and_went_is_none(lake: Headrace) -> None:
    make(lake, KINDS["feed"])
    lake.sql("INSERT INTO t VALUES (1, 'a', 0), (2, 'b', 0)")
    for n in range(1, 6):
        lake.sql(f"UPDATE t SET n = {n} WHERE id = 1")
    lake.sql("INSERT INTO t VALUES (9, 'z', 9)")
    lake.sql("DELETE FROM t WHERE id = 9")
    for one in assert_exact(lake, "t", 1).values():
        assert weights(lake, one) == {"(1, 'a', 0)": -1, "(1, 'a', 5)": 1}
    lake.sql("UPDATE t SET n = 0")
    assert change(lake, "t", 1).is_empty


def test_a_column_not_asked_for_makes_no_change(lake: Headrace) -> None:
    make(lake, KINDS["vectors"])
    lake.sql("INSERT INTO t VALUES (1, 'a', 0), (2, 'b', 0)")
    lake.sql("UPDATE t SET n = n + 1")
    found = assert_exact(lake, "t", 1, columns=["id", "v"])
    assert found["files on the driver"].is_empty
    assert weights(lake, change(lake, "t", 1, columns=["N"])) == {"(0)": -2, "(1)": 2}
    assert change(lake, "t", 0, columns=[]).gained == 2


def test_moved_rows_are_not_read(lake: Headrace) -> None:
    make(lake)
    for start in range(0, 30, 10):
        lake.sql(f"INSERT INTO t SELECT id, 'x', 0 FROM range({start}, {start + 10}, 1, 1)")
    source = source_of(lake, "t")
    lake.sql("OPTIMIZE t")
    lake.sql("VACUUM t")
    moved = estimate_changes(source, at(source, 3), at(source, newest(source)))
    assert moved.is_empty
    lake.sql("INSERT INTO t VALUES (100, 'y', 0)")
    lake.sql("OPTIMIZE t")
    once = estimate_changes(source, at(source, 3), at(source, newest(source)))
    assert (once.files, once.gained, once.lost, once.only_adds) == (1, 1, 0, True)
    assert_exact(lake, "t", 3)
    lake.sql("DELETE FROM t WHERE id = 5")
    assert_exact(lake, "t", 3)
    assert_exact(lake, "t", 2)


def test_files_vacuumed_in_between_are_not_needed(lake: Headrace) -> None:
    make(lake)
    lake.sql("INSERT INTO t SELECT id, 'x', 0 FROM range(0, 10, 1, 1)")
    lake.sql("INSERT INTO t VALUES (100, 'y', 0)")
    lake.sql("OPTIMIZE t")
    lake.spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    lake.sql("VACUUM t RETAIN 0 HOURS")
    # The file of the second insert is gone; the older one as well, and with it the version that showed it.
    with pytest.raises(HeadraceError) as refused:
        change(lake, "t", 1)
    assert refused.value.code == "history_lost"
    assert weights(lake, change(lake, "t", 0)).total() == 11


def test_new_statistics_for_old_files_are_no_change(lake: Headrace) -> None:
    make(lake)
    lake.sql("INSERT INTO t SELECT id, 'x', 0 FROM range(0, 10, 1, 1)")
    lake.sql("ALTER TABLE t SET TBLPROPERTIES ('delta.enableRowTracking' = 'true')")
    assert any(not add.get("dataChange", True) for commit in _commits(lake) for add in commit.adds)
    lake.sql("DELETE FROM t WHERE id = 3")
    for one in assert_exact(lake, "t", 1).values():
        assert weights(lake, one) == {"(3, 'x', 0)": -1}


def _commits(hr: Headrace):  # type: ignore[no-untyped-def]  # commits of the log
    log = source_of(hr, "t").log
    return [commit for commit in log.commits(-1, log.newest_version() or 0) if commit]


def test_the_feed_enabled_half_way(lake: Headrace) -> None:
    make(lake)
    lake.sql("INSERT INTO t SELECT id, 'x', 0 FROM range(0, 20, 1, 1)")
    lake.sql("UPDATE t SET n = 1 WHERE id = 1")
    lake.sql("ALTER TABLE t SET TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')")
    lake.sql("UPDATE t SET n = 2 WHERE id = 2")
    found = assert_exact(lake, "t", 1)
    assert found["feed on the driver"].method == "change feed"
    assert found["feed in Spark"].method == "file difference"
    assert_exact(lake, "t", 3)
    lake.sql("ALTER TABLE t SET TBLPROPERTIES ('delta.enableChangeDataFeed' = 'false')")
    lake.sql("UPDATE t SET n = 3 WHERE id = 3")
    assert assert_exact(lake, "t", 3)["feed in Spark"].method == "file difference"


@pytest.mark.parametrize("tail", ["PARTITIONED BY (day, v)", "CLUSTER BY (day)"])
def test_partitioned_and_clustered(lake: Headrace, tail: str) -> None:
    make(lake, KINDS["feed and vectors"], "id INT, v STRING, day DATE, n INT", tail)
    values = "VALUES (1, 'a b/c%', DATE'2026-01-01', 1), (2, NULL, DATE'2026-01-02', 2), (3, 'ü', NULL, NULL)"
    lake.sql(f"INSERT INTO t {values}")
    lake.sql(f"INSERT INTO t {values}")
    lake.sql("UPDATE t SET n = 5, day = DATE'2026-01-03' WHERE id <= 2")
    lake.sql("DELETE FROM t WHERE id = 3")
    lake.sql("OPTIMIZE t")
    assert_exact(lake, "t", 1)
    assert_exact(lake, "t", 2, columns=["day", "n"])


def test_large_deletion_vectors(lake: Headrace) -> None:
    make(lake, KINDS["vectors"], "id BIGINT, m INT")
    lake.sql("INSERT INTO t SELECT id, id % 10 FROM range(0, 300000, 1, 1)")
    lake.sql("DELETE FROM t WHERE id % 97 = 1")
    lake.sql("DELETE FROM t WHERE id BETWEEN 70000 AND 140000 OR id % 5 = 2 AND id < 65536")
    for old, new in ((1, 2), (2, 3), (1, 3), (0, 3)):
        found = change(lake, "t", old, new, limits=Limits(rows=1_000_000))
        assert found.place == "driver"
        assert found.rows is not None
        rows = found.rows.to_pydict()
        moved = sum(i * w for i, w in zip(rows["id"], rows["__hr_weight"], strict=True))
        (rows0, sum0), (rows1, sum1) = (counted(lake, version) for version in (old, new))
        assert (found.gained - found.lost, moved) == (rows1 - rows0, sum1 - sum0)


def counted(hr: Headrace, version: int) -> tuple[int, int]:
    query = f"SELECT count(*), coalesce(sum(id), 0) FROM t VERSION AS OF {version}"
    rows, total = hr.sql(query).collect()[0]
    return rows, total


def test_refusals(lake: Headrace) -> None:
    make(lake)
    lake.sql("INSERT INTO t VALUES (1, 'a', 0)")
    source = source_of(lake, "t")
    with pytest.raises(HeadraceError) as refused:
        change(lake, "t", 0, columns=["nope"])
    assert refused.value.code == "schema_changed"
    old = at(source, 1)
    lake.sql("DROP TABLE t")
    make(lake)
    with pytest.raises(HeadraceError) as refused:
        estimate_changes(source_of(lake, "t"), old, at(source_of(lake, "t"), 0))
    assert refused.value.code == "history_lost"


def test_an_update_of_one_row_is_estimated_as_such(lake: Headrace) -> None:
    make(lake)
    lake.sql("INSERT INTO t SELECT /*+ COALESCE(1) */ id, 'x', 0 FROM range(1000)")
    source = source_of(lake, "t")
    start = newest(source)
    lake.sql("UPDATE t SET n = 1 WHERE id = 5")
    lake.sql("DELETE FROM t WHERE id IN (6, 7)")
    lake.sql("INSERT INTO t VALUES (5000, 'y', 0)")
    lake.sql(
        "MERGE INTO t USING (SELECT 8 AS id UNION ALL SELECT 6000) s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET n = 9 WHEN NOT MATCHED THEN INSERT (id, v, n) VALUES (s.id, 'm', 0)"
    )
    estimate = estimate_changes(source, at(source, start), at(source, newest(source)))
    assert (estimate.gained, estimate.lost) == (4, 4), "a thousand rows were copied only"


def test_a_change_in_spark_belongs_to_the_session_that_asked(lake: Headrace) -> None:
    lake.sql("CREATE TABLE asked (a INT) USING delta")
    lake.sql("INSERT INTO asked VALUES (1), (2)")
    # A thread of its own has no active session, and Delta would take the process's first one.
    SparkSession._get_j_spark_session_class(lake.spark._jvm).clearActiveSession()
    found = change(lake, "asked", 0, limits=Limits(driver=False, feed=False))
    found.to_frame(lake.spark).createOrReplaceTempView("seen")
    assert lake.spark.sql("SELECT a FROM seen").count() == 2


def test_rows_are_counted_where_the_log_does_not_count_them(lake: Headrace) -> None:
    """A column of one value takes next to no room: by the size of its file it would have a few rows."""
    make(lake)
    lake.spark.conf.set("spark.databricks.delta.stats.collect", "false")
    lake.sql("INSERT INTO t SELECT /*+ COALESCE(1) */ 1, 'x', 0 FROM range(50000)")
    source = source_of(lake, "t")
    (add,) = source.log.commit(1).adds  # type: ignore[union-attr]  # just made
    assert "numRecords" not in add.get("stats", "")
    assert change(lake, "t", 0, limits=Limits(kept=40_000)).place == "spark"
    assert change(lake, "t", 0, limits=Limits(rows=40_000)).place == "spark"
    assert change(lake, "t", 0).gained == 50_000
    lake.sql("TRUNCATE TABLE t")
    lake.spark.conf.unset("spark.databricks.delta.stats.collect")
    estimate = estimate_changes(source, at(source, 1), at(source, 2))
    assert (estimate.gained, estimate.lost) == (0, 50_000)
    at_start = SourceVersion(1, source.table_id(1))
    assert small_table(source.log, at_start, ["id"]) is not None


def test_files_of_any_name_are_found_without_a_jvm(lake: Headrace, tmp_path: Path) -> None:
    """Where a session has no JVM at hand, files are singled out by the addresses that Spark gives them."""
    place = tmp_path / "a b%20c+d#e"
    make(lake, KINDS["vectors"], "id INT, v STRING", f"PARTITIONED BY (v) LOCATION '{place}'")
    lake.sql("INSERT INTO t VALUES (1, 'a b'), (2, 'c%d/e+f'), (3, 'ü\\'\"'), (4, NULL), (5, 'x'), (6, 'x')")
    lake.sql("UPDATE t SET id = id + 10 WHERE id <> 6")
    source = source_of(lake, "t")
    net = net_difference(commit for commit in source.log.commits(1, 2) if commit is not None)
    found = Counter[tuple[int, str | None]]()
    for frame in _read_by_sql(lake.spark, source, net, 2, ["id", "v"]):
        for number, value, weight in frame.collect():
            found[number, value] += weight
    old = Counter({(1, "a b"): 1, (2, "c%d/e+f"): 1, (3, "ü'\""): 1, (4, None): 1, (5, "x"): 1})
    found.update(old)
    assert +found == Counter({(number + 10, value): 1 for number, value in old})
    elsewhere = [replace(piece, path=f"other/{piece.path}", records=1) for piece in net.pieces]
    with pytest.raises(HeadraceError, match="source_unreadable"):
        list(_read_by_sql(lake.spark, source, Difference(tuple(elsewhere)), 2, ["id"]))
