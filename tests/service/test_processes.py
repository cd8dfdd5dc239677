"""Services as processes: sharing one catalog, stopped with grace, killed without."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections import Counter
from pathlib import Path

import headrace
from headrace import Headrace
from tests.conftest import SMALL
from tests.lake_algebra.play import stored_rows
from tests.postgres import PostgresServer, postgres_server
from tests.service.test_service import PATIENCE, running, until, verified

__all__ = ["postgres_server"]

WORKED = 'refreshes_total{action="DIFFERENTIAL",state="COMPLETED"}'
RUN = "import sys; from headrace.cli import main; sys.argv = ['headrace', *sys.argv[1:]]; main()"


def start(warehouse: Path, *options: str) -> tuple[subprocess.Popen[str], str]:
    """Start `headrace run` and give it with its address once it serves."""
    environment = os.environ | {"HEADRACE_DRIVER_MEMORY": "1g"}
    process = subprocess.Popen(
        [sys.executable, "-c", RUN, "run", "--warehouse", str(warehouse), "--port", "0", *options],
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )
    assert process.stderr is not None
    for line in process.stderr:
        if found := re.search(r"(http://\S+)/metrics", line):
            return process, found[1]
    raise AssertionError("the service ended before it served")


def drained(process: subprocess.Popen[str], said: list[str] | None = None) -> threading.Thread:
    """Read on, so that the process is not held up by a full pipe."""
    assert process.stderr is not None
    errors = process.stderr

    def read() -> None:
        with errors:
            for line in errors:
                if said is not None:
                    said.append(line)

    thread = threading.Thread(target=read)
    thread.start()
    return thread


def test_two_services_of_different_settings_share_the_work(lake: Headrace, tmp_path: Path) -> None:
    lake.sql("CREATE TABLE sales (id INT, amount INT) USING delta")
    lake.sql("INSERT INTO sales VALUES (1, 10)")
    names = [f"t{number}" for number in range(6)]
    for name in names:
        lake.sql(
            f"CREATE STREAM TABLE {name} SCHEDULE '3 seconds' REFRESH MODE DIFFERENTIAL AS "
            "SELECT id, amount FROM sales"
        )
    first = {record.id for record in lake.catalog.history()}
    with headrace.connect(warehouse=tmp_path / "lake", max_concurrent_refreshes=1, spark_conf=SMALL) as other:
        with running(lake) as one, running(other) as two:
            for number in range(2, 5):
                lake.spark.sql(f"INSERT INTO sales VALUES ({number}, 10)")
                for name in names:
                    until(
                        lambda name=name, number=number: (number, 10) in stored_rows(lake, name),
                        f"{name} must follow",
                    )
        history = [record for record in lake.catalog.history() if record.id not in first]
        done = [r for r in history if r.state == "COMPLETED" and r.action != "NO_DATA"]
        moments = Counter((record.stream_table, record.data_timestamp) for record in done)
        assert max(moments.values()) == 1, "no table is refreshed twice for one moment"
        assert sum(record.rows_inserted for record in done) == 3 * len(names), "and no row is written twice"
        for service in (one, two):
            assert 'action="DIFFERENTIAL"' in service.overseer.metrics.render(), "both must have worked"
    assert verified(lake, *names)


def test_two_processes_share_one_database_until_one_is_killed(
    tmp_path: Path, postgres_server: PostgresServer
) -> None:
    url, names = postgres_server.create_database(), [f"t{number}" for number in range(6)]
    with headrace.connect(warehouse=tmp_path / "lake", catalog_url=url, spark_conf=SMALL) as lake:
        lake.sql("CREATE TABLE sales (id INT, amount INT) USING delta")
        lake.sql("INSERT INTO sales VALUES (1, 10)")
        for number, name in enumerate(names):
            query = f"SELECT id, amount + {number} AS amount FROM sales"
            lake.create_stream_table(name, query, schedule="3 seconds", refresh_mode="DIFFERENTIAL")
        first = {record.id for record in lake.catalog.history()}
        process, address = start(tmp_path / "lake", "--catalog-url", url)
        rest = drained(process)
        try:
            with running(lake) as ours:
                for number in range(2, 30):
                    write(lake, number, names)
                    with urllib.request.urlopen(f"{address}/metrics", timeout=PATIENCE) as answer:
                        theirs = answer.read().decode()
                    if WORKED in theirs and WORKED in ours.overseer.metrics.render():
                        break
                else:
                    raise AssertionError("both must have worked")
                lake.spark.sql("INSERT INTO sales VALUES (100, 10)")
                time.sleep(1)
                process.kill()
                process.wait(PATIENCE)
                write(lake, 101, names)
        finally:
            process.kill()
            process.wait(PATIENCE)
            rest.join()
        done = [
            record
            for record in lake.catalog.history(limit=10_000)
            if record.id not in first and record.state == "COMPLETED" and record.action != "NO_DATA"
        ]
        moments = Counter((record.stream_table, record.data_timestamp) for record in done)
        assert max(moments.values()) == 1, "no table is refreshed twice for one moment"
        assert {record.action for record in done} == {"DIFFERENTIAL"}
        assert verified(lake, *names)


def write(lake: Headrace, number: int, names: list[str]) -> None:
    """Add one row, and wait until all tables have it."""
    lake.spark.sql(f"INSERT INTO sales VALUES ({number}, 10)")
    for place, name in enumerate(names):
        until(
            lambda name=name, place=place: stored_rows(lake, name)[number, 10 + place] == 1,
            f"{name} must follow",
        )


def test_a_service_stops_with_grace(lake: Headrace, tmp_path: Path) -> None:
    lake.sql("CREATE TABLE sales (id INT) USING delta")
    lake.sql("CREATE STREAM TABLE ids SCHEDULE '3 seconds' AS SELECT id FROM sales")
    process, address = start(tmp_path / "lake")
    rest = drained(process)
    try:
        with urllib.request.urlopen(f"{address}/healthz", timeout=PATIENCE) as answer:
            assert json.loads(answer.read())["status"] == "ok"
        lake.spark.sql("INSERT INTO sales VALUES (1)")
        until(lambda: (1,) in stored_rows(lake, "ids"), "the service must refresh")
        with urllib.request.urlopen(f"{address}/metrics", timeout=PATIENCE) as answer:
            assert "headrace_ticks_total" in answer.read().decode()
    finally:
        process.send_signal(signal.SIGTERM)
        code = process.wait(PATIENCE)
        rest.join()
    assert code == 0
    assert not lake.catalog.running()
    assert verified(lake, "ids")


def test_another_takes_over_from_a_service_that_was_killed(lake: Headrace, tmp_path: Path) -> None:
    lake.sql("CREATE TABLE sales (id INT) USING delta")
    lake.sql("INSERT INTO sales VALUES (1), (2)")
    lake.sql("CREATE TABLE numbers USING delta AS SELECT id FROM range(5000)")
    slow = (
        "SELECT s.id, c.n FROM sales s CROSS JOIN "
        "(SELECT COUNT(*) AS n FROM numbers a JOIN numbers b ON (a.id + b.id) % 7 = 1) c"
    )
    lake.sql(
        f"CREATE STREAM TABLE slow SCHEDULE '3 seconds' REFRESH MODE FULL WITH (initialize = false) AS {slow}"
    )
    process, _ = start(tmp_path / "lake")
    rest = drained(process)
    try:
        until(lambda: bool(lake.catalog.running()), "the service must begin the refresh")
        time.sleep(0.5)
    finally:
        process.kill()
        process.wait(PATIENCE)
        rest.join()
    assert [record.state for record in lake.catalog.history()] == ["RUNNING"]
    with running(lake):
        until(lambda: not lake.catalog.running() or len(lake.catalog.history()) > 1, "the death must be seen")
        until(lambda: lake.catalog.history()[-1].state == "FAILED", "what it left is marked as failed")
        until(lambda: stored_rows(lake, "slow").total() == 2, "and the work is done")
    record = lake.catalog.history()[-1]
    assert record.error_code == "refresh_interrupted"
    assert verified(lake, "slow")


def test_a_service_reads_its_settings_again(tmp_path: Path) -> None:
    file, said = tmp_path / "headrace.toml", list[str]()
    file.write_text("")
    process, _ = start(tmp_path / "lake", "--config", str(file))
    rest = drained(process, said)

    def count(text: str) -> int:
        return sum(text in line for line in said)

    try:
        file.write_text('log_level = "INFO"')
        until(
            lambda: count("settings were read anew") == 1, "a changed file must be read, and logged by itself"
        )
        file.write_text('log_level = "loud"')
        until(lambda: count("the old settings stay: [invalid_setting]") == 1, "wrong settings are reported")
        seen = file.stat()
        file.write_text("enabled = false\nlog_level = 'INFO'")
        os.utime(file, ns=(seen.st_atime_ns, seen.st_mtime_ns))
        time.sleep(3)
        assert count("settings were read anew") == 1, "the file looks as before"
        process.send_signal(signal.SIGHUP)
        until(lambda: count("settings were read anew") == 2, "SIGHUP makes it read the file")
        file.write_text("log_level = 'ERROR'")
        time.sleep(3)
        assert count("settings were read anew") == 2, "nothing less severe is logged any more"
    finally:
        process.send_signal(signal.SIGTERM)
        code = process.wait(PATIENCE)
        rest.join()
    assert code == 0
