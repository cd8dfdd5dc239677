"""Small tables are read by their files, all others through Delta; either way a refresh sees the same rows."""

from __future__ import annotations

import pytest

from headrace import Headrace
from headrace.catalog import SourceVersion
from headrace.storage.read import source_rows
from headrace.storage.table import Storage
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
