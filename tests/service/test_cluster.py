"""The core on a real standalone cluster: a master and two workers as processes, the catalog on PostgreSQL."""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest

from headrace.runtime.java import find_java
from tests.on_cluster import SERVER
from tests.postgres import PostgresServer, postgres_server

__all__ = ["postgres_server"]

ROOT = Path(__file__).parents[2]
PATIENCE = 180
# What is tried on an embedded lake elsewhere, and must hold here as well.
CORE = (
    "tests/lake/test_differential.py",
    "tests/lake_algebra/test_chains.py",
    "tests/scheduler/test_run_once.py",
)
# The workers have no room for Spark's default executors.
DEFAULTS = "spark.executor.memory 600m\nspark.executor.cores 1\nspark.cores.max 2\n"

WORK = """
import json, sys
from datetime import UTC, datetime, timedelta
import headrace

master, warehouse, catalog_url = sys.argv[1:]
hr = headrace.connect(
    warehouse=warehouse,
    catalog_url=catalog_url,
    master=master,
    driver_memory="1g",
    spark_conf={"spark.executor.memory": "600m", "spark.executor.cores": "1", "spark.cores.max": "2"},
)
hr.sql("CREATE TABLE sales (id INT, shop INT, amount INT) USING delta")
hr.sql("INSERT INTO sales SELECT id, id % 10, id FROM range(1000)")
hr.sql("CREATE STREAM TABLE base SCHEDULE DOWNSTREAM AS SELECT id, shop, amount FROM sales")
hr.sql("CREATE STREAM TABLE sums AS SELECT shop, SUM(amount) AS s FROM base GROUP BY shop")
hr.sql("CREATE STREAM TABLE counts AS SELECT shop, COUNT(*) AS n FROM base GROUP BY shop")
hr.sql("CREATE STREAM TABLE tip AS SELECT a.shop, s, n FROM sums a JOIN counts b USING (shop)")
query = "SELECT shop, MAX(id) AS m FROM sales GROUP BY shop"
hr.create_stream_table("at_once", query, refresh_mode="IMMEDIATE")
hr.sql("UPDATE sales SET amount = amount + 1 WHERE id = 7")
hr.sql("INSERT INTO sales VALUES (5000, 3, 1)")
at_once = hr.sql("SELECT m FROM at_once WHERE shop = 3").collect()[0][0]
report = hr.run_once(at=datetime.now(UTC) + timedelta(hours=1))
names = ("base", "sums", "counts", "tip", "at_once")
executors = hr.spark.sparkContext._jsc.sc().statusTracker().getExecutorInfos()
print("RESULT", json.dumps({
    "ok": report.ok,
    "actions": {one.stream_table: str(one.action) for one in report},
    "verified": [hr.verify(name).ok for name in names],
    "at_once": at_once,
    "tip": hr.snapshot().sql("SELECT s, n FROM tip WHERE shop = 7").collect()[0],
    "executors": len(executors) - 1,
}))
"""


class Cluster:
    """A master and two workers with one core each."""

    def __init__(self, folder: Path) -> None:
        self.port, self._web = _free_port(), _free_port()
        self._folder = folder
        self._environment = os.environ | {
            "JAVA_HOME": str(find_java().home),
            "SPARK_HOME": str(Path(pyspark.__file__).parent),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_WORKER_DIR": str(folder / "work"),
        }
        self._processes: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        here = ["--host", "127.0.0.1", "--port", str(self.port), "--webui-port", str(self._web)]
        self._processes.append(self._start("master", "Master", *here))
        until_listening(self.port)
        for number in (1, 2):
            limits = ["--cores", "1", "--memory", "700m", "--webui-port", str(_free_port())]
            worker = self._start(f"worker{number}", "Worker", "--host", "127.0.0.1", *limits, self.master)
            self._processes.append(worker)
        self._await_workers()

    @property
    def master(self) -> str:
        return f"spark://127.0.0.1:{self.port}"

    def close(self) -> None:
        for process in reversed(self._processes):
            process.terminate()
        for process in self._processes:
            process.wait(PATIENCE)

    def _start(self, name: str, role: str, *arguments: str) -> subprocess.Popen[bytes]:
        launcher = Path(pyspark.__file__).parent / "bin" / "spark-class"
        command = [str(launcher), f"org.apache.spark.deploy.{role.lower()}.{role}", *arguments]
        with (self._folder / f"{name}.log").open("wb") as log:
            return subprocess.Popen(command, stdout=log, stderr=log, env=self._environment)

    def _await_workers(self) -> None:
        deadline = time.monotonic() + PATIENCE
        alive = 0
        while alive < 2:
            assert time.monotonic() < deadline, "the workers must join the master"
            time.sleep(0.5)
            # The master listens before its page is served.
            page = f"http://127.0.0.1:{self._web}/json/"
            with contextlib.suppress(OSError), urllib.request.urlopen(page, timeout=10) as answer:
                alive = json.loads(answer.read())["aliveworkers"]


def until_listening(port: int) -> None:
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            assert time.monotonic() < deadline, "the master must listen"
            time.sleep(0.2)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.close()


def test_the_core_works_on_a_cluster(
    cluster: Cluster, tmp_path: Path, postgres_server: PostgresServer
) -> None:
    arguments = [cluster.master, str(tmp_path / "lake"), postgres_server.create_database()]
    done = subprocess.run(
        [sys.executable, "-c", WORK, *arguments], capture_output=True, text=True, timeout=550, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = re.search(r"RESULT (.*)", done.stdout)
    assert found is not None
    result = json.loads(found[1])
    assert result["executors"] == 2, "both workers must have run tasks"
    assert result["ok"]
    assert result["verified"] == [True] * 5
    assert result["at_once"] == 5000
    assert result["tip"] == [sum(range(7, 1000, 10)) + 1, 100]
    assert result["actions"]["default.tip"] in {"DIFFERENTIAL", "FULL"}
    assert result["actions"]["default.base"] != "NO_DATA"


def test_the_tests_of_the_core_pass_on_a_cluster(
    cluster: Cluster, tmp_path: Path, postgres_server: PostgresServer
) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "spark-defaults.conf").write_text(DEFAULTS)
    environment = os.environ | {
        "HEADRACE_MASTER": cluster.master,
        "HEADRACE_DRIVER_MEMORY": "1g",
        SERVER: postgres_server.url("").removesuffix("/"),
        "SPARK_CONF_DIR": str(tmp_path / "conf"),
    }
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "tests.on_cluster", "-p", "no:cacheprovider", *CORE],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=1400,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-1000:]
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed is not None
    assert int(passed[1]) >= 40
