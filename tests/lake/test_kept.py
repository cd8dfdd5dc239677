"""Groups inside a query, kept beside the stream table: they follow every change, and may be lost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from headrace import Headrace
from headrace.catalog import SourceVersion
from headrace.errors import HeadraceError
from headrace.storage.marker import Marker
from headrace.storage.state import StateTable
from tests.conftest import refreshed
from tests.lake.test_state import ROUNDS, folder, lose_state
from tests.lake_algebra.play import Story, play

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
ABOVE_AVERAGE = "SELECT id, amount FROM orders WHERE amount * 2 > (SELECT AVG(amount) FROM orders)"
FIRST = "SELECT customer, SUM(amount) AS s FROM orders GROUP BY customer ORDER BY s DESC, customer LIMIT 2"
TWO_LEVELS = "SELECT n, COUNT(*) AS m FROM (SELECT customer, COUNT(*) AS n FROM orders GROUP BY 1) GROUP BY n"
QUERIES = {
    "a scalar subquery": (ABOVE_AVERAGE, 1),
    "the first groups": (FIRST, 1),
    # The groups inside, and those at the root.
    "groups of groups": (TWO_LEVELS, 2),
    "joined with their rows": (
        "SELECT o.id, o.amount, g.s FROM orders o JOIN "
        "(SELECT customer, SUM(amount) AS s, AVG(amount) AS a FROM orders GROUP BY customer) g "
        "ON o.customer <=> g.customer",
        1,
    ),
    "correlated": (
        "SELECT c.id, c.region FROM customers c "
        "WHERE 1 <= (SELECT SUM(o.amount) FROM orders o WHERE o.customer = c.id)",
        1,
    ),
    "a share of the total": (
        "SELECT customer, SUM(amount) AS s FROM orders GROUP BY customer "
        "HAVING SUM(amount) * 3 > (SELECT SUM(amount) FROM orders)",
        2,
    ),
    "the largest of groups": (
        "SELECT MAX(s) AS m FROM (SELECT customer, SUM(amount) AS s FROM orders GROUP BY customer)",
        1,
    ),
}


@pytest.fixture(scope="module")
def stories(standing_shop: Headrace) -> dict[str, Story]:
    texts = {case: text for case, (text, _) in QUERIES.items()}
    return play(standing_shop, texts, [[statement] for statement in ROUNDS])


@pytest.fixture
def above_average(shop: Headrace) -> Headrace:
    """The stream table st, refreshed once by the change, so that its groups are kept."""
    shop.sql(f"CREATE STREAM TABLE st REFRESH MODE DIFFERENTIAL AS {ABOVE_AVERAGE}")
    shop.sql(ROUNDS[0])
    assert refreshed(shop, "st").action == "DIFFERENTIAL"
    return shop


def states(hr: Headrace, name: str = "st") -> list[Path]:
    return sorted(folder(hr, name).glob("state-*"))


def builds(state: Path) -> int:
    return sum("Overwrite" in str(entry) for entry in DeltaTable(state).history())


@pytest.mark.parametrize("case", QUERIES)
def test_groups_are_carried_from_refresh_to_refresh(
    standing_shop: Headrace, stories: dict[str, Story], case: str
) -> None:
    contents = stories[case].check()
    assert sum(one != other for one, other in pairwise(contents)) >= 3
    kept = states(standing_shop, stories[case].name)
    assert [builds(state) for state in kept] == [1] * QUERIES[case][1], "built once, and then carried on"


@pytest.mark.parametrize("query", [ABOVE_AVERAGE, FIRST, TWO_LEVELS])
def test_groups_that_are_lost_or_of_another_moment_are_built_anew(shop: Headrace, query: str) -> None:
    lose_state(shop, query)


def test_groups_ahead_of_a_refresh_that_failed_are_built_anew(
    above_average: Headrace, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError("No space left on device")

    above_average.sql(ROUNDS[1])
    with monkeypatch.context() as patch:
        patch.setattr("headrace.refresh.run.apply_change", full)
        with pytest.raises(HeadraceError, match="No space left"):
            above_average.refresh_stream_table("st")
    (state,) = states(above_average)
    assert builds(state) == 1
    above_average.sql(ROUNDS[2])
    assert refreshed(above_average, "st").action == "DIFFERENTIAL"
    assert builds(state) == 2


def test_groups_that_another_refresh_moved_on_are_not_moved_twice(
    above_average: Headrace, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = StateTable.rows_of

    def overtaken(kept: StateTable, keys: pa.Table, columns: Sequence[str], version: int) -> pa.Table:
        marker = Marker("x", 99, "STATE", "", {"other": SourceVersion(1, "x")}, NOON, NOON)
        kept.move(replace(marker, stream_table=kept.storage.stream_table))
        return read(kept, keys, columns, version)

    above_average.sql(ROUNDS[1])
    with monkeypatch.context() as patch:
        patch.setattr(StateTable, "rows_of", overtaken)
        with pytest.raises(HeadraceError, match="Another refresh wrote version"):
            above_average.refresh_stream_table("st")
    assert refreshed(above_average, "st").action == "DIFFERENTIAL"


def test_groups_whose_files_are_gone_are_built_anew(shop: Headrace) -> None:
    shop.sql(f"CREATE STREAM TABLE st REFRESH MODE DIFFERENTIAL AS {FIRST}")
    shop.sql(ROUNDS[0])
    refreshed(shop, "st")
    (state,) = states(shop)
    for file in state.glob("*.parquet"):
        file.unlink()
    shop.sql(ROUNDS[1])
    assert refreshed(shop, "st").rows_inserted > 0
    shop.sql(ROUNDS[2])
    assert refreshed(shop, "st").action == "DIFFERENTIAL"
    assert list(state.glob("*.parquet"))


def test_keys_that_delta_cannot_store_are_not_kept(shop: Headrace) -> None:
    shop.sql("CREATE TABLE spans (id INT, b TIMESTAMP, e TIMESTAMP) USING delta")
    shop.sql(
        "INSERT INTO spans SELECT id, '2026-01-01', timestampadd(HOUR, id % 3, '2026-01-01') FROM range(9)"
    )
    grouped = "SELECT e - b AS d, COUNT(*) AS n FROM spans GROUP BY 1"
    shop.sql(
        "CREATE STREAM TABLE st REFRESH MODE DIFFERENTIAL AS "
        f"SELECT s.id, g.n FROM spans s JOIN ({grouped}) g ON s.e - s.b = g.d"
    )
    shop.sql("DELETE FROM spans WHERE id = 4")
    result = refreshed(shop, "st")
    assert (result.action, result.rows_deleted) == ("DIFFERENTIAL", 3)


def test_groups_move_on_with_a_change_that_does_not_touch_them(shop: Headrace) -> None:
    text = QUERIES["correlated"][0]
    shop.sql(f"CREATE STREAM TABLE st REFRESH MODE DIFFERENTIAL AS {text}")
    shop.sql("INSERT INTO orders VALUES (9, 7, 100)")
    refreshed(shop, "st")
    shop.sql("INSERT INTO customers VALUES (7, 'Cy', 'north')")
    assert refreshed(shop, "st").rows_inserted == 1
    shop.sql("OPTIMIZE orders")
    refreshed(shop, "st")
    shop.sql("UPDATE orders SET amount = 0 WHERE id = 9")
    assert refreshed(shop, "st").rows_deleted == 1
    (state,) = states(shop)
    assert builds(state) == 1


def test_groups_of_an_earlier_query_go_when_those_of_another_come(above_average: Headrace) -> None:
    before = states(above_average)
    other = ABOVE_AVERAGE.replace("(SELECT AVG(amount) FROM orders)", "(SELECT SUM(id) FROM orders) - 20")
    above_average.sql(f"ALTER STREAM TABLE st AS {other}")
    above_average.sql(ROUNDS[1])
    assert refreshed(above_average, "st").action == "DIFFERENTIAL"
    assert len(before) == len(states(above_average)) == 1
    assert before != states(above_average)


def test_a_dry_run_shows_the_groups(shop: Headrace) -> None:
    shop.sql(f"CREATE STREAM TABLE st REFRESH MODE DIFFERENTIAL AS {ABOVE_AVERAGE}")
    shop.sql(ROUNDS[0])
    shown = str(shop.plan_refresh("st"))
    assert "by state of the groups inside the query" in shown
    assert "what the change adds to each of groups_" in shown
    assert not folder(shop).exists(), "a dry run builds nothing"
