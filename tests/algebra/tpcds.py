"""TPC-DS on DuckDB: `python -m tests.algebra.tpcds` replays all 103 texts while all 24 tables change.

The texts and the data generator come with the TPC-DS extension of DuckDB, a package that is fetched once into
the user's cache, with the DuckDB it was made for. Four of the 99 queries have two variants; the ones that
the extension lacks are written here over its texts.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import duckdb
import sqlglot
from sqlglot import exp

from headrace.delta import Plan, State, compile_change, plan_query, query_sql
from headrace.plan.nodes import sources
from headrace.plan.repeatable import unrepeatable
from headrace.sql.analysis import Analysis, analyze
from tests.algebra.engine import bind
from tests.algebra.tpch import Warehouse

VERSION = "1.5.5"
PACKAGES = (f"duckdb=={VERSION}", f"duckdb-extension-tpcds=={VERSION}")
TABLES = (
    *("call_center", "catalog_page", "catalog_returns", "catalog_sales", "customer", "customer_address"),
    *("customer_demographics", "date_dim", "household_demographics", "income_band", "inventory", "item"),
    *("promotion", "reason", "ship_mode", "store", "store_returns", "store_sales", "time_dim", "warehouse"),
    *("web_page", "web_returns", "web_sales", "web_site"),
)
# Runs with the packages on its path: arguments are the folder to fill, the scale, WIDENED.
_GENERATE = """
import json, pathlib, sys
import duckdb, duckdb_extension_tpcds
folder, scale = pathlib.Path(sys.argv[1]), sys.argv[2]
found = pathlib.Path(duckdb_extension_tpcds.__file__).parent.glob("extensions/*/tpcds.duckdb_extension")
connection = duckdb.connect()
connection.execute("SET enable_progress_bar = false")
connection.execute(f"LOAD '{next(found)}'")
connection.execute(f"CALL dsdgen(sf={scale})")
for table, key, uses in json.loads(sys.argv[3]):
    copies = f"SELECT t.* REPLACE ({key} + n AS {key}) FROM {table} t, range(1, 6) r(n)"
    connection.execute(f"INSERT INTO {table} {copies}")
    for fact, column, by in uses:
        connection.execute(f"UPDATE {fact} SET {column} = 1 + {by} % 6 WHERE {column} IS NOT NULL")
for (table,) in connection.execute("SELECT table_name FROM duckdb_tables()").fetchall():
    connection.execute(f"COPY {table} TO '{folder}/{table}.parquet'")
texts = dict(connection.execute("SELECT query_nr, query FROM tpcds_queries()").fetchall())
(folder / "queries.json").write_text(json.dumps(texts))
"""
# Dimensions of one row at small scales, and what refers to them: of six rows some change and some stay.
WIDENED = (
    ("store", "s_store_sk", [("store_sales", "ss_store_sk", "ss_ticket_number")]),
    ("call_center", "cc_call_center_sk", [("catalog_sales", "cs_call_center_sk", "cs_order_number")]),
    ("web_site", "web_site_sk", [("web_sales", "ws_web_site_sk", "ws_order_number")]),
    ("web_page", "wp_web_page_sk", [("web_sales", "ws_web_page_sk", "ws_item_sk")]),
    (
        *("warehouse", "w_warehouse_sk"),
        [
            ("catalog_sales", "cs_warehouse_sk", "cs_order_number"),
            ("web_sales", "ws_warehouse_sk", "ws_order_number"),
            ("inventory", "inv_warehouse_sk", "inv_item_sk"),
        ],
    ),
    ("reason", "r_reason_sk", [("store_returns", "sr_reason_sk", "sr_ticket_number")]),
)
# Variant b of query 14: a week of December against the same week of the year before.
_WEEK = """
SELECT 'store' AS channel, i_brand_id, i_class_id, i_category_id,
       SUM(ss_quantity * ss_list_price) AS sales, COUNT(*) AS number_sales
FROM store_sales, item, date_dim
WHERE ss_item_sk IN (SELECT ss_item_sk FROM cross_items) AND ss_item_sk = i_item_sk
  AND ss_sold_date_sk = d_date_sk
  AND d_week_seq = (SELECT d_week_seq FROM date_dim WHERE d_year = {year} AND d_moy = 12 AND d_dom = 11)
GROUP BY i_brand_id, i_class_id, i_category_id
HAVING SUM(ss_quantity * ss_list_price) > (SELECT average_sales FROM avg_sales)
"""
_Q14B = f"""
SELECT now.channel, now.i_brand_id, now.i_class_id, now.i_category_id, now.sales, now.number_sales,
       past.channel AS then_channel, past.i_brand_id AS then_brand_id, past.i_class_id AS then_class_id,
       past.i_category_id AS then_category_id, past.sales AS then_sales, past.number_sales AS then_number
FROM ({_WEEK.format(year=2000)}) AS now, ({_WEEK.format(year=1999)}) AS past
WHERE now.i_brand_id = past.i_brand_id AND now.i_class_id = past.i_class_id
  AND now.i_category_id = past.i_category_id
ORDER BY now.channel, now.i_brand_id, now.i_class_id, now.i_category_id
LIMIT 100
"""
# Variant a of query 23: the total alone.
_Q23A = """
SELECT SUM(sales) AS total FROM (
  SELECT cs_quantity * cs_list_price AS sales FROM catalog_sales, date_dim
  WHERE d_year = 2000 AND d_moy = 2 AND cs_sold_date_sk = d_date_sk
    AND cs_item_sk IN (SELECT item_sk FROM frequent_ss_items)
    AND cs_bill_customer_sk IN (SELECT c_customer_sk FROM best_ss_customer)
  UNION ALL
  SELECT ws_quantity * ws_list_price AS sales FROM web_sales, date_dim
  WHERE d_year = 2000 AND d_moy = 2 AND ws_sold_date_sk = d_date_sk
    AND ws_item_sk IN (SELECT item_sk FROM frequent_ss_items)
    AND ws_bill_customer_sk IN (SELECT c_customer_sk FROM best_ss_customer)
) AS channels
LIMIT 100
"""


def prepared(scale: str = "0.01") -> Path:
    """The folder with the texts and the tables as Parquet files, made at the first call."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "headrace" / "tpcds"
    recipe = hashlib.sha256(f"{_GENERATE}{WIDENED}".encode()).hexdigest()[:8]
    folder = base / f"{VERSION}-{scale}-{recipe}"
    if folder.exists():
        return folder
    packages, unfinished = base / f"packages-{VERSION}", base / f"unfinished-{os.getpid()}"
    unfinished.mkdir(parents=True)
    if not packages.exists():
        fetched = unfinished / "packages"
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(fetched), *PACKAGES]
        subprocess.run(command, check=True)
        fetched.rename(packages)
    environment = {**os.environ, "PYTHONPATH": str(packages)}
    command = [sys.executable, "-c", _GENERATE, str(unfinished), scale, json.dumps(WIDENED)]
    subprocess.run(command, check=True, env=environment)
    unfinished.rename(folder)
    return folder


def texts(folder: Path) -> dict[str, str]:
    """The 103 texts in Spark's dialect, by name: q01 to q99, those of two variants with a letter."""
    given = {int(n): text for n, text in json.loads((folder / "queries.json").read_text()).items()}
    trees = {f"q{n:02}": sqlglot.parse_one(text, dialect="duckdb") for n, text in given.items()}
    q14, q23, q24, q39 = (trees.pop(name) for name in ("q14", "q23", "q24", "q39"))
    trees |= {"q14a": q14, "q14b": _over(q14, _Q14B), "q23a": _over(q23, _Q23A), "q23b": q23}
    other_color = q24.transform(lambda e: exp.Literal.string("saddle") if e.name == "peach" else e)
    trees |= {"q24a": q24, "q24b": other_color}
    assert isinstance(q39, exp.Select)
    trees |= {"q39a": q39, "q39b": q39.where("inv1.cov > 1.5")}
    return {name: tree.sql(dialect="spark", pretty=True) for name, tree in sorted(trees.items())}


def _over(query: exp.Expr, main: str) -> exp.Expr:
    """Another SELECT over the CTEs of a query."""
    tree = sqlglot.parse_one(main, dialect="duckdb")
    tree.set("with_", query.args["with_"].copy())
    return tree


@dataclass
class Replay:
    """Queries over the warehouse while all tables change, and what they met."""

    warehouse: Warehouse
    plans: Mapping[str, Plan]
    filled: Counter[str] = field(default_factory=Counter)
    moved: Counter[str] = field(default_factory=Counter)
    compared: Counter[str] = field(default_factory=Counter)

    @classmethod
    def of(cls, folder: Path, names: Iterable[str] | None = None, *, seed: int = 1) -> Replay:
        warehouse = Warehouse.load(folder, seed, TABLES)
        every = texts(folder)
        return cls(warehouse, {n: plan_query(analysis(every[n], warehouse)) for n in names or every})

    def check(self, name: str) -> None:
        """Assert that the change leads from the old result to the new one, which is the text's own."""
        plan = self.plans[name]
        old, new = (
            self.warehouse.run(query_sql(plan, lambda t, _, s=state: bind(t, s), dialect="duckdb"))
            for state in (State.OLD, State.NEW)
        )
        change = self.warehouse.run(compile_change(plan, sources(plan.root)).sql(bind, dialect="duckdb"))
        for *row, weight in change:
            old[tuple(row)] += weight
        assert settled(old) == settled(new), f"{name}\nwanted {settled(new)}\ngot    {settled(old)}"
        self.filled[name] += bool(new)
        self.moved[name] += bool(change)
        # Below its LIMIT of 100 a text leaves no ties open; over no rows DuckDB's ROLLUP gives a total.
        if new.total() < 100 and (new or "ROLLUP" not in plan.analysis.text.upper()):
            written = plan.analysis.bound(lambda t: bind(t, State.NEW))
            (sql,) = sqlglot.transpile(written, read="spark", write="duckdb")
            assert settled(self.warehouse.run(sql)) == settled(new), f"{name} differs from its text"
            self.compared[name] += 1


def analysis(text: str, warehouse: Warehouse) -> Analysis:
    return analyze(text, current_schema="default", resolve=warehouse.resolve)


def settled(rows: Counter[tuple[object, ...]]) -> dict[tuple[object, ...], int]:
    """The rows with floats to nine digits: DuckDB divides decimals as floats, which Spark does exactly."""
    counted: Counter[tuple[object, ...]] = Counter()
    for row, count in rows.items():
        counted[tuple(float(f"{v:.9g}") if isinstance(v, float) else v for v in row)] += count
    return {row: count for row, count in counted.items() if count}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("queries", nargs="*", help="names such as q05 or q14b; all without any")
    parser.add_argument("--scale", default="0.01")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--share", type=float, default=0.03, help="of the rows of each table to change")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    replay = Replay.of(prepared(arguments.scale), arguments.queries, seed=arguments.seed)
    failed: dict[str, str] = {}
    for number in range(1, arguments.rounds + 1):
        replay.warehouse.change(arguments.share)
        for name in replay.plans:
            began = time.monotonic()
            try:
                replay.check(name)
            except (AssertionError, duckdb.Error) as failure:
                failed[name] = f"{type(failure).__name__}: {str(failure)[:2000]}"
                print(f"round {number} {name} failed: {failed[name]}", flush=True)
            print(f"round {number} {name} {time.monotonic() - began:.1f} s", flush=True)
    for title, met in (
        ("with rows", replay.filled),
        ("changed", replay.moved),
        ("as its text", replay.compared),
    ):
        print(f"{title}: {sum(map(bool, met.values()))} of {len(replay.plans)}")
    print("never changed:", ", ".join(n for n in replay.plans if not replay.moved[n]) or "none")
    print("never with rows:", ", ".join(n for n in replay.plans if not replay.filled[n]) or "none")
    print("doubtful floats:", ", ".join(n for n, p in replay.plans.items() if unrepeatable(p)) or "none")
    print("failed:", ", ".join(failed) or "none")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
