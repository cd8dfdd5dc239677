"""Stream tables to put into a catalog."""

from __future__ import annotations

from typing import Any

from headrace.catalog import Dependency, NewStreamTable, RefreshMode
from headrace.sql.names import TableName, parse_name

ORDERS = TableName("shop", "orders")
TOTALS = TableName("shop", "totals")
TOP = TableName("shop", "top")


def new_table(name: TableName | str = TOTALS, **fields: Any) -> NewStreamTable:
    values: dict[str, Any] = {
        "name": parse_name(name) if isinstance(name, str) else name,
        "query": "SELECT customer, sum(price) AS total FROM orders GROUP BY customer",
        "expanded_query": "SELECT customer, sum(price) AS total FROM shop.orders GROUP BY customer",
        "current_schema": "shop",
        "columns": (("customer", "bigint"), ("total", "decimal(20,2)")),
        "refresh_mode": RefreshMode.AUTO,
        "effective_mode": "FULL",
        "mode_reason": "incremental refresh was not asked for",
        "schedule": "1 minute",
        "location": "/lake/shop/totals",
    }
    return NewStreamTable(**(values | fields))


def reads(table: TableName, source: TableName, kind: Any = "TABLE") -> Dependency:
    return Dependency(table, source, kind, ("customer", "price"))
