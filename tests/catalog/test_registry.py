"""Alerts, settings, sources and relations."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest

from headrace.catalog import Alert, Catalog, Relation
from headrace.errors import HeadraceError
from headrace.sql.names import TableName
from tests.catalog.samples import ORDERS, TOTALS, new_table

MINUTE = timedelta(minutes=1)


def test_alerts_are_newest_first(catalog: Catalog) -> None:
    first = catalog.raise_alert("lag_exceeded", "shop.totals is late.", TOTALS)
    second = catalog.raise_alert("falling_behind", "The service is late.")
    assert catalog.alerts() == [second, first]
    assert catalog.alerts(limit=1) == [second]
    assert (first.stream_table, second.stream_table) == (TOTALS, None)


def test_what_several_processes_notice_is_told_once(catalog: Catalog, catalog_url: str) -> None:
    catalog.add(new_table(TOTALS), [])
    noon = datetime(2026, 3, 1, 12, tzinfo=UTC)

    def notice(opened: Catalog) -> Alert | None:
        return opened.raise_alert_once("lag_exceeded", "late", TOTALS, now=noon, since=noon - MINUTE)

    with Catalog.open(catalog_url) as other, ThreadPoolExecutor(8) as pool:
        told = list(pool.map(notice, [catalog, other] * 20))
    assert [one for one in told if one is not None] == catalog.alerts()
    assert len(catalog.alerts()) == 1
    again = {"now": noon + MINUTE, "since": noon}
    assert catalog.raise_alert_once("lag_exceeded", "late", ORDERS, **again)
    assert catalog.raise_alert_once("falling_behind", "slow", TOTALS, **again)
    assert catalog.raise_alert_once("lag_exceeded", "late again", TOTALS, **again)
    assert len(catalog.alerts()) == 4


def test_settings_are_set_and_unset(catalog: Catalog, catalog_url: str) -> None:
    assert catalog.settings() == {}
    catalog.set_setting("enabled", "false")
    catalog.set_setting("enabled", "true")
    catalog.set_setting("paused", "yes")
    with Catalog.open(catalog_url) as other:
        assert other.settings() == {"enabled": "true", "paused": "yes"}
        other.set_setting("paused", None)
    assert catalog.settings() == {"enabled": "true"}


def test_sources_have_one_name_each(catalog: Catalog) -> None:
    options = {"url": "postgresql://db/shop", "table": "public.orders"}
    record = catalog.add_source(ORDERS, "POSTGRES", options)
    assert catalog.sources() == [record]
    assert record.options == options
    with pytest.raises(HeadraceError) as raised:
        catalog.add_source(ORDERS, "POSTGRES", {})
    assert raised.value.code == "name_taken"
    with pytest.raises(HeadraceError) as raised:
        catalog.remove_source(TableName("shop", "ordres"))
    assert (raised.value.code, raised.value.hint) == ("unknown_source", "Did you mean shop.orders?")
    assert catalog.sources() == [record]
    catalog.remove_source(ORDERS)
    assert catalog.sources() == []


def test_relations_are_put_and_removed(catalog: Catalog) -> None:
    before = catalog.generation()
    table = Relation(ORDERS, "TABLE", location="/lake/shop/orders")
    catalog.put_relation(Relation(ORDERS, "VIEW", definition="SELECT 1"))
    catalog.put_relation(table)
    view = Relation(TOTALS, "VIEW", definition="SELECT 'it''s' AS x")
    catalog.put_relation(view)
    assert catalog.relations() == [table, view]
    assert catalog.remove_relation(ORDERS)
    assert not catalog.remove_relation(ORDERS)
    assert catalog.relations() == [view]
    assert catalog.generation() == before + 4
