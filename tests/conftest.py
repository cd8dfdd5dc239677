"""Fixtures shared by all tests: a lake of one's own on the one Spark of the process."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import headrace
from headrace import Headrace
from headrace.refresh.result import RefreshResult

# Tests run each query once or twice: on two cores, optimising its code costs more than running it.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Headrace]:
    """A fresh warehouse folder; sessions of one process share one JVM."""
    with headrace.connect(warehouse=tmp_path / "lake") as hr:
        yield hr


@pytest.fixture
def shop(lake: Headrace) -> Headrace:
    """A lake with two small tables, NULLs and duplicates among their rows."""
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
    assert hr.verify(name).ok, f"{name} differs from its query after {result.action}"
    return result


def rows(hr: Headrace, query: str) -> list[tuple[object, ...]]:
    """Run a query and give its rows in a fixed order."""
    return sorted((tuple(row) for row in hr.sql(query).collect()), key=repr)
