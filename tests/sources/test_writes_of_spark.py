"""Ways to write and to lay out a table that Spark offers besides the usual ones: each is followed exactly."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest

import headrace
from headrace import Headrace
from tests.conftest import SMALL, refreshed, rows
from tests.sources.exact import assert_exact, change, newest, source_of, weights

# Of the rows below, one goes, one comes, and the others are written anew.
PART = "VALUES (1, 1, 10), (4, 1, 40) AS r (id, day, n)"
SWAPPED = {"(2, 1, 20)": -1, "(4, 1, 40)": 1}
UPDATED = {"(2, 1, 20)": -1, "(2, 1, 21)": 1, "(5, 3, 50)": 1}


def overwritten(**options: str) -> Callable[[Headrace, str], None]:
    def write(hr: Headrace, table: str) -> None:
        frame = hr.spark.sql(f"SELECT * FROM {PART}")
        frame.write.format("delta").mode("overwrite").options(**options).saveAsTable(table)

    return write


def updated(hr: Headrace, table: str) -> None:
    hr.sql(f"UPDATE {table} SET n = 21 WHERE id = 2")
    hr.sql(f"INSERT INTO {table} VALUES (5, 3, 50)")


@dataclass(frozen=True)
class Case:
    """What a table is made with, what is written to it, and the change that this is."""

    write: Callable[[Headrace, str], None]
    expected: dict[str, int]
    properties: str = ""
    is_clone: bool = False


FEED = "'delta.enableChangeDataFeed' = 'true'"
CASES = {
    "replace_where": Case(overwritten(replaceWhere="day = 1"), SWAPPED),
    "replace_where_feed": Case(overwritten(replaceWhere="day = 1"), SWAPPED, FEED),
    "dynamic": Case(overwritten(partitionOverwriteMode="dynamic"), SWAPPED),
    "dynamic_feed": Case(overwritten(partitionOverwriteMode="dynamic"), SWAPPED, FEED),
    "shallow_clone": Case(updated, UPDATED, is_clone=True),
    "checkpoints_v2": Case(
        updated, UPDATED, "'delta.checkpointPolicy' = 'v2', 'delta.checkpointInterval' = '1'"
    ),
    "in_commit_timestamps": Case(updated, UPDATED, "'delta.enableInCommitTimestamps' = 'true'"),
}


@pytest.fixture(scope="module")
def writes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Headrace]:
    with headrace.connect(warehouse=tmp_path_factory.mktemp("writes") / "lake", spark_conf=SMALL) as hr:
        yield hr


@pytest.mark.parametrize("name", CASES)
def test_a_write_is_followed_exactly(writes: Headrace, name: str) -> None:
    case, made = CASES[name], f"{name}_base" if CASES[name].is_clone else name
    told = f"TBLPROPERTIES ({case.properties})" if case.properties else ""
    writes.sql(f"CREATE TABLE {made} (id INT, day INT, n INT) USING delta PARTITIONED BY (day) {told}")
    writes.sql(f"INSERT INTO {made} VALUES (1, 1, 10), (2, 1, 20), (3, 2, 30)")
    if case.is_clone:
        writes.sql(f"CREATE TABLE {name} SHALLOW CLONE {made}")
    query = f"SELECT day, SUM(n) AS total, MAX(id) AS last FROM {name} GROUP BY day"
    writes.create_stream_table(f"st_{name}", query, refresh_mode="DIFFERENTIAL")
    before, start = rows(writes, f"SELECT * FROM st_{name}"), newest(source_of(writes, name))
    case.write(writes, name)
    assert_exact(writes, name, start, paths=["feed on the driver", "files in Spark"])
    assert weights(writes, change(writes, name, start)) == case.expected
    result = refreshed(writes, f"st_{name}")
    assert result.action == "DIFFERENTIAL", result.reason
    assert rows(writes, f"SELECT * FROM st_{name}") != before
    writes.sql(f"DELETE FROM {name} WHERE id = 3")
    assert refreshed(writes, f"st_{name}").action == "DIFFERENTIAL"
    assert writes.verify(f"st_{name}").ok, "read through Delta it is the same"


def test_a_table_replaced_by_a_query_is_loaded_anew_and_then_followed(writes: Headrace) -> None:
    """Replaced, it is another table of the same name, as its identity tells."""
    as_rows = "USING delta AS SELECT * FROM VALUES (1, 1, 10), (2, 1, 20) AS r (id, day, n)"
    writes.sql(f"CREATE TABLE replaced {as_rows}")
    query = "SELECT day, SUM(n) AS total FROM replaced GROUP BY day"
    writes.create_stream_table("st_replaced", query, refresh_mode="DIFFERENTIAL", schedule="1 minute")
    soon = datetime.now(UTC)
    for number, (statement, action, expected) in enumerate(
        [
            (f"REPLACE TABLE replaced {as_rows} WHERE id = 2", "REINITIALIZE", [(1, 20)]),
            ("INSERT INTO replaced VALUES (3, 1, 30)", "DIFFERENTIAL", [(1, 50)]),
        ],
        start=1,
    ):
        writes.sql(statement)
        report = writes.run_once(at=soon + timedelta(minutes=2 * number))
        assert report.results["default.st_replaced"].action == action
        assert rows(writes, "SELECT * FROM st_replaced") == expected
