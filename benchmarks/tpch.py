"""Measure refreshes of the 22 queries of TPC-H while all eight tables change.

Stream tables of one query in every mode read the same changes, refreshed in turn; every result is compared
with its query. `python benchmarks/tpch.py --help` lists the options.
"""

from __future__ import annotations

import argparse
import logging
import subprocess
import sys
import tempfile
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession

import headrace
from headrace.bench.matrix import MODES, Matrix
from headrace.bench.measure import DRIVER_MEMORY, as_table, geometric_mean, write_results
from headrace.bench.workload import Cell

TEXTS = Path(__file__).parent.parent / "tests" / "fixtures" / "tpch"

# The key of each table, and what an update sets; orders and their lines come and go together.
TABLES = {
    "orders": ("o_orderkey", "o_totalprice = o_totalprice + 1, o_shippriority = o_shippriority + 1"),
    "lineitem": ("l_orderkey", "l_quantity = pmod(l_quantity, 50) + 1, l_discount = 0.11 - l_discount"),
    "customer": ("c_custkey", "c_acctbal = c_acctbal + 1"),
    "part": ("p_partkey", "p_size = pmod(p_size, 50) + 1"),
    "partsupp": ("ps_partkey", "ps_supplycost = ps_supplycost + 1, ps_availqty = ps_availqty + 1"),
    "supplier": ("s_suppkey", "s_acctbal = s_acctbal + 1"),
}
# Too small for a share of them: one row of each changes.
TINY = {"nation": "n_nationkey", "region": "r_regionkey"}
# Properties of the source tables.
SOURCES = {
    "feed": {"delta.enableChangeDataFeed": "true"},
    "vectors": {"delta.enableDeletionVectors": "true"},
    "plain": {"delta.enableDeletionVectors": "false"},
}
# Keys of inserted rows, apart from those of the generator, whatever the scale.
NEW_KEYS = 1_000_000_000


@dataclass
class Tpch:
    """The eight tables as Delta tables, changed round by round."""

    spark: SparkSession
    source: str = "feed"
    schema: str = "tpch"
    _round: int = 0

    def load(self, scale: str) -> None:
        self.spark.sql(f"CREATE SCHEMA IF NOT EXISTS {self.schema}")
        with tempfile.TemporaryDirectory() as folder:
            program = Path(sys.executable).with_name("tpchgen-cli")
            subprocess.run(
                [program, "parquet", "-s", scale, "--output-dir", folder], check=True, capture_output=True
            )
            for table in [*TABLES, *TINY]:
                rows = self.spark.read.parquet(f"{folder}/{table}.parquet")
                writer = rows.write.format("delta").options(**SOURCES[self.source])
                writer.saveAsTable(f"{self.schema}.{table}")
        self.spark.sql(
            f"CREATE TABLE {self.schema}.appended USING delta AS SELECT * FROM {self.schema}.lineitem LIMIT 0"
        )
        # The texts name their tables without a schema.
        self.spark.sql(f"USE {self.schema}")

    def query(self, name: str) -> str:
        return (TEXTS / f"{name}.sql").read_text(encoding="utf-8")

    def change(self, cell: Cell) -> None:
        """Delete, update and insert a third of the share each, in every table."""
        self._round += 1
        one_in = max(1, round(3 / cell.share))
        for table, (key, update) in TABLES.items():
            name = f"{self.schema}.{table}"
            chosen = [f"pmod(xxhash64({key}, {self._round}), {one_in}) = {each}" for each in range(3)]
            others = ", ".join(column for column in self.spark.table(name).columns if column != key)
            new_key = f"{key} + {self._round * NEW_KEYS} AS {key}"
            copies = f"SELECT {new_key}, {others} FROM {name} WHERE {chosen[2]}"
            self.spark.sql(f"DELETE FROM {name} WHERE {chosen[0]}")
            self.spark.sql(f"UPDATE {name} SET {update} WHERE {chosen[1]}")
            self.spark.sql(f"INSERT INTO {name} BY NAME {copies}")
        for table, key in TINY.items():
            comment = f"{table[0]}_comment"
            self.spark.sql(
                f"UPDATE {self.schema}.{table} SET {comment} = concat({comment}, '.') "
                f"WHERE {key} = {self._round % 5}"
            )

    def append(self, count: int) -> None:
        rows = self.spark.table(f"{self.schema}.lineitem").limit(count)
        rows.coalesce(1).write.format("delta").mode("append").saveAsTable(f"{self.schema}.appended")


def main() -> None:
    options = _options()
    results: list[dict[str, object]] = []
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder,
        closing(headrace.connect(warehouse=folder, driver_memory=DRIVER_MEMORY)) as hr,
    ):
        tpch = Tpch(hr.spark, options.source)
        tpch.load(options.sf)
        lines = hr.spark.table("tpch.lineitem").count()
        matrix = Matrix(hr, tpch, options.queries, options.modes)
        matrix.create()
        for share in options.changes:
            print(f"scale {options.sf}, {share:.1%} changed", flush=True)
            found = list(matrix.measure(Cell(lines, share, "uniform"), options.rounds))
            results += found
            print(as_table(results), flush=True)
            if "speed-up" in found[0]:
                mean = geometric_mean(row["speed-up"] for row in found)
                print(f"geometric mean of the speed-ups at {share:.1%}: {mean:.2f}", flush=True)
            if options.write:
                write_results(options.write, vars(options), results)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sf", default="1", help="scale factor: 1 is about a gigabyte of text")
    parser.add_argument("--changes", type=float, nargs="+", default=[0.001, 0.01])
    names = sorted(path.stem for path in TEXTS.glob("q*.sql"))
    parser.add_argument("--queries", nargs="+", choices=names, default=names)
    parser.add_argument("--modes", nargs="+", choices=MODES, default=MODES)
    parser.add_argument("--source", choices=SOURCES, default="feed", help="properties of the source tables")
    parser.add_argument("--rounds", type=int, default=3, help="measured rounds after one to warm up")
    parser.add_argument("--write", type=Path, help="file for the results, as JSON")
    logging.getLogger("headrace").setLevel(logging.WARNING)
    return parser.parse_args()


if __name__ == "__main__":
    main()
