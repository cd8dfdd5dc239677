"""On real Spark: every path gives the same contents, and Spark and the driver read what the other wrote."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path as FilePath
from typing import Any

import pyarrow as pa
import pytest
from delta.tables import DeltaMergeBuilder
from pyspark.sql import DataFrame, DataFrameWriter
from pyspark.sql.functions import udf

from headrace import Headrace
from headrace.errors import HeadraceError
from headrace.runtime.relations import describe
from headrace.sql.names import TableName
from headrace.storage.apply import WEIGHT, Path, TableChange, apply_change, replace_rows
from headrace.storage.apply import run as apply_run
from headrace.storage.marker import read_marker
from headrace.storage.snapshot import read_snapshot
from headrace.storage.table import Storage, create_storage
from headrace.storage.vectors import read_vector
from tests.storage.tables import Model, Row, random_change

FEW = pa.schema([("id", pa.int64()), ("name", pa.string())])


def few(hr: Headrace, name: str, columns: str = "id BIGINT, name STRING", clauses: str = "") -> Model:
    """A table of two columns."""
    hr.spark.sql(f"CREATE TABLE {name} ({columns}) USING delta {clauses}")
    described = describe(hr.spark, TableName("default", name))
    assert described is not None
    return Model(Storage(described.location, f"id-{name}"), FEW, hr.spark)


@pytest.mark.parametrize("path", [Path.FILES, Path.VECTORS, Path.SPARK_MERGE, Path.SPARK_REWRITE])
def test_random_changes_leave_exactly_the_expected_rows(lake: Headrace, path: Path) -> None:
    rng = random.Random(str(path))
    model = Model.by_spark(lake, "t")
    for round_ in range(4):
        change = random_change(rng, model.rows, size=12)
        if round_ == 2:
            change = Counter({row: -count for row, count in model.rows.items()})
        before = model.storage.log.newest_version()
        applied = model.apply(change, path)
        assert model.read_by_spark() == model.rows
        assert model.read_by_delta_rs() == model.rows
        assert applied.inserted == sum(weight for weight in change.values() if weight > 0)
        assert applied.deleted == -sum(weight for weight in change.values() if weight < 0)
        if change:
            assert applied.path == path
            assert applied.commit is not None
            assert applied.commit.version == (before or 0) + 1
            marker = read_marker(applied.commit)
            assert marker is not None
            assert marker.frontier["default.source"].version == model.refresh
            assert (marker.rows_inserted, marker.rows_deleted) == (applied.inserted, applied.deleted)


def test_the_paths_of_spark(lake: Headrace) -> None:
    """Copies are counted, lost rows must be there, and an empty change makes no commit."""
    for place, path in enumerate([Path.SPARK_MERGE, Path.SPARK_REWRITE]):
        model = few(lake, f"t{place}")
        assert model.apply(Counter({(1, "a"): 3, (2, None): 2, (3, "c"): 1}), Path.SPARK_APPEND).inserted == 6
        model.apply(Counter({(1, "a"): -2, (2, None): -1, (4, None): 2}), path)
        assert model.read_by_delta_rs() == Counter({(1, "a"): 1, (2, None): 1, (3, "c"): 1, (4, None): 2})
        version = model.storage.log.newest_version()
        with pytest.raises(HeadraceError) as caught:
            model.apply(Counter({(4, None): -3}), path)
        assert caught.value.code == "storage_lacks_rows"
        assert model.apply(Counter(), writer="spark").commit is None
        assert model.storage.log.newest_version() == version
        model.apply(Counter({(1, "a"): -1, (1, "z"): 1}), path, key=("id",))
        assert model.read_by_delta_rs()[1, "z"] == 1
    assert lake.spark.sql("SHOW TABLES").count() == 2, "nothing of ours is left"
    assert not lake.spark.conf.get("spark.databricks.delta.commitInfo.userMetadata", "")


def test_a_frame_is_applied_by_spark(lake: Headrace) -> None:
    model = few(lake, "t")
    model.apply(Counter({(number, "old"): 1 for number in range(100)}))
    frame = lake.spark.sql(
        f"SELECT id, 'old' AS name, -1 AS {WEIGHT} FROM range(50) UNION ALL SELECT id, 'new', 2 FROM range(3)"
    )
    applied = apply_change(model.storage, TableChange(frame=frame), model.marker(), spark=lake.spark)
    assert (applied.path, applied.inserted, applied.deleted) == (Path.SPARK_REWRITE, 6, 50)
    rows = model.read_by_delta_rs()
    assert rows == Counter({(n, "old"): 1 for n in range(50, 100)}) + Counter(
        {(n, "new"): 2 for n in range(3)}
    )
    kept = lake.spark.sparkContext._jsc.getPersistentRDDs().values()
    assert all("Delta Table State" in str(frame.name()) for frame in kept), "Delta's own, and none of ours"


@pytest.mark.parametrize("path", [Path.SPARK_MERGE, Path.SPARK_REWRITE])
def test_types_that_spark_does_not_compare(lake: Headrace, path: Path) -> None:
    columns = "id INT, v VARIANT, m MAP<STRING, INT>, s STRUCT<m: MAP<STRING, INT>>"
    model = few(lake, "t", columns)
    lake.spark.sql(
        """INSERT INTO t SELECT id, parse_json(v), map('a', id, 'b', NULL), named_struct('m', map('a', id))
        FROM VALUES (1, '{"x": 1}'), (1, '{"x": 1}'), (2, '[1, 2]'), (3, NULL) AS t(id, v)"""
    )
    change = lake.spark.sql(
        f"""SELECT 1 AS id, parse_json('{{"x": 1}}') AS v, map('b', NULL, 'a', 1) AS m,
        named_struct('m', map('a', 1)) AS s, -1 AS {WEIGHT}
        UNION ALL SELECT 3, NULL, map('a', 3, 'b', NULL), named_struct('m', map('a', 3)), -1"""
    )
    apply_change(model.storage, TableChange(frame=change), model.marker(), spark=lake.spark, path=path)
    left = lake.spark.sql("SELECT id, to_json(v), to_json(m) FROM t ORDER BY id").collect()
    assert [tuple(row) for row in left] == [
        (1, '{"x":1}', '{"a":1,"b":null}'),
        (2, "[1,2]", '{"a":2,"b":null}'),
    ]


@pytest.mark.parametrize("is_frame", [True, False])
def test_dates_that_python_does_not_know_are_found_by_spark(lake: Headrace, is_frame: bool) -> None:
    model = few(lake, "t", "id INT, day DATE")
    lake.spark.sql(
        "INSERT INTO t VALUES (1, DATE'+12000-01-01'), (1, DATE'+12000-01-01'), (2, DATE'2026-01-01')"
    )
    frame = lake.spark.sql(f"SELECT 1 AS id, DATE'+12000-01-01' AS day, -1L AS {WEIGHT}")
    change = TableChange(frame=frame) if is_frame else TableChange(rows=frame.toArrow())
    apply_change(model.storage, change, model.marker(), spark=lake.spark, path=Path.SPARK_MERGE)
    left = lake.spark.sql("SELECT id, CAST(day AS STRING) FROM t ORDER BY id").collect()
    assert [tuple(line) for line in left] == [(1, "+12000-01-01"), (2, "2026-01-01")]


def test_the_setting_spark_leaves_all_writing_to_spark(lake: Headrace) -> None:
    model = few(lake, "t")
    model.apply(Counter({(1, "a"): 1}), writer="spark")
    applied = model.apply(Counter({(1, "a"): -1, (2, "b"): 1}), writer="spark")
    assert applied.path is Path.SPARK_REWRITE
    assert applied.reason.startswith("the setting apply is spark")
    assert applied.commit is not None
    assert "Spark" in applied.commit.info["engineInfo"]
    assert model.read_by_delta_rs() == model.rows


@pytest.mark.parametrize(
    ("columns", "clauses", "reason"),
    [
        ("id BIGINT, name CHAR(5)", "", "its column name carries __CHAR_VARCHAR_TYPE_STRING"),
        ("id BIGINT NOT NULL, name STRING", "", "its column id is NOT NULL"),
        (
            "id BIGINT, name STRING",
            "TBLPROPERTIES ('delta.columnMapping.mode' = 'name')",
            "it has the table feature columnMapping",
        ),
        (
            "id BIGINT, name STRING",
            "TBLPROPERTIES ('delta.enableRowTracking' = 'true')",
            "it has the table feature rowTracking",
        ),
        ("id BIGINT, name STRING", "PARTITIONED BY (id)", "it is partitioned"),
    ],
)
def test_what_the_driver_does_not_write_spark_does(
    lake: Headrace, columns: str, clauses: str, reason: str
) -> None:
    model = few(lake, "t", columns, clauses)
    rows: Counter[Row] = Counter({(1, "abcde"): 1, (2, "ABCDE"): 2, (3, None): 1})
    assert model.apply(rows).reason.startswith(reason)
    assert model.apply(Counter({(1, "abcde"): -1, (2, "ABCDE"): -1, (4, "fghij"): 1})).reason.startswith(
        reason
    )
    assert model.read_by_spark() == model.rows


def test_clustered_tables_are_written_by_the_driver(lake: Headrace) -> None:
    name = TableName("default", "t")
    create_storage(lake.spark, name, [("id", "BIGINT"), ("name", "STRING")], cluster_by=["id"])
    described = describe(lake.spark, name)
    assert described is not None
    model = Model(Storage(described.location, "id-t"), FEW, lake.spark)
    model.apply(Counter({(number, "a"): 1 for number in range(50)}))
    assert model.apply(Counter({(7, "a"): -1}), Path.VECTORS).path is Path.VECTORS
    assert model.read_by_spark() == model.rows
    lake.spark.sql("OPTIMIZE t")
    assert model.apply(Counter({(8, "a"): -1, (9, "b"): 1})).path is Path.REWRITE
    assert model.read_by_spark() == model.rows
    assert lake.spark.sql("DESCRIBE DETAIL t").collect()[0]["clusteringColumns"] == ["id"]


def test_spark_goes_on_where_the_driver_wrote(lake: Headrace) -> None:
    """Vectors, change feed and checkpoints of the driver are Spark's own."""
    model = few(lake, "t", clauses="TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')")
    model.apply(Counter({(number, "a"): 1 for number in range(1000)}))
    change = Counter({(number, "a"): -1 for number in range(0, 1000, 7)})
    change[5000, "b"] = 2
    model.apply(change, Path.VECTORS)
    assert model.read_by_spark() == model.rows
    feed = lake.spark.sql("SELECT * FROM table_changes('t', 2)").collect()
    kinds = Counter((row["id"], row["_change_type"]) for row in feed)
    assert kinds == Counter({(n, "delete"): 1 for n in range(0, 1000, 7)} | {(5000, "insert"): 2})
    lake.spark.sql("DELETE FROM t WHERE id < 100")
    left = Counter({row: count for row, count in model.rows.items() if row[0] >= 100})
    assert model.read_by_spark() == model.read_by_delta_rs() == left


def test_vectors_of_spark_are_read(lake: Headrace) -> None:
    """Bitmaps, runs and arrays: positions hidden by Spark's DELETE come back exactly."""
    few(lake, "t", clauses="TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')")
    lake.spark.range(300_000).selectExpr("id", "'x' AS name").coalesce(1).write.insertInto("t")
    lake.spark.sql(
        "DELETE FROM t WHERE (id < 70000 AND id % 2 = 0) OR id BETWEEN 140000 AND 190000 OR id = 299999"
    )
    described = describe(lake.spark, TableName("default", "t"))
    assert described is not None
    (file,) = read_snapshot(Storage(described.location, "x").log).files
    assert file.vector is not None
    hidden = read_vector(described.location, file.vector)
    expected = [
        n for n in range(300_000) if (n < 70000 and n % 2 == 0) or 140000 <= n <= 190000 or n == 299999
    ]
    assert hidden.tolist() == expected
    model = Model(Storage(described.location, "id-t"), FEW, lake.spark)
    model.rows = Counter({(n, "x"): 1 for n in set(range(300_000)) - set(expected)})
    model.apply(Counter({(1, "x"): -1, (200_000, "x"): -1}), Path.VECTORS)
    model.apply(Counter({(3, "x"): -1}), Path.FILES)
    assert lake.spark.table("t").count() == sum(model.rows.values())
    with pytest.raises(HeadraceError):
        model.apply(Counter({(2, "x"): -1}), Path.VECTORS)


@pytest.mark.parametrize("path", [path for path in Path if path is not Path.NOTHING])
def test_a_concurrent_optimize_is_waited_out(
    lake: Headrace, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = few(lake, "t")
    for number in range(4):
        model.apply(Counter({(number, "a"): 1}))
    waiting = ["OPTIMIZE t"]

    def optimized(run: Any) -> Any:
        def apply(*args: Any, **options: Any) -> Any:
            while waiting:
                lake.spark.sql(waiting.pop()).collect()
            return run(*args, **options)

        return apply

    by_spark = {name: optimized(run) for name, run in apply_run._BY_SPARK.items()}
    monkeypatch.setattr(apply_run, "_BY_SPARK", by_spark)
    monkeypatch.setattr(apply_run, "commit_draft", optimized(apply_run.commit_draft))
    only_adds = path in {Path.APPEND, Path.SPARK_APPEND}
    assert model.apply(Counter({(9, "b"): 1} | ({} if only_adds else {(1, "a"): -1})), path).path is path
    assert not waiting
    assert model.read_by_spark() == model.rows


@pytest.mark.parametrize("is_by_driver", [True, False])
def test_an_optimize_during_an_overwrite_is_waited_out(
    lake: Headrace, tmp_path: FilePath, is_by_driver: bool
) -> None:
    """It moves the files that the overwrite is about to remove, while its rows are being computed."""
    model = of_many_files(lake)
    rows = waiting_rows(lake, tmp_path)
    (tmp_path / "armed").touch()
    with optimized_meanwhile(lake, tmp_path):
        replace_rows(model.storage, rows, model.marker(), spark_only="" if is_by_driver else "a test")
    assert [commit.operation for commit, _ in model.storage.commits_since(4) if commit] == [
        "OPTIMIZE",
        "WRITE",
    ]
    assert model.read_by_spark() == Counter({(number, "new"): 1 for number in range(3)})


@pytest.mark.parametrize("path", [Path.SPARK_MERGE, Path.SPARK_REWRITE])
def test_an_optimize_while_spark_writes_is_waited_out(
    lake: Headrace, tmp_path: FilePath, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark has looked at the files, and commits only after they were moved."""
    model = of_many_files(lake)
    gained = waiting_rows(lake, tmp_path).selectExpr("id", "name", f"1L AS {WEIGHT}")
    lost = lake.spark.sql(f"SELECT id, 'a' AS name, -1L AS {WEIGHT} FROM range(2)")
    change = TableChange(frame=gained.unionAll(lost), is_held=True)
    for writer, method in ((DeltaMergeBuilder, "execute"), (DataFrameWriter, "save")):
        monkeypatch.setattr(writer, method, arming(getattr(writer, method), tmp_path))
    with optimized_meanwhile(lake, tmp_path):
        applied = apply_change(model.storage, change, model.marker(), spark=lake.spark, path=path)
    assert applied.path is path
    operations = [commit.operation for commit, _ in model.storage.commits_since(4) if commit]
    assert operations == ["OPTIMIZE", "MERGE" if path is Path.SPARK_MERGE else "WRITE"]
    kept = Counter({(2, "a"): 1, (3, "a"): 1})
    assert model.read_by_spark() == kept + Counter({(number, "new"): 1 for number in range(3)})


def of_many_files(hr: Headrace) -> Model:
    model = few(hr, "t")
    for number in range(4):
        model.apply(Counter({(number, "a"): 1}))
    return model


def waiting_rows(hr: Headrace, folder: FilePath) -> DataFrame:
    """Three rows whose computation, once armed, waits until the table has been optimized."""

    def name(_: int) -> str:
        if (folder / "armed").exists():
            (folder / "begun").touch()
            wait_for(folder / "optimized")
        return "new"

    return hr.spark.range(0, 3, 1, 1).select("id", udf(name, "string", useArrow=False)("id").alias("name"))


def arming(run: Any, folder: FilePath) -> Any:
    def armed(*args: Any) -> Any:
        (folder / "armed").touch()
        return run(*args)

    return armed


@contextmanager
def optimized_meanwhile(hr: Headrace, folder: FilePath) -> Iterator[None]:
    with ThreadPoolExecutor(1) as pool:
        moved = pool.submit(optimize_meanwhile, hr, folder)
        yield
        moved.result()


def optimize_meanwhile(hr: Headrace, folder: FilePath) -> None:
    wait_for(folder / "begun")
    hr.spark.sql("OPTIMIZE t").collect()
    (folder / "optimized").touch()


def wait_for(path: FilePath) -> None:
    until = time.monotonic() + 60
    while not path.exists() and time.monotonic() < until:
        time.sleep(0.01)
    assert path.exists()


def test_a_foreign_change_is_noticed_by_spark_too(lake: Headrace) -> None:
    model = few(lake, "t")
    model.apply(Counter({(1, "a"): 1}))
    base = model.storage.log.newest_version()
    lake.spark.sql("INSERT INTO t VALUES (7, 'foreign')")
    with pytest.raises(HeadraceError) as caught:
        model.apply(Counter({(2, "b"): 1}), Path.SPARK_APPEND, base=base)
    assert caught.value.code == "storage_written_by_others"
    assert model.read_by_spark() == Counter({(1, "a"): 1, (7, "foreign"): 1})
