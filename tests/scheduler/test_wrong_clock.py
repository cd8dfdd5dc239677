"""A clock that was ahead, of this machine or of a writer: nothing stands still until the time is reached."""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

from headrace import Headrace
from headrace.scheduler.clock import AHEAD
from tests.conftest import holds, rows

HOUR = timedelta(hours=1)


def put_ahead(hr: Headrace, source: str) -> datetime:
    """Let the newest commit of a source bear a time that is still to come."""
    log = hr._refresher.sources.find(hr.qualify(source)).log
    commit = Path(log.location) / "_delta_log" / f"{log.newest_version():020d}.json"
    ahead = time.time() + HOUR.total_seconds()
    os.utime(commit, (ahead, ahead))
    return datetime.fromtimestamp(ahead, UTC)


def test_tables_ahead_of_the_clock_follow_and_move_no_others(lake: Headrace) -> None:
    for source in ("sales", "others"):
        lake.sql(f"CREATE TABLE {source} (id INT) USING delta")
    mode = "SCHEDULE '3 seconds' REFRESH MODE DIFFERENTIAL"
    lake.sql(f"CREATE STREAM TABLE ids {mode} AS SELECT id FROM sales")
    lake.sql(f"CREATE STREAM TABLE total {mode} AS SELECT SUM(id) AS s FROM ids")
    lake.sql(f"CREATE STREAM TABLE apart {mode} AS SELECT id FROM others")
    lake.sql("INSERT INTO sales VALUES (1)")
    ahead = put_ahead(lake, "sales")
    lake._refresher.refresh(lake.qualify("ids"), moment=ahead)
    assert rows(lake, "SELECT * FROM ids") == [(1,)]

    assert lake.refresh_stream_table("ids").action == "NO_DATA"
    assert rows(lake, "SELECT * FROM ids") == [(1,)], "contents are not taken back in time by hand either"
    assert lake.catalog.find(lake.qualify("ids")).data_timestamp == ahead

    for number in (2, 3):
        lake.sql(f"INSERT INTO sales VALUES ({number})")
        lake.sql(f"INSERT INTO others VALUES ({number})")
        time.sleep(2)
        report = lake.run_once()
        assert report.ok, str(report)
        assert {one.action for one in report} == {"DIFFERENTIAL"}, str(report)
        assert (number,) in rows(lake, "SELECT * FROM ids")
        assert (number,) in rows(lake, "SELECT * FROM apart")
        assert rows(lake, "SELECT * FROM total") == [(sum(range(1, number + 1)),)]
        assert all(holds(lake, name) for name in ("ids", "total", "apart"))
    stamps = {table.name.table: table.data_timestamp for table in lake.catalog.all()}
    assert stamps["ids"] == stamps["total"] == ahead
    assert stamps["apart"] is not None
    assert stamps["apart"] < datetime.now(UTC) + AHEAD
