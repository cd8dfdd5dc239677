"""What a database does wrong comes as an error of ours, and what it keeps is used again afterwards."""

from __future__ import annotations

import threading
import time
from datetime import timedelta

import psycopg
import pytest
from sqlalchemy import text

from headrace.catalog import Catalog
from headrace.errors import HeadraceError
from tests.catalog.samples import TOTALS, new_table
from tests.postgres import PostgresServer

CHANGE = text("UPDATE headrace.settings SET value = value WHERE key = :key")


def test_a_deadlock_is_one_of_a_busy_catalog(postgres_server: PostgresServer) -> None:
    with Catalog.open(postgres_server.create_database()) as catalog:
        for key in ("a", "b"):
            catalog.set_setting(key, "1")
        both_hold_one = threading.Barrier(2)
        errors: list[str] = []

        def change(first: str, second: str) -> None:
            try:
                with catalog._database.write() as connection:
                    connection.execute(CHANGE, {"key": first})
                    both_hold_one.wait(20)
                    connection.execute(CHANGE, {"key": second})
            except HeadraceError as error:
                errors.append(error.code)

        threads = [threading.Thread(target=change, args=pair) for pair in (("a", "b"), ("b", "a"))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert errors == ["catalog_busy"]
        assert catalog.settings() == {"a": "1", "b": "1"}


def test_a_transaction_that_the_server_gave_up_is_a_lost_connection(postgres_server: PostgresServer) -> None:
    url = postgres_server.create_database()
    with Catalog.open(f"{url}?options=-c%20idle_in_transaction_session_timeout%3D100") as catalog:

        def dawdle() -> None:
            with catalog._database.write() as connection:
                connection.execute(CHANGE, {"key": "a"})
                time.sleep(0.5)
                connection.execute(CHANGE, {"key": "a"})

        with pytest.raises(HeadraceError) as raised:
            dawdle()
        assert raised.value.code == "catalog_unreachable"
        assert catalog.settings() == {}


def test_what_nobody_foresaw_is_an_error_of_ours_too(catalog: Catalog) -> None:
    with pytest.raises(HeadraceError) as raised, catalog._database.write() as connection:
        connection.execute(text("SELECT no_such_function(1)"))
    assert raised.value.code == "internal_error"
    assert raised.value.__cause__ is not None
    assert raised.value.hint


def test_a_silent_network_is_noticed_unless_the_url_says_otherwise(postgres_server: PostgresServer) -> None:
    url = postgres_server.create_database()
    for query, idle in (("", "10"), ("?keepalives_idle=77", "77")):
        with Catalog.open(url + query) as catalog, catalog._database.read() as connection:
            driver = connection.connection.dbapi_connection
            assert isinstance(driver, psycopg.Connection)
            given = driver.info.get_parameters()
        assert (given["keepalives_idle"], given["tcp_user_timeout"]) == (idle, "20000")
        assert {"connect_timeout", "keepalives_interval", "keepalives_count"} <= given.keys()


def test_a_lease_is_lost_while_its_heartbeat_hangs(postgres_server: PostgresServer) -> None:
    url = postgres_server.create_database()
    with Catalog.open(url) as catalog, psycopg.connect(url) as blocker:
        catalog.add(new_table(), [])
        with catalog.lease(TOTALS, owner="a", ttl=timedelta(seconds=1)) as lease:
            assert lease
            assert not lease.lost
            blocker.execute("LOCK TABLE headrace.leases IN ACCESS EXCLUSIVE MODE")
            time.sleep(1.2)
            assert lease.lost, "another could have it by now"
            blocker.rollback()


@pytest.mark.parametrize("ttl", [0.3, 30])
def test_a_heartbeat_survives_whatever_happens_to_one_beat(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch, ttl: float
) -> None:
    tried = threading.Event()

    def fail(*_: object, **__: object) -> bool:
        tried.set()
        raise RuntimeError("out of memory")

    monkeypatch.setattr(catalog, "renew_lease", fail)
    with catalog.lease(TOTALS, owner="a", ttl=timedelta(seconds=ttl)) as lease:
        assert lease
        if ttl < 1:
            assert tried.wait(20)
            assert lease._lost.wait(20), "after its ttl it counts as lost"
        assert lease.lost is (ttl < 1)
