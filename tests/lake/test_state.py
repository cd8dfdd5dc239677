"""Groups kept by state: the state follows every change, and may be lost at any time."""

from __future__ import annotations

import shutil
from itertools import pairwise
from pathlib import Path

import pytest
from deltalake import DeltaTable

from headrace import Headrace
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
}


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


def test_state_that_is_lost_or_left_behind_is_built_anew(shop: Headrace) -> None:
    shop.sql(f"CREATE STREAM TABLE st REFRESH MODE DIFFERENTIAL AS {GROUPED}")
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
