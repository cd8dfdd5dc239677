from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

import headrace
from headrace.demo import run_demo
from headrace.demo.changes import changes_of_round
from headrace.demo.shop import Shop
from headrace.demo.tables import STREAM_TABLES
from headrace.errors import HeadraceError

# Enough that every statement of a round touches rows.
LINES = 40_000


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("demo") / "a lake"


@pytest.fixture(scope="module")
def said(place: Path) -> str:
    """What one run of the demonstration prints."""
    code, text = run(place, rounds=1)
    assert code == 0, text
    return text


@pytest.fixture(scope="module")
def hr(place: Path, said: str) -> Iterator[headrace.Headrace]:
    assert said, "the demonstration ran before"
    with headrace.connect(warehouse=place) as connection:
        yield connection


def run(place: Path, *, rounds: int) -> tuple[int, str]:
    console = Console(file=StringIO(), width=80)
    code = run_demo(place, order_lines=LINES, rounds=rounds, console=console)
    assert isinstance(console.file, StringIO)
    return code, console.file.getvalue()


def test_every_stream_table_is_shown_and_checked_in_every_round(said: str) -> None:
    for definition in STREAM_TABLES:
        lines = [line for line in said.splitlines() if line.startswith(definition.name + " ")]
        assert len(lines) == 3, f"created, changed, and not changed: {lines}"
        assert all(" equal" in line for line in lines)
        assert "NO_DATA" in lines[-1]
        assert f"  {definition.name}: no source changed" in said
        assert "NO_DATA" not in "".join(lines[:-1]), "every round changes every table"


def test_it_ends_with_where_the_tables_are_and_what_to_try(said: str, place: Path) -> None:
    assert f"The tables are in {place}" in said
    assert f"headrace sql --warehouse '{place}' -c" in said


def test_the_shop_has_its_size_its_skew_and_its_nulls(hr: headrace.Headrace) -> None:
    def value(query: str) -> int:
        return int(hr.sql(query).collect()[0][0])

    assert value("SELECT count(DISTINCT line_id) FROM shop.order_lines") > LINES
    assert value("SELECT count(*) - count(DISTINCT line_id) FROM shop.order_lines") == 0
    assert value("SELECT count_if(customer_id IS NULL) FROM shop.orders") > 0
    assert value("SELECT count_if(discount IS NULL) FROM shop.order_lines") > 0
    busiest = value("SELECT max(n) FROM (SELECT count(*) n FROM shop.order_lines GROUP BY product_id)")
    assert busiest > 3 * LINES / Shop(LINES).products
    orphans = (
        "SELECT count(*) FROM shop.order_lines l LEFT ANTI JOIN shop.orders o ON l.order_id = o.order_id"
    )
    assert value(orphans) == 0


def test_every_round_inserts_updates_and_deletes(hr: headrace.Headrace) -> None:
    for table, verbs in {"order_lines": ["WRITE", "UPDATE", "DELETE"], "customers": ["UPDATE"]}.items():
        history = hr.sql(f"DESCRIBE HISTORY shop.{table}").collect()
        assert sorted(row.operation for row in history if row.version > 0) == sorted(verbs)
        for row in history:
            metrics = row.operationMetrics
            counts = ("numOutputRows", "numUpdatedRows", "numDeletedRows")
            assert any(int(metrics.get(name, 0)) > 0 for name in counts)


def test_the_changes_of_two_rounds_differ() -> None:
    shop = Shop(LINES)
    first, second = changes_of_round(shop, 1), changes_of_round(shop, 2)
    assert not {one.statement for one in first} & {one.statement for one in second}


def test_a_schema_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    with headrace.connect(warehouse=tmp_path) as hr:
        hr.sql("CREATE SCHEMA shop")
        hr.sql("CREATE TABLE shop.orders USING delta AS SELECT 1 AS mine")
    with pytest.raises(HeadraceError) as caught:
        run(tmp_path, rounds=0)
    assert caught.value.code == "demo_schema_taken"
    assert "shop.orders" in caught.value.message
    with headrace.connect(warehouse=tmp_path) as hr:
        assert hr.sql("SELECT mine FROM shop.orders").collect()[0][0] == 1


@pytest.mark.usefixtures("said")
def test_a_second_run_starts_over_and_fails_when_a_check_fails(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = headrace.Headrace.verify

    def verify(self: headrace.Headrace, name: str) -> object:
        """Compare as always, and find one row missing in one stream table."""
        answer = honest(self, name)
        return replace(answer, missing=1) if name == "shop.segments" else answer

    monkeypatch.setattr(headrace.Headrace, "verify", verify)
    code, text = run(place, rounds=0)
    assert code == 1
    assert "1 missing, 0 extra" in text
    assert "differed from its query" in text
