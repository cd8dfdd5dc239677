"""Gates: the tables of a wave commit together, and one failure withholds all of them."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor, wait

import pytest

from headrace.refresh.task import Withheld
from headrace.scheduler.gate import Gate, make_gates
from tests.scheduler.test_plan import Shop, name

L, R, M = name("l"), name("r"), name("m")


@pytest.fixture
def pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(4)


def passing(pool: ThreadPoolExecutor, gate: Gate, table: object, *, writing: bool = False) -> Future[None]:
    return pool.submit(gate.pass_through, table, computes_while_writing=writing)  # type: ignore[arg-type]  # any object is a table here


def is_held(future: Future[None]) -> bool:
    return not wait([future], timeout=0.1).done


def test_nobody_passes_before_all_are_ready(pool: ThreadPoolExecutor) -> None:
    gate = Gate([L, R])
    left = passing(pool, gate, L)
    assert is_held(left)
    passing(pool, gate, R).result(timeout=5)
    left.result(timeout=5)


def test_one_failure_withholds_the_others(pool: ThreadPoolExecutor) -> None:
    gate = Gate([L, R])
    left = passing(pool, gate, L)
    assert is_held(left)
    gate.leave(R, "failed: overflow")
    with pytest.raises(Withheld, match=r"s\.r, which is read together with it, failed: overflow"):
        left.result(timeout=5)


def test_a_table_without_a_change_holds_nobody_up(pool: ThreadPoolExecutor) -> None:
    gate = Gate([L, R])
    gate.leave(R, None)
    passing(pool, gate, L).result(timeout=5)


def test_what_computes_while_writing_goes_first(pool: ThreadPoolExecutor) -> None:
    gate = Gate([L, R])
    ready = passing(pool, gate, L)
    passing(pool, gate, R, writing=True).result(timeout=5)
    assert is_held(ready)
    gate.leave(R, "failed: out of space")
    with pytest.raises(Withheld):
        ready.result(timeout=5)


def test_waves_stand_equally_far_above_the_tip() -> None:
    shop = Shop({"l": "base", "r0": "base", "r": "r0", "tip": "l r", "base": "orders"})
    gates = make_gates(shop.network, set(shop.tables))
    assert gates.keys() == {name("l"), name("r")}
    assert gates[name("l")] is gates[name("r")]


def test_only_tables_of_the_tick_are_waited_for() -> None:
    shop = Shop({"l": "orders", "r": "orders", "tip": "l r"})
    assert make_gates(shop.network, {name("l"), name("tip")}) == {}
