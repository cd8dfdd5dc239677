"""A pytest plugin by which tests of an embedded lake run on a cluster, each lake with a catalog of its own.

`HEADRACE_MASTER=spark://… TESTS_SERVER=postgresql://… pytest -p tests.on_cluster …`
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator

import psycopg
import pytest
from pyspark import SparkContext

SERVER = "TESTS_SERVER"


@pytest.fixture(scope="module", autouse=True)
def catalog_of_the_module() -> Iterator[None]:
    yield from _with_a_new_catalog()


@pytest.fixture(autouse=True)
def catalog_of_the_test() -> Iterator[None]:
    """What a test connects to by itself is another lake than the one that its module shares."""
    yield from _with_a_new_catalog()


def _with_a_new_catalog() -> Iterator[None]:
    server, name = os.environ[SERVER], f"test_{uuid.uuid4().hex}"
    with psycopg.connect(f"{server}/postgres", autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("HEADRACE_CATALOG_URL", f"{server}/{name}")
        yield


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail where the tests have run anywhere else than on two executors."""
    context = SparkContext._active_spark_context
    master = context.master if context is not None else "no Spark"
    # The driver is told of as one of them.
    executors = len(context._jsc.sc().statusTracker().getExecutorInfos()) - 1 if context is not None else 0
    print(f"\nThe tests ran on {master} with {executors} executors.")
    if not master.startswith("spark://") or executors != 2:
        session.exitstatus = pytest.ExitCode.INTERNAL_ERROR
