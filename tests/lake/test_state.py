"""Groups kept by state: the state follows every change, and may be lost at any time."""

from __future__ import annotations

import shutil
from itertools import pairwise
from pathlib import Path

import pytest
from deltalake import DeltaTable
from sqlglot import parse_one

from headrace import Headrace
from headrace.plan.types import number_type
from headrace.sql.dialect import VerbatimSpark
from tests.conftest import refreshed
from tests.lake_algebra.play import Story, play

ROUNDS = (
    "INSERT INTO orders VALUES (5, 3, 30), (6, NULL, 6), (6, NULL, 6), (7, 9, NULL)",
    "UPDATE orders SET customer = 3, amount = amount + 0.5 WHERE id = 3",
    "DELETE FROM orders WHERE customer IS NULL OR id = 1",
    "DELETE FROM orders",
    "INSERT INTO orders VALUES (1, 1, 1), (1, 1, 1), (2, NULL, NULL)",
)
GROUPED = "SELECT customer, COUNT(*) AS n, SUM(amount) AS s FROM orders GROUP BY customer"


def folder(hr: Headrace, name: str = "st") -> Path:
    (location,) = hr.sql(f"DESCRIBE DETAIL {name}").select("location").first()
    return Path(location.removeprefix("file:")) / "_headrace"


QUERIES = {
    "sums and counts": GROUPED,
    "distinct": "SELECT DISTINCT customer, amount FROM orders",
    "average": "SELECT customer AS c, AVG(id) * 2 AS a, COUNT(amount) AS n FROM orders GROUP BY customer",
    "having": "SELECT customer, SUM(amount) AS s FROM orders GROUP BY customer HAVING COUNT(*) > 1",
    "over a join": "SELECT c.region, o.customer, SUM(o.amount) AS s FROM orders o LEFT JOIN customers c "
    "ON o.customer = c.id GROUP BY c.region, o.customer",
    "without keys": "SELECT COUNT(*) AS n, SUM(amount) AS s, AVG(amount) AS a FROM orders",
    "without keys, hidden": "SELECT SUM(id) + SUM(amount) AS s FROM orders HAVING COUNT(*) > 0",
    "average of decimals": "SELECT customer, AVG(amount) AS a, AVG(amount) * 3 AS b FROM orders GROUP BY ALL",
    "sums of expressions": "SELECT customer, SUM(amount * (1 - amount) * (2 + amount)) AS wide, "
    "SUM(amount * amount * amount) AS wider, SUM(IF(id > 2, amount, 0)) / SUM(id * 2) AS share, "
    "SUM(amount) FILTER (WHERE id > 2) AS f, COUNT(*) FILTER (WHERE amount > 1) AS m FROM orders GROUP BY 1",
}
NUMBERS = (
    *("tiny + 1", "small * n", "n + big", "n * 2", "d15 * (1 - d15)", "d15 * (1 - d15) * (1 + d15)"),
    *("d10 * d10 * d10", "d10 + n", "d10 * big", "d10 - 0.05", "1.5 * d10", "d10 * 100.00", "(d10) * (7)"),
    *("-d10", "CASE WHEN n > 1 THEN d15 ELSE 0 END", "CASE WHEN n > 1 THEN d10 WHEN n > 0 THEN d15 END"),
    *("IF(n > 1, d10, NULL)", "COALESCE(d15, n)", "COALESCE(tiny, n)", "CAST(n AS DECIMAL(7,3)) * d10"),
    *("d10 * -1", "-1 * d10", "d10 * (-1)", "d10 - -3", "d10 * -(1)", "n + -2147483648", "d10 * -0.5"),
    *("CAST(d10 AS BIGINT) + n", "d38 * d10", "d38 + d38", "n + 3000000000", "d15 * 0.5 * 0.5 * 0.5"),
)


@pytest.fixture(scope="module")
def stories(standing_shop: Headrace) -> dict[str, Story]:
    return play(standing_shop, QUERIES, [[statement] for statement in ROUNDS])


@pytest.mark.parametrize("case", QUERIES)
def test_state_is_carried_from_refresh_to_refresh(
    standing_shop: Headrace, stories: dict[str, Story], case: str
) -> None:
    contents = stories[case].check()
    assert all(one != other for one, other in pairwise(contents))
    (state,) = folder(standing_shop, stories[case].name).glob("state-*")
    builds = [entry for entry in DeltaTable(state).history() if "Overwrite" in str(entry)]
    assert len(builds) == 1, "it was built once, and then carried on"


def test_the_types_of_numbers_are_those_of_spark(lake: Headrace) -> None:
    types = {"tiny": "tinyint", "small": "smallint", "n": "int", "big": "bigint"}
    types |= {"d10": "decimal(10,2)", "d15": "decimal(15,2)", "d38": "decimal(38,4)"}
    columns = ", ".join(f"CAST(1 AS {type_}) AS {name}" for name, type_ in types.items())
    found = {text: number_type(parse_one(text, dialect=VerbatimSpark), types) for text in NUMBERS}
    row = lake.spark.sql(f"SELECT {', '.join(f'typeof({text})' for text in NUMBERS)} FROM (SELECT {columns})")
    assert found == dict(zip(NUMBERS, row.first(), strict=True))


def test_averages_of_decimals_round_as_spark_does(shop: Headrace) -> None:
    shop.sql("CREATE TABLE v (g INT, d DECIMAL(15,2), e DECIMAL(5,4)) USING delta")
    some = (
        "SELECT CAST(id % 97 AS INT), pmod(xxhash64(id, {}), 100000000000) / 100, pmod(id * 791, 9999) / 1e4"
    )
    shop.sql(f"INSERT INTO v {some.format(1)} FROM range(2000)")
    # Averages halfway between two results, which short decimals do not hit since Spark takes them for floats.
    shop.sql("CREATE TABLE ties (g INT, d DECIMAL(10,2), e DECIMAL(10,1), n INT) USING delta")
    shop.sql("INSERT INTO ties SELECT 1, 855.68, 0, 2000000000 FROM range(159)")
    ties = "SELECT g, AVG(d) AS d, AVG(e) AS e, AVG(n) AS n FROM ties GROUP BY g"
    shop.sql(f"CREATE STREAM TABLE mt REFRESH MODE DIFFERENTIAL AS {ties}")
    shop.sql("INSERT INTO ties VALUES (1, 856.17, 0.7, 1)")
    assert refreshed(shop, "mt").action == "DIFFERENTIAL"
    assert list(folder(shop, "mt").glob("state-*"))
    means = "SELECT g, AVG(d) AS d, AVG(e) AS e FROM v GROUP BY g"
    shop.sql(f"CREATE STREAM TABLE m REFRESH MODE DIFFERENTIAL AS {means}")
    shop.sql(f"INSERT INTO v {some.format(2)} FROM range(1500)")
    shop.sql("DELETE FROM v WHERE pmod(xxhash64(d), 5) = 0")
    result = refreshed(shop, "m")
    assert (result.action, result.rows_inserted) == ("DIFFERENTIAL", 97)
    assert list(folder(shop, "m").glob("state-*"))


def test_state_that_is_lost_or_left_behind_is_built_anew(shop: Headrace) -> None:
    lose_state(shop, GROUPED)


def lose_state(shop: Headrace, query: str) -> None:
    """Refresh by the change, the state being that of an earlier moment, or gone."""
    shop.sql(f"CREATE STREAM TABLE st REFRESH MODE DIFFERENTIAL AS {query}")
    shop.sql(ROUNDS[0])
    assert refreshed(shop, "st").action == "DIFFERENTIAL"
    kept = folder(shop)
    shutil.copytree(kept, kept.with_name("_kept"))
    shop.sql(ROUNDS[1])
    assert refreshed(shop, "st").rows_inserted > 0
    # As after a crash between the commit of the table and that of its state.
    shutil.rmtree(kept)
    kept.with_name("_kept").rename(kept)
    shop.sql(ROUNDS[2])
    assert refreshed(shop, "st").rows_deleted > 0
    shutil.rmtree(kept)
    shop.sql(ROUNDS[4])
    assert refreshed(shop, "st").action == "DIFFERENTIAL"


def test_state_stays_valid_while_nothing_changes_for_the_query(shop: Headrace) -> None:
    shop.sql("ALTER TABLE orders ADD COLUMN note STRING")
    shop.sql(f"CREATE STREAM TABLE st REFRESH MODE DIFFERENTIAL AS {GROUPED}")
    shop.sql(ROUNDS[0].replace("6)", "6, 'x')").replace("30)", "30, 'x')").replace("NULL)", "NULL, 'x')"))
    refreshed(shop, "st")
    built = sorted(path.name for path in folder(shop).glob("state-*/*.parquet"))
    shop.sql("UPDATE orders SET note = 'y'")
    assert refreshed(shop, "st").delta_row_count == 0
    shop.sql("OPTIMIZE orders")
    assert refreshed(shop, "st").action == "NO_DATA"
    shop.sql("UPDATE orders SET amount = 1 WHERE id = 5")
    result = refreshed(shop, "st")
    assert (result.action, result.rows_inserted, result.rows_deleted) == ("DIFFERENTIAL", 1, 1)
    assert built[0] in {path.name for path in folder(shop).glob("state-*/*.parquet")}, "it was not built anew"


def test_another_query_has_another_state(shop: Headrace) -> None:
    shop.sql(f"CREATE STREAM TABLE st REFRESH MODE DIFFERENTIAL AS {GROUPED}")
    shop.sql(ROUNDS[0])
    refreshed(shop, "st")
    before = {path.name for path in folder(shop).iterdir()}
    shop.sql("ALTER STREAM TABLE st AS SELECT id, COUNT(*) AS n FROM orders GROUP BY id")
    shop.sql(ROUNDS[1])
    shop.sql(ROUNDS[2])
    assert refreshed(shop, "st").action == "DIFFERENTIAL"
    after = {path.name for path in folder(shop).iterdir()}
    assert len(after) == 1
    assert after != before
