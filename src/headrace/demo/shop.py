"""The shop's tables, made by Spark itself from row numbers: the same rows on every machine.

Products sell unevenly, as they do (a few carry most lines), and what is unknown is NULL: guests have no
customer, some customers no segment, most lines no discount.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

SCHEMA = "shop"
# On the base tables, so that a later run knows that it may replace them.
OWNERSHIP = "headrace.demo"
FIRST_DAY = "DATE'2026-01-01'"
DAYS = 90


@dataclass(frozen=True)
class Shop:
    """How many rows each table of the shop holds; every order has four lines.

    >>> Shop(200_001).order_lines
    200004
    """

    wanted_lines: int

    @property
    def orders(self) -> int:
        return max(math.ceil(self.wanted_lines / 4), 1)

    @property
    def order_lines(self) -> int:
        return 4 * self.orders

    @property
    def customers(self) -> int:
        return max(self.order_lines // 20, 1)

    @property
    def products(self) -> int:
        return max(self.order_lines // 200, 1)


def create_tables(shop: Shop) -> dict[str, str]:
    """Return the statement that makes each base table, in an order that works."""
    queries = {
        "customers": customers(shop),
        "products": products(shop),
        "orders": orders(shop, first=0, count=shop.orders),
        "order_lines": order_lines(shop, first=0, count=shop.order_lines),
    }
    return {
        f"{SCHEMA}.{table}": (
            f"CREATE TABLE {SCHEMA}.{table} USING delta TBLPROPERTIES ('{OWNERSHIP}' = 'true') AS\n{query}"
        )
        for table, query in queries.items()
    }


def customers(shop: Shop) -> str:
    return f"""
        SELECT id AS customer_id,
               concat('Customer ', id) AS name,
               elt({pick("id", "segment", 4)} + 1, 'retail', 'business', 'public', NULL) AS segment,
               elt(CAST({skewed("id", "country", 5)} AS INT) + 1, 'DE', 'FR', 'IT', 'AT', 'CH') AS country
        FROM range({shop.customers})"""


def products(shop: Shop) -> str:
    return f"""
        SELECT id AS product_id,
               concat('Product ', id) AS name,
               concat('category ', lpad({pick("id", "category", 24)}, 2, '0')) AS category,
               CAST(1 + {pick("id", "price", 20_000)} / 100 AS DECIMAL(10, 2)) AS list_price
        FROM range({shop.products})"""


def orders(shop: Shop, *, first: int, count: int) -> str:
    """Select `count` orders from number `first` on; one in twenty has no customer."""
    return f"""
        SELECT id AS order_id,
               CASE WHEN {pick("id", "guest", 20)} = 0 THEN NULL
                    ELSE {skewed("id", "customer", shop.customers)} END AS customer_id,
               date_add({FIRST_DAY}, {pick("id", "day", DAYS)}) AS order_date,
               CASE WHEN {pick("id", "status", 50)} = 0 THEN 'cancelled' ELSE 'placed' END AS status
        FROM range({first}, {first + count})"""


def order_lines(shop: Shop, *, first: int, count: int) -> str:
    """Select `count` lines from number `first` on, four to an order."""
    return f"""
        SELECT id AS line_id,
               id DIV 4 AS order_id,
               {skewed("id", "product", shop.products)} AS product_id,
               CAST(1 + {pick("id", "quantity", 5)} AS INT) AS quantity,
               CAST(1 + {pick("id", "price", 20_000)} / 100 AS DECIMAL(10, 2)) AS unit_price,
               CASE WHEN {pick("id", "discount", 10)} < 3
                    THEN CAST({pick("id", "percent", 30)} / 100 AS DECIMAL(4, 2)) END AS discount
        FROM range({first}, {first + count})"""


def pick(column: str, purpose: str, choices: int) -> str:
    """Write an expression that gives each row one of 0 … choices - 1, evenly and always the same.

    >>> pick("id", "day", 90)
    "CAST(pmod(xxhash64(id, 'day'), 90) AS INT)"
    """
    return f"CAST(pmod(xxhash64({column}, '{purpose}'), {choices}) AS INT)"


def skewed(column: str, purpose: str, choices: int) -> str:
    """Write an expression like `pick` that favours small numbers: the first eighth gets half of the rows."""
    return f"CAST({choices} * pow({pick(column, purpose, 1_000_000)} / 1e6, 3) AS BIGINT)"
