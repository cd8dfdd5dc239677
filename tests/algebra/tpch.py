"""TPC-H on DuckDB: small dbgen data, and changes on all eight tables."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

import duckdb

from headrace import bench
from headrace.plan.hidden import WEIGHT
from headrace.sql.analysis import Column, Table
from headrace.sql.names import TableName

QUERIES = Path(bench.__file__).parent / "tpch_queries"
TABLES = ("customer", "lineitem", "nation", "orders", "part", "partsupp", "region", "supplier")


def texts() -> dict[str, str]:
    return {path.stem: path.read_text() for path in sorted(QUERIES.glob("q*.sql"))}


def generate(folder: Path, scale: str) -> None:
    """Make the eight tables with tpchgen-cli, as Parquet files."""
    program = Path(sys.executable).with_name("tpchgen-cli")
    subprocess.run([program, "parquet", "-s", scale, "--output-dir", folder], check=True, capture_output=True)


@dataclass
class Warehouse:
    """The tables at their old and new states in DuckDB."""

    connection: duckdb.DuckDBPyConnection
    random: Random
    tables: Sequence[str] = TABLES

    @classmethod
    def load(cls, folder: Path, seed: int, tables: Sequence[str] = TABLES) -> Warehouse:
        connection = duckdb.connect(":memory:")
        connection.execute("SET threads = 1")
        connection.execute("CREATE MACRO raise_error(m) AS error(m)")
        for table in tables:
            connection.execute(f"CREATE TABLE {table}_new AS SELECT * FROM '{folder}/{table}.parquet'")
        return cls(connection, Random(seed), tables)

    def resolve(self, name: TableName) -> Table | None:
        if name.table not in self.tables:
            return None
        rows = self.connection.execute(f"DESCRIBE {name.table}_new").fetchall()
        return Table(name, tuple(Column(row[0], row[1].lower()) for row in rows))

    def run(self, sql: str) -> Counter[tuple[object, ...]]:
        return Counter(self.connection.execute(sql).fetchall())

    def change(self, share: float) -> None:
        """Delete, insert, update and re-key rows of every table."""
        for table in self.tables:
            self.connection.execute(f"CREATE OR REPLACE TABLE {table}_old AS FROM {table}_new")
            columns = [row[0] for row in self.connection.execute(f"DESCRIBE {table}_new").fetchall()]
            # A draw from a small table may take nothing, or give all of it back as it was.
            while not self._changed(table, columns, share):
                pass

    def _changed(self, table: str, columns: Sequence[str], share: float) -> bool:
        """Change one table, from its old state on, and tell whether it is another now."""
        run, salt = self.connection.execute, self.random.randrange(1_000_000)
        run(f"CREATE OR REPLACE TABLE {table}_new AS FROM {table}_old")
        # Small tables would never change at a small share.
        ((count,),) = run(f"SELECT count(*) FROM {table}_new").fetchall()
        portion = max(share, 2.5 / max(1, count))
        limit = int(portion * 1000) + 1
        draw = f"hash({', '.join(columns)}, {salt}) % 1000 < {limit}"
        run(f"CREATE OR REPLACE TEMP TABLE victims AS FROM {table}_new WHERE {draw}")
        run(f"DELETE FROM {table}_new WHERE {draw}")
        # Two thirds come back: as they were, with another key, or with values of another victim.
        shuffled = self.random.choice(columns)
        others = ", ".join(
            f"lead({c}, 1, {c}) OVER () AS {c}" if c in (columns[0], shuffled) else c for c in columns
        )
        kept = f"hash({columns[-1]}, {salt}) % 3 > 0"
        run(f"INSERT INTO {table}_new SELECT {others} FROM victims WHERE {kept}")
        # Rows that went in earlier rounds come as new ones, but for those that are there again.
        run(f"CREATE TEMP TABLE IF NOT EXISTS {table}_gone AS FROM {table}_new LIMIT 0")
        run(f"INSERT INTO {table}_new (FROM {table}_gone EXCEPT FROM {table}_old) EXCEPT FROM {table}_new")
        run(f"CREATE OR REPLACE TEMP TABLE {table}_gone AS FROM victims WHERE NOT ({kept})")
        listed = ", ".join(columns)
        run(
            f"CREATE OR REPLACE TABLE {table}_change AS SELECT {listed}, SUM(w)::BIGINT AS {WEIGHT} FROM "
            f"(SELECT *, 1 AS w FROM {table}_new UNION ALL SELECT *, -1 AS w FROM {table}_old) "
            f"GROUP BY {listed} HAVING SUM(w) <> 0"
        )
        return bool(run(f"FROM {table}_change LIMIT 1").fetchall())
