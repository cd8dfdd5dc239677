"""Alerts, settings, sources and relations."""

from __future__ import annotations

import pytest

from headrace.catalog import Catalog, Relation
from headrace.errors import HeadraceError
from headrace.sql.names import TableName
from tests.catalog.samples import ORDERS, TOTALS


def test_alerts_are_newest_first(catalog: Catalog) -> None:
    first = catalog.raise_alert("lag_exceeded", "shop.totals is late.", TOTALS)
    second = catalog.raise_alert("falling_behind", "The service is late.")
    assert catalog.alerts() == [second, first]
    assert catalog.alerts(limit=1) == [second]
    assert (first.stream_table, second.stream_table) == (TOTALS, None)


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
