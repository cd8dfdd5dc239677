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

from headrace.plan.hidden import WEIGHT
from headrace.sql.analysis import Column, Table
from headrace.sql.names import TableName

QUERIES = Path(__file__).parent.parent / "fixtures" / "tpch"
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
            # Small tables would never change at a small share.
            count = self.connection.execute(f"SELECT count(*) FROM {table}_new").fetchone()
            portion = max(share, 2.5 / max(1, count[0] if count else 1))
            limit = int(portion * 1000) + 1
            salt = self.random.randrange(1_000_000)
            draw = f"hash({', '.join(columns)}, {salt}) % 1000 < {limit}"
            self.connection.execute(f"CREATE OR REPLACE TEMP TABLE victims AS FROM {table}_new WHERE {draw}")
            self.connection.execute(f"DELETE FROM {table}_new WHERE {draw}")
            # Two thirds come back: as they were, with another key, or with values of another victim.
            shuffled = self.random.choice(columns)
            others = ", ".join(
                f"lead({c}, 1, {c}) OVER () AS {c}" if c in (columns[0], shuffled) else c for c in columns
            )
            kept = f"hash({columns[-1]}, {salt}) % 3 > 0"
            self.connection.execute(f"INSERT INTO {table}_new SELECT {others} FROM victims WHERE {kept}")
            listed = ", ".join(columns)
            self.connection.execute(
                f"CREATE OR REPLACE TABLE {table}_change AS "
                f"SELECT {listed}, SUM(w)::BIGINT AS {WEIGHT} FROM ("
                f"SELECT *, 1 AS w FROM {table}_new UNION ALL SELECT *, -1 AS w FROM {table}_old) "
                f"GROUP BY {listed} HAVING SUM(w) <> 0"
            )
