"""What new versions wake, however rarely it is due by the clock."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

import headrace
from headrace import Headrace, HeadraceError
from headrace.scheduler.wake import Wakes
from headrace.sql.names import TableName
from tests.conftest import SMALL, holds, rows
from tests.service.test_service import running, until


@pytest.fixture(scope="module")
def hr(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Headrace]:
    folder: Path = tmp_path_factory.mktemp("wake")
    with headrace.connect(warehouse=folder / "lake", spark_conf=SMALL) as hr:
        for source in ("sales", "doomed"):
            hr.sql(f"CREATE TABLE {source} (id INT) USING delta")
            hr.sql(f"INSERT INTO {source} VALUES (1)")
        daily = "SCHEDULE '1 day'"
        hr.sql(f"CREATE STREAM TABLE at_once {daily} REFRESH MODE IMMEDIATE AS SELECT id FROM sales")
        hr.sql(f"CREATE STREAM TABLE rarely {daily} AS SELECT id FROM sales")
        hr.sql(f"CREATE STREAM TABLE orphan {daily} AS SELECT id FROM doomed")
        hr.sql(f"CREATE STREAM TABLE above {daily} AS SELECT COUNT(*) AS n FROM orphan")
        yield hr


def break_orphan(hr: Headrace) -> TableName:
    hr.sql("ALTER TABLE doomed RENAME TO hidden")
    with pytest.raises(HeadraceError, match="doomed is gone"):
        hr.refresh_stream_table("orphan")
    orphan = hr.qualify("orphan")
    assert hr.catalog.find(orphan).status == "ERROR"
    return orphan


def last_action(hr: Headrace, name: str) -> str:
    return str(hr.catalog.history(hr.qualify(name))[0].action)


def test_a_failed_table_follows_its_source_back(hr: Headrace) -> None:
    orphan, rarely = break_orphan(hr), hr.catalog.find(hr.qualify("rarely")).data_timestamp
    with running(hr):
        hr.spark.sql("INSERT INTO sales VALUES (2)")
        until(lambda: (2,) in rows(hr, "SELECT * FROM at_once"), "an IMMEDIATE table must follow at once")
        assert hr.catalog.find(orphan).status == "ERROR", "without its source nothing can be done"
        # Written first: it may be refreshed as soon as its source is back.
        hr.spark.sql("INSERT INTO hidden VALUES (7)")
        hr.sql("ALTER TABLE hidden RENAME TO doomed")
        until(lambda: (7,) in rows(hr, "SELECT * FROM orphan"), "it must not wait for its tick")
    assert hr.catalog.find(orphan).status == "ACTIVE"
    assert hr.catalog.find(hr.qualify("rarely")).data_timestamp == rarely, "no other table is due"
    assert last_action(hr, "at_once") == "DIFFERENTIAL"
    assert holds(hr, "orphan")
    assert holds(hr, "at_once")


def test_readers_that_missed_their_tick_come_along(hr: Headrace) -> None:
    orphan, above = break_orphan(hr), hr.qualify("above")
    wakes = Wakes(hr._refresher.sources)
    network, tables = hr.scheduler.networks.look()
    for tried in ({}, {above: datetime.now(UTC)}):
        wakes.follow(network, tables, tried)
        assert not wakes.take(network, tables, ()) & {orphan, above}
        wakes.notice()
        hr.sql("ALTER TABLE hidden RENAME TO doomed")
        wakes.follow(network, tables, tried)
        assert wakes.notice()
        woken = wakes.take(network, tables, ())
        assert woken & {orphan, above} == {orphan, *tried}
        hr.sql("ALTER TABLE doomed RENAME TO hidden")
    hr.sql("ALTER TABLE hidden RENAME TO doomed")
    hr.refresh_stream_table("above", upstream=True)


def test_an_immediate_table_stays_woken_until_it_follows(hr: Headrace) -> None:
    hr.spark.sql("INSERT INTO sales VALUES (3)")
    log = hr._refresher.sources.find(hr.qualify("sales")).log
    commit = Path(log.location) / "_delta_log" / f"{log.newest_version():020d}.json"
    ahead = time.time() + 15
    os.utime(commit, (ahead, ahead))
    with running(hr):
        time.sleep(3)
        assert (3,) not in rows(hr, "SELECT * FROM at_once"), "by its clock the write is still to come"
        until(lambda: (3,) in rows(hr, "SELECT * FROM at_once"), "the write must not be forgotten")
        assert time.time() >= ahead
        hr.sql("ALTER STREAM TABLE at_once SUSPEND")
        hr.spark.sql("INSERT INTO sales VALUES (4)")
        time.sleep(3)
        assert (4,) not in rows(hr, "SELECT * FROM at_once")
        hr.sql("ALTER STREAM TABLE at_once RESUME")
        until(lambda: (4,) in rows(hr, "SELECT * FROM at_once"), "a resumed table catches up")
    assert last_action(hr, "at_once") == "DIFFERENTIAL"
    assert holds(hr, "at_once")
