"""Fixtures shared by all tests: a lake of one's own on the one Spark of the process."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import headrace
from headrace import Headrace
from headrace.catalog import Action, RefreshState
from headrace.refresh.result import RefreshResult
from headrace.refresh.verify import verify

# Tests run each query once or twice: on two cores, optimising its code costs more than running it.
# Such a JVM reserves little room for code by default, runs full, and throws out what it soon needs again.
_JVM = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m -XX:+UseSerialGC"
os.environ.setdefault("SPARK_SUBMIT_OPTS", _JVM)

# The data are a handful of rows: partitions and generated code would cost more than they save.
SMALL = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.shuffle.partitions": "1",
    "spark.databricks.delta.snapshotPartitions": "1",
}


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Headrace]:
    """A fresh warehouse folder; sessions of one process share one JVM."""
    with headrace.connect(warehouse=tmp_path / "lake", spark_conf=SMALL) as hr:
        yield hr


@pytest.fixture
def shop(lake: Headrace) -> Headrace:
    """A lake with two small tables, NULLs and duplicates among their rows."""
    return fill_shop(lake)


@pytest.fixture(scope="module")
def standing_shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Headrace]:
    """The same, shared by all tests of one module: made once, whatever these then do to it."""
    with headrace.connect(warehouse=tmp_path_factory.mktemp("standing") / "lake", spark_conf=SMALL) as hr:
        yield fill_shop(hr)


def fill_shop(lake: Headrace) -> Headrace:
    lake.sql("CREATE TABLE customers (id INT, name STRING, region STRING) USING delta")
    lake.sql("INSERT INTO customers VALUES (1, 'Ada', 'north'), (2, 'Bo', NULL), (3, NULL, 'south')")
    lake.sql("CREATE TABLE orders (id INT, customer INT, amount DECIMAL(10,2)) USING delta")
    lake.sql(
        "INSERT INTO orders VALUES (1, 1, 10.50), (2, 1, NULL), (3, 2, 7.25), (3, 2, 7.25), (4, NULL, 1)"
    )
    return lake


def refreshed(hr: Headrace, name: str, *, full: bool = False) -> RefreshResult:
    """Refresh, and hold the table to the one invariant: it equals its query at the frontier."""
    result = hr.refresh_stream_table(name, full=full)
    assert holds(hr, name), f"{name} differs from its query after {result.action}"
    return result


def holds(hr: Headrace, name: str) -> bool:
    """Tell whether a stream table equals its query over the sources as Delta reads them at the frontier.

    `hr.verify` reads the stream table through Delta too, which takes seconds for every new version.
    """
    table = hr.catalog.find(hr.qualify(name))
    return verify(hr.spark, hr._refresher.definitions, table, stored_by_files=True).ok


def rows(hr: Headrace, query: str) -> list[tuple[object, ...]]:
    """Run a query and give its rows in a fixed order."""
    return sorted((tuple(row) for row in hr.sql(query).collect()), key=repr)


def note_slow_change(hr: Headrace, name: str) -> None:
    """Let the history say that a change took a minute."""
    hr.catalog.record_refresh(
        hr.qualify(name),
        state=RefreshState.COMPLETED,
        started_at=datetime.now(UTC) - timedelta(minutes=1),
        action=Action.DIFFERENTIAL,
        reason="a source changed",
        details={"change_rows": 1},
    )
