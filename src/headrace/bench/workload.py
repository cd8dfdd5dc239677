"""What is measured: a table of sales with its customers, queries over them, and changes of both patterns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeAlias

from pyspark.sql import SparkSession

Pattern: TypeAlias = Literal["uniform", "recent"]
Kind: TypeAlias = Literal["mixed", "adds"]

PATTERNS: tuple[Pattern, ...] = ("uniform", "recent")
QUERIES = {
    "scan": "SELECT id, customer, product, quantity, amount, status, sold_at FROM {sales}",
    "filter": "SELECT id, customer, product, amount, sold_at FROM {sales} WHERE status <> 'open'",
    "join": """SELECT s.id, s.product, s.amount, s.sold_at, c.name, c.region
        FROM {sales} s JOIN {customers} c ON s.customer = c.id""",
    "aggregate": """SELECT customer, count(*) AS sales, sum(quantity) AS pieces, sum(amount) AS turnover
        FROM {sales} GROUP BY customer""",
    "join + aggregate": """SELECT c.region, s.product, count(*) AS sales, sum(s.amount) AS turnover
        FROM {sales} s JOIN {customers} c ON s.customer = c.id GROUP BY c.region, s.product""",
    "window": """SELECT id, customer, amount,
        row_number() OVER (PARTITION BY customer ORDER BY amount DESC, id) AS place FROM {sales}""",
    "distinct": "SELECT DISTINCT customer, status FROM {sales}",
    "left join": """SELECT s.id, s.product, s.amount, s.sold_at, c.name, c.region
        FROM {sales} s LEFT JOIN {customers} c ON s.customer = c.id""",
}
# Properties that source tables may have.
SOURCES = {
    "feed": {"delta.enableChangeDataFeed": "true"},
    "vectors": {"delta.enableDeletionVectors": "true"},
    "plain": {"delta.enableDeletionVectors": "false"},
}
# The newest part of the table, where most tables change; it is larger where more than that changes.
RECENT_SHARE = 0.02
# Sales a customer has on average; some customers are unknown, for outer joins.
_SALES_EACH = 50
_KNOWN = 0.98
# One customer moves for so many changed sales, which adds about a tenth to the change of a join.
_SALES_OF_ONE_MOVE = 10 * _SALES_EACH

_SALE = """
    {id} AS id,
    CAST(pmod(xxhash64({id}, {seed}, 1), {customers}) AS INT) AS customer,
    CAST(pmod(xxhash64({id}, {seed}, 2), 1000) AS INT) AS product,
    CAST(pmod(xxhash64({id}, {seed}, 3), 9) + 1 AS INT) AS quantity,
    CAST(pmod(xxhash64({id}, {seed}, 4), 100000) / 100 AS DECIMAL(10, 2)) AS amount,
    element_at(array('open', 'paid', 'sent', 'done'), CAST(pmod(xxhash64({id}, {seed}, 5), 4) + 1 AS INT))
        AS status,
    timestamp_seconds(1700000000 + {id}) AS sold_at
"""


@dataclass(frozen=True)
class Cell:
    """How large the table and its change are, and where in the table the change falls."""

    rows: int
    share: float
    pattern: Pattern
    kind: Kind = "mixed"

    @property
    def changes(self) -> int:
        return max(1, round(self.rows * self.share))


class Changing(Protocol):
    """Sources that change on demand, and queries over them."""

    @property
    def schema(self) -> str: ...

    @property
    def rows(self) -> int: ...

    def query(self, name: str) -> str: ...

    def change(self, cell: Cell) -> None: ...

    def append(self, count: int) -> None:
        """Append so many rows to a table that nothing reads, as a measure of the machine."""


@dataclass
class Workload:
    """A schema with `sales` of a given size and `customers`, changed round by round."""

    spark: SparkSession
    schema: str
    rows: int
    properties: Mapping[str, str] = field(default_factory=lambda: SOURCES["feed"])
    both_sides: bool = False
    """Whether customers change too, so that both sides of the joins do."""
    _next_id: int = 0
    _seed: int = 0

    @property
    def sales(self) -> str:
        return f"{self.schema}.sales"

    @property
    def customers(self) -> str:
        return f"{self.schema}.customers"

    def query(self, name: str) -> str:
        return QUERIES[name].format(sales=self.sales, customers=self.customers)

    def load(self) -> None:
        """Create both tables; ids and times grow together, as they do in a table that is added to.

        Where they are already, go on with them.
        """
        if self.spark.catalog.tableExists(f"{self.schema}.appended"):
            (newest,) = self.spark.sql(f"SELECT MAX(id) FROM {self.sales}").collect()
            # As a seed it is one that no round before had.
            self._next_id = self._seed = newest[0] + 1
            return
        self.spark.sql(f"CREATE SCHEMA IF NOT EXISTS {self.schema}")
        self._create(self.sales, f"SELECT {self._sale('id')} FROM range({self.rows})")
        known = max(1, int(self._customer_count * _KNOWN))
        self._create(
            self.customers,
            f"SELECT CAST(id AS INT) AS id, concat('customer ', id) AS name, CAST(id % 10 AS INT) AS region "
            f"FROM range({known})",
        )
        self._next_id = self.rows
        self._create(f"{self.schema}.appended", f"SELECT * FROM {self.sales} LIMIT 0")

    def change(self, cell: Cell) -> None:
        """Change rows of the cell: a third each inserted, updated and deleted, or all of them inserted."""
        self._seed += 1
        share = 1.0 if cell.kind == "adds" else 1 / 3
        inserted = max(1, round(cell.changes * share))
        if cell.kind == "mixed":
            self.spark.sql(f"DELETE FROM {self.sales} WHERE {self._some(inserted, cell.pattern, 0)}")
            self.spark.sql(
                f"UPDATE {self.sales} SET amount = amount + 1, quantity = quantity + 1 "
                f"WHERE {self._some(inserted, cell.pattern, 1)}"
            )
        if self.both_sides:
            self._move_customers(max(1, cell.changes // _SALES_OF_ONE_MOVE))
        first = self._next_id
        self._next_id += inserted
        self._append(self.sales, first, inserted)

    def append(self, count: int) -> None:
        self._append(f"{self.schema}.appended", 0, count)

    def _append(self, table: str, first: int, count: int) -> None:
        """Append rows as a plain Spark write does."""
        rows = self.spark.sql(f"SELECT {self._sale('id')} FROM range({first}, {first + count})")
        rows.coalesce(1).write.format("delta").mode("append").saveAsTable(table)

    @property
    def _customer_count(self) -> int:
        return max(10, self.rows // _SALES_EACH)

    def _create(self, table: str, query: str) -> None:
        properties = ", ".join(f"'{name}' = '{value}'" for name, value in self.properties.items())
        self.spark.sql(f"CREATE TABLE {table} USING delta TBLPROPERTIES ({properties}) AS {query}")

    def _sale(self, id_: str) -> str:
        return _SALE.format(id=id_, seed=self._seed, customers=self._customer_count)

    def _some(self, count: int, pattern: Pattern, which: int) -> str:
        """A condition that about `count` rows meet, all over the table or in its newest part.

        No row meets it for two values of `which`. Where more change than is in the newest part, that is
        as large as the whole change, which needs three times as many rows.
        """
        newest = max(int(self._next_id * RECENT_SHARE), 3 * count)
        span = self._next_id if pattern == "uniform" else min(self._next_id, newest)
        steps = max(2, span // max(1, count))
        return f"id >= {self._next_id - span} AND pmod(xxhash64(id, {self._seed}), {steps}) = {which}"

    def _move_customers(self, count: int) -> None:
        """Let customers all over the table move to another region, and so all that they bought."""
        steps = max(1, self._customer_count // count)
        self.spark.sql(
            f"UPDATE {self.customers} SET region = (region + 1) % 10 "
            f"WHERE pmod(xxhash64(id, {self._seed}), {steps}) = 0"
        )
