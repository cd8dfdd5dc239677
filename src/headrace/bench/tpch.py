"""The 22 queries of TPC-H while all eight tables change."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession

from headrace.bench.workload import Cell
from headrace.errors import HeadraceError

_TEXTS = Path(__file__).parent / "tpch_queries"
QUERIES = tuple(sorted(path.stem for path in _TEXTS.glob("q*.sql")))
_GENERATOR = "tpchgen-cli"

# The key of each table, and what an update sets; orders and their lines come and go together.
_TABLES = {
    "orders": ("o_orderkey", "o_totalprice = o_totalprice + 1, o_shippriority = o_shippriority + 1"),
    "lineitem": ("l_orderkey", "l_quantity = pmod(l_quantity, 50) + 1, l_discount = 0.11 - l_discount"),
    "customer": ("c_custkey", "c_acctbal = c_acctbal + 1"),
    "part": ("p_partkey", "p_size = pmod(p_size, 50) + 1"),
    "partsupp": ("ps_partkey", "ps_supplycost = ps_supplycost + 1, ps_availqty = ps_availqty + 1"),
    "supplier": ("s_suppkey", "s_acctbal = s_acctbal + 1"),
}
# Too small for a share of them: one row of each changes.
_TINY = {"nation": "n_nationkey", "region": "r_regionkey"}
# Keys of inserted rows, apart from those of the generator, whatever the scale.
_NEW_KEYS = 1_000_000_000


@dataclass
class Tpch:
    """The eight tables as Delta tables, changed round by round."""

    spark: SparkSession
    properties: Mapping[str, str]
    schema: str = "tpch"
    rows: int = 0
    """How many lines there are, of which a share changes."""
    _round: int = 0

    def load(self, scale: str) -> None:
        """Make data of a scale, and the tables of it."""
        self.spark.sql(f"CREATE SCHEMA IF NOT EXISTS {self.schema}")
        with tempfile.TemporaryDirectory() as folder:
            command = [_generator(), "parquet", "-s", scale, "--output-dir", folder]
            subprocess.run(command, check=True, capture_output=True)
            for table in [*_TABLES, *_TINY]:
                rows = self.spark.read.parquet(f"{folder}/{table}.parquet")
                writer = rows.write.format("delta").options(**self.properties)
                writer.saveAsTable(f"{self.schema}.{table}")
        self.spark.sql(
            f"CREATE TABLE {self.schema}.appended USING delta AS SELECT * FROM {self.schema}.lineitem LIMIT 0"
        )
        self.rows = self.spark.table(f"{self.schema}.lineitem").count()
        # The texts name their tables without a schema.
        self.spark.sql(f"USE {self.schema}")

    def query(self, name: str) -> str:
        return (_TEXTS / f"{name}.sql").read_text(encoding="utf-8")

    def change(self, cell: Cell) -> None:
        """Delete, update and insert a third of the share each, in every table."""
        self._round += 1
        one_in = max(1, round(3 / cell.share))
        for table, (key, update) in _TABLES.items():
            name = f"{self.schema}.{table}"
            chosen = [f"pmod(xxhash64({key}, {self._round}), {one_in}) = {each}" for each in range(3)]
            others = ", ".join(column for column in self.spark.table(name).columns if column != key)
            new_key = f"{key} + {self._round * _NEW_KEYS} AS {key}"
            copies = f"SELECT {new_key}, {others} FROM {name} WHERE {chosen[2]}"
            self.spark.sql(f"DELETE FROM {name} WHERE {chosen[0]}")
            self.spark.sql(f"UPDATE {name} SET {update} WHERE {chosen[1]}")
            self.spark.sql(f"INSERT INTO {name} BY NAME {copies}")
        for table, key in _TINY.items():
            comment = f"{table[0]}_comment"
            self.spark.sql(
                f"UPDATE {self.schema}.{table} SET {comment} = concat({comment}, '.') "
                f"WHERE {key} = {self._round % 5}"
            )

    def append(self, count: int) -> None:
        rows = self.spark.table(f"{self.schema}.lineitem").limit(count)
        rows.coalesce(1).write.format("delta").mode("append").saveAsTable(f"{self.schema}.appended")


def can_generate() -> bool:
    """Tell whether the program that makes the data is installed."""
    return _found_generator() is not None


def _generator() -> str:
    found = _found_generator()
    if found is None:
        raise HeadraceError(
            "missing_package",
            f"The data of TPC-H are made by {_GENERATOR}, which is not installed.",
            hint=f"Install it with: pip install {_GENERATOR}",
        )
    return found


def _found_generator() -> str | None:
    """Find the program beside Python, where pip puts it, or on the PATH."""
    return shutil.which(_GENERATOR, path=str(Path(sys.executable).parent)) or shutil.which(_GENERATOR)
