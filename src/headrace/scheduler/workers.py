"""Threads that refresh, each in a Spark pool of its own so that a long job leaves room for short ones."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

from pyspark.sql import SparkSession

from headrace.runtime.session import has_jvm

T = TypeVar("T")
# Threads beyond the limit only wait for others; they are made when needed and used again. Any bound would be
# less than some wave of a diamond is wide: its tables all wait for those that would then never get a thread.
_MOST_THREADS = sys.maxsize


class Workers:
    """At most `limit` pieces of work at once, of all who share it; the limit may change while they run."""

    def __init__(self, spark: SparkSession, limit: int) -> None:
        self._spark = spark
        self.limit = limit
        self._places = threading.Condition()
        self._running = 0
        self._returning = 0
        self._pools = 0
        self._threads = ThreadPoolExecutor(_MOST_THREADS, "headrace-refresh", initializer=self._enter_pool)

    def start(self, work: Callable[[], T], done: Callable[[T], None]) -> bool:
        """Run a piece of work on another thread, and hand its result to `done` there, if there is room."""
        with self._places:
            # Those that come back from waiting go first: they are nearly done, and others wait for them.
            if self._running + self._returning >= self.limit:
                return False
            self._running += 1
        self._threads.submit(self._run, work, done)
        return True

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Give the place to another while this thread waits for others, then wait for one."""
        self._leave()
        try:
            yield
        finally:
            self._come_back()

    def close(self) -> None:
        """Wait for the work under way and end the threads."""
        self._threads.shutdown(wait=True)

    def _run(self, work: Callable[[], T], done: Callable[[T], None]) -> None:
        try:
            result = work()
        finally:
            # The place is free before anybody is told, so that who is told can use it.
            self._leave()
        done(result)

    def _leave(self) -> None:
        with self._places:
            self._running -= 1
            self._places.notify_all()

    def _come_back(self) -> None:
        with self._places:
            self._returning += 1
            self._places.wait_for(lambda: self._running < self.limit)
            self._returning -= 1
            self._running += 1

    def _enter_pool(self) -> None:
        if not has_jvm(self._spark):
            return
        with self._places:
            self._pools += 1
            pool = f"headrace-{self._pools}"
        context = self._spark.sparkContext
        context.setLocalProperty("spark.scheduler.pool", pool)
        # Parts of Delta ask for the active session, which a new thread does not have.
        session_class = SparkSession._get_j_spark_session_class(context._jvm)
        session_class.setActiveSession(self._spark._jsparkSession)
