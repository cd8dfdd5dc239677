"""The measurements themselves: every mode over the same changes, each result compared with its query."""

from __future__ import annotations

import pytest

from headrace import Headrace
from headrace.bench.matrix import Matrix
from headrace.bench.measure import as_table
from headrace.bench.workload import PATTERNS, QUERIES, RECENT_SHARE, Cell, Pattern, Workload
from headrace.refresh.choice import is_first_load
from tests.conftest import rows


def test_a_cell_is_measured_in_every_mode(lake: Headrace) -> None:
    workload = Workload(lake.spark, "b", 1000)
    workload.load()
    before = rows(lake, "SELECT COUNT(*), SUM(amount) FROM b.sales")
    told: list[str] = []
    matrix = Matrix(lake, workload, ["scan", "join + aggregate"], report=told.append)
    matrix.create()
    found = list(matrix.measure(Cell(1000, 0.05, "recent"), rounds=1))
    assert [row["query"] for row in found] == ["scan", "join + aggregate"]
    assert all(isinstance(row[mode], float) for row in found for mode in ("FULL", "DIFFERENTIAL", "AUTO"))
    assert "speed-up" in as_table(found).splitlines()[0]
    assert len(told) == 2
    assert rows(lake, "SELECT COUNT(*), SUM(amount) FROM b.sales") != before
    actions = {str(record.action) for record in lake.catalog.history() if not is_first_load(record.reason)}
    assert actions >= {"FULL", "DIFFERENTIAL"}
    assert rows(lake, "SELECT * FROM b.join_aggregate_differential") == rows(
        lake, workload.query("join + aggregate")
    )


def test_every_query_reads_the_workload(lake: Headrace) -> None:
    workload = Workload(lake.spark, "b", 200)
    workload.load()
    for name in QUERIES:
        assert rows(lake, workload.query(name)), name
    workload.change(Cell(200, 0.1, "uniform", "adds"))
    assert rows(lake, "SELECT COUNT(*) FROM b.sales") == [(220,)]


def test_a_lake_that_is_kept_is_taken_up(lake: Headrace) -> None:
    first = Workload(lake.spark, "b", 200)
    first.load()
    Matrix(lake, first, ["aggregate"], ["DIFFERENTIAL"]).create()
    first.change(Cell(200, 0.1, "uniform", "adds"))
    again = Workload(lake.spark, "b", 200)
    again.load()
    assert rows(lake, "SELECT COUNT(*) FROM b.sales") == [(220,)]
    matrix = Matrix(lake, again, ["aggregate"], ["DIFFERENTIAL"], report=lambda _: None)
    matrix.create()
    assert list(matrix.measure(Cell(200, 0.1, "uniform", "adds"), rounds=1))
    assert rows(lake, "SELECT COUNT(*), COUNT(DISTINCT id) FROM b.sales") == [(260, 260)]
    actions = [str(record.action) for record in lake.catalog.history()]
    assert actions.count("FULL") == 1


@pytest.mark.parametrize("share", [0.01, 0.1, 0.5])
@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_third_each_is_deleted_updated_and_inserted(lake: Headrace, pattern: Pattern, share: float) -> None:
    workload = Workload(lake.spark, "b", 18_000)
    workload.load()
    before = {row[0]: row for row in rows(lake, "SELECT id, quantity FROM b.sales")}
    workload.change(Cell(18_000, share, pattern))
    after = {row[0]: row for row in rows(lake, "SELECT id, quantity FROM b.sales")}
    third = 18_000 * share / 3
    deleted = before.keys() - after.keys()
    updated = {one for one in before.keys() & after.keys() if before[one] != after[one]}
    assert len(after.keys() - before.keys()) == third
    for touched in (deleted, updated):
        assert third * 0.6 < len(touched) < third * 1.5
        newest = 18_000 - 18_000 * max(share, RECENT_SHARE)
        assert (min(int(str(one)) for one in touched) >= newest) is (pattern == "recent")


def test_both_sides_of_a_join_change_where_that_is_asked_for(lake: Headrace) -> None:
    customers = "SELECT id, name, region FROM b.customers"
    workload = Workload(lake.spark, "b", 2000)
    workload.load()
    before = rows(lake, customers)
    workload.change(Cell(2000, 0.01, "uniform"))
    assert rows(lake, customers) == before
    workload.both_sides = True
    matrix = Matrix(lake, workload, ["left join"], ["DIFFERENTIAL"], report=lambda _: None)
    matrix.create()
    assert list(matrix.measure(Cell(2000, 0.01, "uniform"), rounds=1))
    assert rows(lake, customers) != before
    (last, *_) = lake.catalog.history(lake.qualify("b.left_join_differential"))
    assert str(last.action) == "DIFFERENTIAL"
    assert "b.customers" in last.reason
    assert "b.sales" in last.reason
