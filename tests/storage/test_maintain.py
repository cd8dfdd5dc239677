"""Housekeeping keeps a stream table small and readable, and takes nothing that anybody needs."""

from __future__ import annotations

import os
import time
from collections import Counter
from pathlib import Path as FilePath

import pyarrow as pa
from deltalake import DeltaTable

from headrace import Headrace
from headrace.runtime.relations import describe
from headrace.sql.names import TableName
from headrace.storage import snapshot as snapshots
from headrace.storage.apply import Path, replace_rows
from headrace.storage.layout import CHECKPOINT_INTERVAL
from headrace.storage.maintain import Upkeep, maintain
from headrace.storage.marker import read_marker
from headrace.storage.snapshot import read_snapshot
from headrace.storage.table import Storage
from tests.storage.tables import SCHEMA, Model, Row, as_rows
from tests.storage.test_driver import row

EAGER = Upkeep(keep_versions=5, grace_seconds=-1, stray_seconds=-1)


def contents_at(model: Model, version: int) -> Counter[Row]:
    table = DeltaTable(model.storage.location, version=version)
    return as_rows(pa.table(table.scan().read_all()))


def files_of(model: Model) -> list[FilePath]:
    return [
        *FilePath(model.storage.location).glob("*.parquet"),
        *FilePath(model.storage.location).glob("*.bin"),
    ]


def test_nothing_is_done_before_it_is_due(model: Model) -> None:
    model.apply(Counter({row(1): 1}))
    done = maintain(model.storage)
    assert (done.checkpoint, done.compacted, done.files_removed, done.commits_removed) == (None, 0, 0, 0)
    assert model.storage.log.newest_version() == 1


def test_small_files_are_joined_without_a_change(model: Model) -> None:
    for number in range(20):
        model.apply(Counter({row(number): 1}))
    assert maintain(model.storage).compacted == 20
    commit = model.storage.log.commit(21)
    assert commit is not None
    assert not commit.changes_data
    assert read_marker(commit) is None
    assert len(read_snapshot(model.storage.log).files) == 1
    assert model.read_by_delta_rs() == model.rows
    model.apply(Counter({row(3): -1, row(99): 1}))
    assert model.read_by_delta_rs() == model.rows


def test_hidden_rows_are_dropped_when_they_are_many(model: Model) -> None:
    model.apply(Counter({row(number): 1 for number in range(100)}))
    model.apply(Counter({row(number): -1 for number in range(9)}), Path.VECTORS)
    assert maintain(model.storage).compacted == 0
    model.apply(Counter({row(number): -1 for number in range(9, 12)}), Path.VECTORS)
    assert maintain(model.storage).compacted == 1
    assert [file.vector for file in read_snapshot(model.storage.log).files] == [None]
    assert model.read_by_delta_rs() == model.rows


def test_old_files_and_commits_go_and_kept_versions_stay(model: Model) -> None:
    history: dict[int, Counter[Row]] = {}
    for number in range(3 * CHECKPOINT_INTERVAL):
        change = Counter({row(number): 1})
        if number > 3:
            change[row(number - 3)] -= 1
        commit = model.apply(change, Path.VECTORS if number % 3 == 0 and number > 3 else None).commit
        assert commit is not None
        history[commit.version] = model.rows.copy()
        maintain(model.storage, upkeep=EAGER)
    newest = max(history)
    assert len(list((FilePath(model.storage.location) / "_delta_log").iterdir())) < 3 * CHECKPOINT_INTERVAL
    assert len(files_of(model)) < 2 * CHECKPOINT_INTERVAL
    for version in range(newest - 5, newest + 1):
        if version in history:
            assert contents_at(model, version) == history[version]
    snapshots._states.clear()
    assert read_snapshot(model.storage.log).rows == sum(model.rows.values())


def test_a_version_that_a_downstream_table_reads_stays(model: Model) -> None:
    model.apply(Counter({row(0): 1}))
    model.apply(Counter({row(0): -1, row(1): 1}), Path.FILES)
    needed = model.storage.log.newest_version()
    before = model.rows.copy()
    for number in range(1, 2 * CHECKPOINT_INTERVAL):
        model.apply(Counter({row(number): -1, row(number + 1): 1}), Path.FILES)
        maintain(model.storage, oldest_needed=needed, upkeep=EAGER)
    assert contents_at(model, needed or 0) == before
    assert all(commit is not None for commit, _ in model.storage.commits_since(needed or 0))


def test_files_of_a_commit_under_way_stay(model: Model) -> None:
    stray = FilePath(model.storage.location) / "part-00000-stray.parquet"
    stray.write_bytes(b"written and not yet committed")
    for number in range(CHECKPOINT_INTERVAL):
        model.apply(Counter({row(number): 1}))
    assert maintain(model.storage).checkpoint is not None
    assert stray.exists()
    two_days_ago = time.time() - 2 * 86_400
    os.utime(stray, (two_days_ago, two_days_ago))
    for number in range(CHECKPOINT_INTERVAL):
        model.apply(Counter({row(100 + number): 1}))
    maintain(model.storage)
    assert not stray.exists()
    assert model.read_by_delta_rs() == model.rows


def test_a_table_written_anew_each_time_keeps_little_of_its_past(model: Model) -> None:
    """By its bytes: many copies of a large table would fill the disk."""
    upkeep = Upkeep(keep_bytes=0, keep_times=4, fewest_versions=2, grace_seconds=-1)
    for number in range(2 * CHECKPOINT_INTERVAL):
        change = Counter({row(1_000 * number + one): 1 for one in range(50)})
        change.update(dict.fromkeys(model.rows, -1))
        model.apply(change, Path.REWRITE)
        done = maintain(model.storage, upkeep=upkeep)
    assert done.checkpoint == 2 * CHECKPOINT_INTERVAL
    assert len(files_of(model)) == 5, "its own file and four older ones"
    newest = model.storage.log.newest_version() or 0
    assert sum(contents_at(model, newest - 4).values()) == 50
    assert model.read_by_delta_rs() == model.rows


def test_what_spark_writes_anew_each_time_is_swept(lake: Headrace) -> None:
    """Spark makes the checkpoints of its own commits, and puts files of mapped columns into folders."""
    lake.spark.sql(
        "CREATE TABLE t (`a b` BIGINT) USING delta TBLPROPERTIES"
        " ('delta.columnMapping.mode' = 'name', 'delta.checkpointInterval' = '2')"
    )
    described = describe(lake.spark, TableName("default", "t"))
    assert described is not None
    model = Model(Storage(described.location, "id-t"), SCHEMA, lake.spark)
    upkeep = Upkeep(keep_versions=1, grace_seconds=-1)
    for number in range(1, 5):
        frame = lake.spark.range(10 * number).withColumnRenamed("id", "a b")
        replace_rows(model.storage, frame, model.marker(), spark_only="a test")
        done = maintain(model.storage, spark=lake.spark, upkeep=upkeep)
    assert done.files_removed > 0
    assert done.checkpoint == 4
    location = FilePath(model.storage.location)
    named = [file.path for version in (3, 4) for file in read_snapshot(model.storage.log, version).files]
    assert sorted(str(path.relative_to(location)) for path in location.rglob("part-*.parquet")) == sorted(
        named
    )
    assert all("/" in path for path in named)
    assert not (location / "_delta_log" / f"{1:020d}.json").exists()
    assert lake.spark.table("t").count() == 40
    assert lake.spark.sql("SELECT * FROM t VERSION AS OF 3").count() == 30


def test_many_refreshes_stay_as_fast_as_the_first(model: Model) -> None:
    model.apply(Counter({row(number): 1 for number in range(1_000)}))
    taken = []
    for number in range(300):
        started = time.process_time()
        model.apply(Counter({row(number): -1, row(1_000 + number): 1}))
        maintain(model.storage, upkeep=EAGER)
        taken.append(time.process_time() - started)
    early, late = sorted(taken[20:70])[25], sorted(taken[-50:])[25]
    assert late < 2 * early
    assert len(read_snapshot(model.storage.log).files) < 20
    assert model.read_by_delta_rs() == model.rows
