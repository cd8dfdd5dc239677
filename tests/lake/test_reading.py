"""Small tables are read by their files, all others through Delta; either way a refresh sees the same rows."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from deltalake.transaction import AddAction

from headrace import Headrace
from headrace.catalog import SourceVersion
from headrace.refresh.jobs import count_jobs
from headrace.storage.data_files import write_data_file
from headrace.storage.read import source_rows
from headrace.storage.table import Storage
from tests.conftest import refreshed
from tests.lake_algebra.play import rows_of

COLUMNS = (
    "id INT, day DATE, amount DECIMAL(10,2), at TIMESTAMP, tags ARRAY<STRING>, p STRUCT<x: INT, y: DOUBLE>"
)
LISTED = "id, day, amount, at, tags, p"
ROWS = (
    "(1, DATE'2024-01-01', 1.5, TIMESTAMP'2024-01-01 00:00:00Z', array('a', NULL), "
    "named_struct('x', 1, 'y', 5)), "
    "(2, NULL, NULL, TIMESTAMP'1901-05-05 12:34:56.789Z', NULL, NULL), "
    "(2, NULL, NULL, TIMESTAMP'1901-05-05 12:34:56.789Z', NULL, NULL), "
    "(3, DATE'1582-10-15', 2.25, NULL, array(), named_struct('x', NULL, 'y', NULL))"
)
QUERY = "SELECT p, day, SUM(amount) AS s, COUNT(*) AS n, MAX(at) AS at FROM {} GROUP BY p, day"
# What a table is made with, and whether its files are its rows.
KINDS = {
    "plain": (COLUMNS, "", True),
    "feed": (COLUMNS, "TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')", True),
    "clustered": (COLUMNS, "CLUSTER BY (day)", True),
    "never_null": (COLUMNS.replace("id INT", "id INT NOT NULL"), "", True),
    "vectors": (COLUMNS, "TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')", False),
    "partitioned": (COLUMNS, "PARTITIONED BY (day)", False),
    "mapped": (COLUMNS, "TBLPROPERTIES ('delta.columnMapping.mode' = 'name')", False),
    "char": (COLUMNS.replace("tags", "c CHAR(3), tags"), "", False),
}


@pytest.fixture(scope="module")
def sources(standing_shop: Headrace) -> Headrace:
    """A table of each kind, a stream table over it, and a change that this has not seen yet."""
    hr = standing_shop
    for name, (columns, clauses, _) in KINDS.items():
        hr.sql(f"CREATE TABLE {name} ({columns}) USING delta {clauses}")
        hr.sql(f"INSERT INTO {name} ({LISTED}) VALUES {ROWS}")
        hr.create_stream_table(f"st_{name}", QUERY.format(name), refresh_mode="DIFFERENTIAL")
        hr.sql(f"DELETE FROM {name} WHERE id = 3")
        hr.sql(f"INSERT INTO {name} ({LISTED}) SELECT 5, day, amount, at, tags, p FROM {name} WHERE id = 2")
    return hr


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_table_is_read_exactly(sources: Headrace, kind: str) -> None:
    result = sources.refresh_stream_table(f"st_{kind}")
    assert (result.action, result.rows_inserted, result.rows_deleted) == ("DIFFERENTIAL", 1, 2)
    assert sources.verify(f"st_{kind}").ok, "read through Delta it is the same"
    assert sources.refresh_stream_table(f"st_{kind}", full=True).action == "FULL"
    assert sources.verify(f"st_{kind}").ok


@pytest.mark.parametrize("kind", KINDS)
def test_files_are_read_only_where_they_are_the_rows(sources: Headrace, kind: str) -> None:
    (location,) = sources.sql(f"DESCRIBE DETAIL {kind}").select("location").first()
    log = Storage(location.removeprefix("file:"), "").log
    newest = log.newest_version()
    assert newest is not None
    at = SourceVersion(version=newest, table_id=Storage(log.location, "").table_id())
    frame = source_rows(sources.spark, log, at)
    assert (frame is not None) == KINDS[kind][2]
    if frame is not None:
        assert rows_of(frame.toArrow()) == rows_of(sources.spark.table(kind).toArrow())
        older = SourceVersion(version=newest - 1, table_id=at.table_id)
        assert source_rows(sources.spark, log, older) is None, "an older version is Delta's to find"
        another = SourceVersion(version=newest, table_id="another")
        assert source_rows(sources.spark, log, another) is None


def test_hundreds_of_files_are_read_without_a_job_to_list_them(lake: Headrace) -> None:
    lake.sql("CREATE TABLE many (id BIGINT, name STRING) USING delta")
    (location,) = lake.sql("DESCRIBE DETAIL many").select("location").first()
    location = location.removeprefix("file:")
    schema = pa.schema([("id", pa.int64()), ("name", pa.string())])
    parts = [pa.table({"id": [n, n], "name": [f"n{n}", None]}, schema=schema) for n in range(150)]
    actions = [AddAction(**written(location, part)) for part in parts]
    # Spark learns of these files only when it reads them.
    DeltaTable(location).create_write_transaction(actions, mode="append", schema=schema, partition_by=[])
    log = Storage(location, "").log
    newest = log.newest_version()
    assert newest is not None
    at = SourceVersion(version=newest, table_id=Storage(location, "").table_id())
    with count_jobs(lake.spark, "read many files") as jobs:
        frame = source_rows(lake.spark, log, at)
        assert frame is not None
        read = frame.toArrow()
    assert jobs.count == 1, "the one that reads them"
    assert rows_of(read) == rows_of(pa.concat_tables(parts))
    assert rows_of(read) == rows_of(lake.spark.table("many").toArrow())


@pytest.mark.parametrize("name", ["_part-0.parquet", ".part-0.parquet", "_old/part-0.parquet"])
def test_files_that_spark_would_not_list_are_read(lake: Headrace, name: str) -> None:
    """Delta reads every file that its log names, Spark's own listing none that looks hidden."""
    lake.sql("CREATE TABLE odd (id BIGINT, name STRING) USING delta")
    lake.sql("INSERT INTO odd VALUES (1, 'a'), (1, 'b')")
    lake.create_stream_table("counts", "SELECT id, COUNT(*) AS n FROM odd GROUP BY id")
    (location,) = lake.sql("DESCRIBE DETAIL odd").select("location").first()
    location = location.removeprefix("file:")
    rows = pa.table({"id": pa.array([1, 2], pa.int64()), "name": ["c", None]})
    action = AddAction(**written(location, rows, name))
    DeltaTable(location).create_write_transaction(
        [action], mode="append", schema=rows.schema, partition_by=[]
    )
    assert lake.spark.table("odd").count() == 4
    assert refreshed(lake, "counts").action == "DIFFERENTIAL"
    assert refreshed(lake, "counts", full=True).action == "FULL"
    assert rows_of(lake.spark.table("counts").toArrow()) == Counter({(1, 3): 1, (2, 1): 1})


def written(location: str, rows: pa.Table, name: str = "") -> dict[str, Any]:
    """Write a data file, under a name of one's own, and say of it what a commit says."""
    add = write_data_file(location, rows)
    if name:
        (Path(location) / name).parent.mkdir(exist_ok=True)
        add["path"] = str((Path(location) / add["path"]).rename(Path(location) / name).relative_to(location))
    return {
        "path": add["path"],
        "size": add["size"],
        "partition_values": {},
        "modification_time": add["modificationTime"],
        "data_change": True,
        "stats": add["stats"],
    }
