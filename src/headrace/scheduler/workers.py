"""Threads that refresh, each in a Spark pool of its own so that a long job leaves room for short ones."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

from pyspark.sql import SparkSession

from headrace.runtime.session import has_jvm

T = TypeVar("T")
# Threads beyond the limit only wait for others; they are made when needed and used again.
_MOST_THREADS = 512


class Workers:
    """At most `limit` pieces of work at once; the limit may change while they run."""

    def __init__(self, spark: SparkSession, limit: int) -> None:
        self._spark = spark
        self.limit = limit
        self._lock = threading.Lock()
        self._running = 0
        self._pools = 0
        self._threads = ThreadPoolExecutor(_MOST_THREADS, "headrace-refresh", initializer=self._enter_pool)

    @property
    def has_room(self) -> bool:
        return self._running < self.limit

    def start(self, work: Callable[[], T], done: Callable[[T], None]) -> None:
        """Run a piece of work on another thread, and hand its result to `done` there."""
        self._count(1)
        self._threads.submit(self._run, work, done)

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Give the place to another while this thread waits for others."""
        self._count(-1)
        try:
            yield
        finally:
            self._count(1)

    def close(self) -> None:
        """Wait for the work under way and end the threads."""
        self._threads.shutdown(wait=True)

    def _run(self, work: Callable[[], T], done: Callable[[T], None]) -> None:
        try:
            result = work()
        finally:
            # The place is free before anybody is told, so that who is told can use it.
            self._count(-1)
        done(result)

    def _count(self, change: int) -> None:
        with self._lock:
            self._running += change

    def _enter_pool(self) -> None:
        if not has_jvm(self._spark):
            return
        with self._lock:
            self._pools += 1
            pool = f"headrace-{self._pools}"
        context = self._spark.sparkContext
        context.setLocalProperty("spark.scheduler.pool", pool)
        # Parts of Delta ask for the active session, which a new thread does not have.
        session_class = SparkSession._get_j_spark_session_class(context._jvm)
        session_class.setActiveSession(self._spark._jsparkSession)
