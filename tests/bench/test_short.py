"""The short forms that `headrace bench` runs."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from headrace import Headrace
from headrace.bench.matrix import Matrix
from headrace.bench.tpch import Tpch, can_generate
from headrace.bench.workload import SOURCES, Cell
from headrace.cli.app import app
from headrace.errors import HeadraceError


def test_growth_compares_a_table_with_one_ten_times_as_large(tmp_path: Path) -> None:
    ran = CliRunner().invoke(
        app, ["bench", "growth", "--rows", "1000", "--rounds", "1", "--json", "-w", str(tmp_path)]
    )
    assert ran.exit_code == 0, ran.stderr
    (report,) = json.loads(ran.stdout)
    (growth,) = report["measured"]
    assert growth["what"] == "growth"
    assert [(row["rows"], row["query"]) for row in growth["results"]] == [
        (rows, query) for rows in (1000, 10_000) for query in ("scan", "join", "aggregate")
    ]
    assert all(row["AUTO"] > 0 and row["AUTO of best"] > 0 for row in growth["results"])
    assert all(row["DIFFERENTIAL"] > 0 and row["of 1,000 rows"] > 0 for row in growth["results"])


def test_tpch_is_measured_while_all_its_tables_change(lake: Headrace) -> None:
    tpch = Tpch(lake.spark, SOURCES["feed"])
    tpch.load("0.001")
    before = [lake.spark.table(f"tpch.{name}").collect() for name in ("orders", "lineitem", "nation")]
    matrix = Matrix(lake, tpch, ["q01", "q06"], ["FULL", "DIFFERENTIAL"], report=lambda _: None)
    matrix.create()
    found = list(matrix.measure(Cell(tpch.rows, 0.05, "uniform"), rounds=1))
    assert [row["query"] for row in found] == ["q01", "q06"]
    assert [lake.spark.table(f"tpch.{name}").collect() for name in ("orders", "lineitem", "nation")] != before
    actions = [str(one.action) for one in lake.catalog.history(lake.qualify("tpch.q01_differential"))]
    assert actions.count("DIFFERENTIAL") == 2


def test_tpch_needs_its_generator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lake: Headrace) -> None:
    assert can_generate()
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert not can_generate()
    with pytest.raises(HeadraceError, match="pip install tpchgen-cli") as refused:
        Tpch(lake.spark, SOURCES["feed"]).load("0.001")
    assert refused.value.code == "missing_package"
