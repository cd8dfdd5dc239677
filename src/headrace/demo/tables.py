"""The stream tables over the shop: sales, what they add up to, and what those add up to."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.demo.shop import SCHEMA


@dataclass(frozen=True)
class Definition:
    """A stream table of the demonstration."""

    name: str
    level: int
    query: str

    @property
    def statement(self) -> str:
        return f"CREATE STREAM TABLE {self.name}\n  SCHEDULE '1 minute'\nAS {self.query}"


SALES = Definition(
    f"{SCHEMA}.sales",
    1,
    f"""SELECT l.line_id, l.order_id, o.order_date, o.customer_id, l.product_id, p.category,
       coalesce(c.segment, 'unknown') AS segment, c.country, l.quantity,
       CAST(l.quantity * l.unit_price * (1 - coalesce(l.discount, 0)) AS DECIMAL(14, 2)) AS amount
FROM {SCHEMA}.order_lines AS l
JOIN {SCHEMA}.orders AS o ON o.order_id = l.order_id
JOIN {SCHEMA}.products AS p ON p.product_id = l.product_id
LEFT JOIN {SCHEMA}.customers AS c ON c.customer_id = o.customer_id
WHERE o.status <> 'cancelled'""",
)

PRODUCT_DAYS = Definition(
    f"{SCHEMA}.product_days",
    2,
    f"""SELECT product_id, category, order_date,
       count(*) AS lines, sum(quantity) AS quantity, sum(amount) AS revenue
FROM {SCHEMA}.sales
GROUP BY product_id, category, order_date""",
)

CUSTOMER_REVENUE = Definition(
    f"{SCHEMA}.customer_revenue",
    2,
    f"""SELECT customer_id, segment, country,
       count(DISTINCT order_id) AS orders, sum(amount) AS revenue, max(order_date) AS last_order
FROM {SCHEMA}.sales
GROUP BY customer_id, segment, country""",
)

TOP_CATEGORIES = Definition(
    f"{SCHEMA}.top_categories",
    3,
    f"""SELECT category, revenue, quantity, rank() OVER (ORDER BY revenue DESC) AS place
FROM (SELECT category, sum(revenue) AS revenue, sum(quantity) AS quantity
      FROM {SCHEMA}.product_days
      GROUP BY category) AS totals""",
)

SEGMENTS = Definition(
    f"{SCHEMA}.segments",
    3,
    f"""SELECT segment, count(*) AS customers, sum(orders) AS orders, sum(revenue) AS revenue,
       max(last_order) AS last_order
FROM {SCHEMA}.customer_revenue
GROUP BY segment
HAVING sum(orders) > 0""",
)

# Each after those that it reads.
STREAM_TABLES = (SALES, PRODUCT_DAYS, CUSTOMER_REVENUE, TOP_CATEGORIES, SEGMENTS)
