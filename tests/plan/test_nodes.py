"""Operators are asked from many threads at once."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator

import pytest

from headrace.plan.expressions import col
from headrace.plan.nodes import Filter, Node, Scan, Window
from headrace.sql.names import TableName


@pytest.fixture
def restless() -> Iterator[None]:
    """Let threads take turns as often as can be."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(usual)


def scan() -> Node:
    return Scan(TableName("default", "t"), (("a", "a"),))


def filter_over_window() -> Node:
    return Filter(Window(scan(), ("a",), (("r", col("a")),)), col("a"))


def window_over_filter() -> Node:
    return Window(Filter(scan(), col("a")), ("a",), (("r", col("a")),))


@pytest.mark.usefixtures("restless")
def test_operators_nested_in_either_order_do_not_wait_for_each_other() -> None:
    def look(make: Callable[[], Node]) -> None:
        for _ in range(20_000):
            assert make().columns

    makers = (filter_over_window, window_over_filter) * 2
    threads = [threading.Thread(target=look, args=(make,), daemon=True) for make in makers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert not any(thread.is_alive() for thread in threads)
