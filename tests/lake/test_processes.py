"""Several processes on one warehouse, and processes that die at the worst moment."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import headrace
from headrace import Headrace
from headrace.storage.table import Storage
from tests.conftest import refreshed, rows

PREAMBLE = """
import json, os, signal, sys, time
import headrace
hr = headrace.connect(warehouse=sys.argv[1], driver_memory="1g")
"""


def start(script: str, warehouse: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", PREAMBLE + script, str(warehouse)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process: subprocess.Popen[str], code: int = 0) -> str:
    out, errors = process.communicate(timeout=300)
    assert process.returncode == code, errors[-3000:]
    assert "incubator" not in errors, "the JVM's greetings stay off the terminal"
    assert "log level" not in errors
    return out


def test_a_second_process_sees_and_makes_tables_by_name(shop: Headrace, tmp_path: Path) -> None:
    shop.sql("CREATE VIEW named (who) AS SELECT name FROM customers WHERE name IS NOT NULL")
    shop.sql("CREATE STREAM TABLE totals AS SELECT customer, SUM(amount) AS t FROM orders GROUP BY customer")
    other = start(
        """
hr.sql("INSERT INTO orders VALUES (9, 9, 90)")
result = hr.refresh_stream_table("totals")
hr.sql("CREATE SCHEMA marts")
hr.sql("CREATE STREAM TABLE marts.big AS SELECT customer FROM totals WHERE t > 50")
hr.sql("CREATE OR REPLACE VIEW named (who) AS SELECT upper(name) AS n FROM customers WHERE name IS NOT NULL")
hr.sql("DROP TABLE scratch")
print(json.dumps([result.action, hr.verify("marts.big").ok, hr.sql("SELECT * FROM named").count()]))
""",
        tmp_path / "lake",
    )
    shop.sql("CREATE TABLE scratch (x INT) USING delta")
    said = json.loads(finish(other))

    assert said == ["DIFFERENTIAL", True, 2]
    assert (9,) in rows(shop, "SELECT customer FROM totals")
    assert rows(shop, "SELECT * FROM marts.big") == [(9,)]
    assert rows(shop, "SELECT * FROM named") == [("ADA",), ("BO",)]
    assert not shop.spark.catalog.tableExists("scratch")
    shop.sql("INSERT INTO orders VALUES (10, 10, 100)")
    assert refreshed(shop, "totals").action == "DIFFERENTIAL"
    assert refreshed(shop, "marts.big").action == "DIFFERENTIAL"
    assert rows(shop, "SELECT * FROM marts.big") == [(10,), (9,)]


def test_killed_between_commit_and_catalog(shop: Headrace, tmp_path: Path) -> None:
    shop.sql("CREATE STREAM TABLE totals AS SELECT customer, SUM(amount) AS t FROM orders GROUP BY customer")
    before = shop.catalog.find(shop.qualify("totals"))
    victim = start(
        """
hr.sql("INSERT INTO orders VALUES (9, 9, 90)")
# Die at the moment the catalog would be told: the Delta commit is done.
hr.catalog.finish_refresh = lambda *args, **kwargs: os.kill(os.getpid(), signal.SIGKILL)
type(hr.catalog).finish_refresh = hr.catalog.finish_refresh
hr.refresh_stream_table("totals")
""",
        tmp_path / "lake",
    )
    finish(victim, code=-signal.SIGKILL)
    stale = shop.catalog.find(shop.qualify("totals"))
    assert stale.frontier == before.frontier, "the catalog must not know yet"
    assert shop.catalog.history()[0].state == "RUNNING"

    with headrace.connect(warehouse=tmp_path / "lake") as again:
        table = again.catalog.find(again.qualify("totals"))
        assert table.frontier is not None
        assert table.frontier["default.orders"].version == 2
        record = again.catalog.history()[0]
        assert (record.state, record.action, record.rows_inserted) == ("COMPLETED", "DIFFERENTIAL", 1)
        assert "crash" in record.reason
        assert (9,) in rows(again, "SELECT customer FROM totals")
        assert refreshed(again, "totals").action == "NO_DATA"


@pytest.mark.parametrize(("mode", "writer"), [("FULL", "replace"), ("DIFFERENTIAL", "run")])
def test_killed_before_the_commit(shop: Headrace, tmp_path: Path, mode: str, writer: str) -> None:
    query = "SELECT customer, SUM(amount) AS t FROM orders GROUP BY customer"
    shop.create_stream_table("totals", query, refresh_mode=mode)
    victim = start(
        f"""
hr.sql("INSERT INTO orders VALUES (9, 9, 90)")
from headrace.storage.apply import {writer}
# Die when the new files are there and no commit names them yet.
{writer}.commit_draft = lambda *args, **kwargs: os.kill(os.getpid(), signal.SIGKILL)
hr.refresh_stream_table("totals")
""",
        tmp_path / "lake",
    )
    finish(victim, code=-signal.SIGKILL)
    before = shop.catalog.find(shop.qualify("totals")).storage_version
    assert Storage(str(tmp_path / "lake" / "totals"), "").log.newest_version() == before
    with headrace.connect(warehouse=tmp_path / "lake") as again:
        record = again.catalog.history()[0]
        assert (record.state, record.error_code) == ("FAILED", "refresh_interrupted")
        assert refreshed(again, "totals").action == mode
        assert (9,) in rows(again, "SELECT customer FROM totals")


def test_two_creations_of_one_name_at_once(shop: Headrace, tmp_path: Path) -> None:
    flag = tmp_path / "lake-go"
    script = """
import pathlib
while not pathlib.Path(sys.argv[1] + "-go").exists():
    time.sleep(0.01)
try:
    hr.sql("CREATE STREAM TABLE totals AS SELECT customer, SUM(amount) AS t FROM orders GROUP BY customer")
    print("created")
except headrace.HeadraceError as error:
    print(error.code)
"""
    rivals = [start(script, tmp_path / "lake") for _ in range(2)]
    time.sleep(15)
    flag.touch()
    said = sorted(finish(rival).strip() for rival in rivals)

    assert said == ["created", "name_taken"]
    assert shop.verify("totals").ok
    assert shop.sql("SELECT * FROM totals").count() == 3
    assert len(shop.catalog.all()) == 1


@pytest.mark.skipif(os.name != "posix", reason="folders with such names need a POSIX file system")
def test_a_warehouse_path_with_spaces_and_odd_characters(tmp_path: Path) -> None:
    with headrace.connect(warehouse=tmp_path / "my lake, 100% 'naïve'") as hr:
        hr.sql("CREATE TABLE t (a INT) USING delta")
        hr.sql("INSERT INTO t VALUES (1)")
        hr.sql("CREATE STREAM TABLE s AS SELECT a FROM t")
        hr.sql("INSERT INTO t VALUES (2)")
        assert refreshed(hr, "s").action == "DIFFERENTIAL"
        assert rows(hr, "SELECT * FROM s") == [(1,), (2,)]
    with headrace.connect(warehouse=tmp_path / "my lake, 100% 'naïve'") as hr:
        assert rows(hr, "SELECT * FROM s") == [(1,), (2,)]
