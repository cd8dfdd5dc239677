"""Leases: never two live holders, whether threads or processes, and none that outlives its owner."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from headrace.catalog import Catalog, this_owner
from headrace.catalog.owners import is_dead
from headrace.errors import HeadraceError
from headrace.sql.names import TableName
from tests.catalog.samples import ORDERS, TOTALS

TTL = timedelta(seconds=30)
SHORT = timedelta(seconds=1)
spawn = multiprocessing.get_context("spawn")


def heartbeats() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("headrace-lease")]


def test_one_holder_at_a_time(catalog: Catalog, catalog_url: str) -> None:
    with catalog.lease(TOTALS, owner="a", ttl=TTL) as lease, Catalog.open(catalog_url) as other:
        assert lease
        assert not lease.lost
        assert other.lease_owner(TOTALS) == "a"
        with other.lease(TOTALS, owner="b", ttl=TTL) as second:
            assert second is None
        with catalog.lease(TOTALS, owner="a", ttl=TTL) as again:
            assert again is None
        with other.lease(ORDERS, owner="b", ttl=TTL) as unrelated:
            assert unrelated
    assert catalog.lease_owner(TOTALS) is None
    assert heartbeats() == []


def test_a_lease_ends_with_its_block_even_by_an_error(catalog: Catalog) -> None:
    with pytest.raises(RuntimeError, match="boom"), catalog.lease(TOTALS, owner="a", ttl=TTL):
        raise RuntimeError("boom")
    with catalog.lease(TOTALS, owner="b", ttl=TTL) as lease:
        assert lease


def test_an_expired_lease_is_taken_over(catalog: Catalog) -> None:
    old = catalog.acquire_lease(TOTALS, owner="stalled", ttl=SHORT)
    assert old
    assert catalog.acquire_lease(TOTALS, owner="eager", ttl=TTL) is None
    time.sleep(1.05)
    assert catalog.lease_owner(TOTALS) is None
    new = catalog.acquire_lease(TOTALS, owner="heir", ttl=TTL)
    assert new
    assert not catalog.renew_lease(old, ttl=TTL)
    assert old.lost
    with pytest.raises(HeadraceError) as raised:
        old.ensure_held()
    assert raised.value.code == "lease_lost"
    catalog.release_lease(old)
    assert catalog.lease_owner(TOTALS) == "heir"
    new.ensure_held()


def test_the_heartbeat_keeps_a_lease(catalog: Catalog) -> None:
    with catalog.lease(TOTALS, owner="a", ttl=timedelta(seconds=2)) as lease:
        time.sleep(2.5)
        assert lease
        assert not lease.lost
        assert catalog.lease_owner(TOTALS) == "a"


def test_the_heartbeat_notices_a_loss(catalog: Catalog) -> None:
    with catalog.lease(TOTALS, owner="a", ttl=timedelta(milliseconds=300)) as lease:
        assert lease
        catalog.release_lease(lease)
        stolen = catalog.acquire_lease(TOTALS, owner="b", ttl=TTL)
        assert stolen
        assert lease._lost.wait(20)
        assert lease.lost
    assert catalog.lease_owner(TOTALS) == "b"


def test_threads_take_turns(catalog: Catalog) -> None:
    inside, clashes, entered = [0], [0], [0]

    def work(number: int) -> None:
        for _ in range(20):
            with catalog.lease(TOTALS, owner=f"thread {number}", ttl=TTL) as lease:
                if lease is None:
                    continue
                inside[0] += 1
                clashes[0] += inside[0] > 1
                entered[0] += 1
                time.sleep(0.001)
                inside[0] -= 1

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    assert clashes == [0]
    assert entered[0] > 0
    assert heartbeats() == []


def test_processes_take_turns(catalog: Catalog, catalog_url: str, tmp_path: Path) -> None:
    """Each holder makes one file that must not exist; two holders at once would collide on it."""
    barrier, answers = spawn.Barrier(3), spawn.Queue()
    flag = tmp_path / "inside"
    workers = [
        spawn.Process(target=_contend, args=(catalog_url, str(flag), barrier, answers)) for _ in range(3)
    ]
    for worker in workers:
        worker.start()
    outcomes = [answers.get(timeout=120) for _ in workers]
    for worker in workers:
        worker.join(timeout=60)
    assert [clashes for _, clashes in outcomes] == [0, 0, 0]
    assert all(entered == 15 for entered, _ in outcomes)
    assert catalog.lease_owner(TOTALS) is None


def _contend(url: str, flag: str, barrier: Any, answers: Any) -> None:
    entered = clashes = 0
    with Catalog.open(url) as catalog:
        barrier.wait()
        while entered < 15:
            with catalog.lease(TOTALS, owner=this_owner(), ttl=TTL) as lease:
                if lease:
                    try:
                        os.close(os.open(flag, os.O_CREAT | os.O_EXCL))
                    except FileExistsError:
                        clashes += 1
                    time.sleep(0.002)
                    os.unlink(flag)
                    entered += 1
            time.sleep(0.002)
    answers.put((entered, clashes))


def test_the_lease_of_a_killed_process_is_free_at_once(catalog: Catalog, catalog_url: str) -> None:
    ready = spawn.Event()
    worker = spawn.Process(target=_hold, args=(catalog_url, ready))
    worker.start()
    assert ready.wait(60)
    owner = catalog.lease_owner(TOTALS)
    assert owner
    assert not is_dead(owner)
    assert catalog.acquire_lease(TOTALS, owner=this_owner(), ttl=TTL) is None
    assert worker.pid
    os.kill(worker.pid, signal.SIGKILL)
    worker.join(timeout=60)
    assert is_dead(owner)
    with catalog.lease(TOTALS, owner=this_owner(), ttl=TTL) as lease:
        assert lease


def _hold(url: str, ready: Any) -> None:
    catalog = Catalog.open(url)
    with catalog.lease(TOTALS, owner=this_owner(), ttl=timedelta(hours=1)):
        ready.set()
        time.sleep(600)


def test_a_reused_process_number_is_another_owner() -> None:
    place, _, _started = this_owner().rpartition("/")
    assert is_dead(f"{place}/1")
    assert not is_dead("someone")
    assert not is_dead("")


def test_many_writers_at_once_all_succeed(catalog: Catalog) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: catalog.raise_alert("k", str(n), TableName("s", f"t{n}")), range(200)))
    assert len(catalog.alerts()) == 200
