"""What happens in the shop between two refreshes: orders come in, are corrected, cancelled and taken back."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.demo.shop import SCHEMA, Shop, order_lines, orders, pick


@dataclass(frozen=True)
class Change:
    """One writing statement, with what its rows are in the shop's own words.

    Delta tells how many rows an UPDATE or DELETE touched; for an INSERT, `rows` does.
    """

    what: str
    statement: str
    rows: int | None = None


def changes_of_round(shop: Shop, number: int) -> tuple[Change, ...]:
    """Return the writes of one round, counted from 1: about one line in a hundred is touched.

    >>> [(change.rows, change.what) for change in changes_of_round(Shop(200_000), 1)][:2]
    [(500, 'new orders'), (2000, 'new lines')]
    """
    new_orders = max(shop.orders // 100, 1)
    first_order = shop.orders + (number - 1) * new_orders
    return (
        Change(
            "new orders",
            f"INSERT INTO {SCHEMA}.orders {orders(shop, first=first_order, count=new_orders)}",
            new_orders,
        ),
        Change(
            "new lines",
            f"INSERT INTO {SCHEMA}.order_lines "
            f"{order_lines(shop, first=4 * first_order, count=4 * new_orders)}",
            4 * new_orders,
        ),
        Change(
            "prices corrected",
            f"UPDATE {SCHEMA}.order_lines SET unit_price = unit_price + 1, discount = NULL "
            f"WHERE {touched('line_id', 'price', number, 500)}",
        ),
        Change(
            "orders cancelled or placed again",
            f"UPDATE {SCHEMA}.orders "
            "SET status = CASE status WHEN 'placed' THEN 'cancelled' ELSE 'placed' END "
            f"WHERE {touched('order_id', 'status', number, 400)}",
        ),
        Change(
            "customers in another segment",
            f"UPDATE {SCHEMA}.customers "
            "SET segment = CASE WHEN segment IS NULL THEN 'retail' WHEN segment = 'retail' THEN 'public' END "
            f"WHERE {touched('customer_id', 'segment', number, 300)}",
        ),
        Change(
            "lines taken back",
            f"DELETE FROM {SCHEMA}.order_lines WHERE {touched('line_id', 'return', number, 600)}",
        ),
    )


def touched(column: str, purpose: str, number: int, one_in: int) -> str:
    """Write a condition that holds for one row in `one_in`, others in each round."""
    return f"{pick(column, f'{purpose} {number}', one_in)} = 0"
