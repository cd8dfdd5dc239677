"""The measurements themselves: every mode over the same changes, each result compared with its query."""

from __future__ import annotations

from headrace import Headrace
from headrace.bench.matrix import Matrix
from headrace.bench.measure import as_table
from headrace.bench.workload import QUERIES, Cell, Workload
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
