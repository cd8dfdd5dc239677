"""TPC-DS: every text is maintained by its change, and twenty of them are replayed while all tables change.

`python -m tests.algebra.tpcds` replays all of them.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.delta import compile_change, plan_query
from headrace.plan.nodes import Opaque, sources, walk
from headrace.plan.repeatable import unrepeatable
from tests.algebra.engine import bind
from tests.algebra.tpcds import TABLES, Replay, analysis, prepared, texts
from tests.algebra.tpch import Warehouse

SEED = 1
REPLAYED = (
    *("q02", "q05", "q07", "q11", "q12", "q14a", "q15", "q18", "q20", "q22"),
    *("q26", "q27", "q33", "q42", "q45", "q52", "q56", "q77", "q97", "q98"),
)
# Standard deviations are floats, whose last digits follow the order of rows.
FLOATS = {"q17": ("STDDEV_SAMP",), "q39a": ("STDDEV_SAMP",), "q39b": ("STDDEV_SAMP",)}


@pytest.fixture(scope="module")
def folder() -> Path:
    return prepared()


def test_all_texts_are_maintained_by_their_change(folder: Path) -> None:
    warehouse = Warehouse.load(folder, SEED, TABLES)
    every = texts(folder)
    assert len(every) == 103
    for name, text in every.items():
        analysed = analysis(text, warehouse)
        assert analysed.refusals == (), name
        plan = plan_query(analysed)
        assert not any(isinstance(node, Opaque) for node in walk(plan.root)), name
        assert unrepeatable(plan) == FLOATS.get(name, ()), name
        assert compile_change(plan, sources(plan.root)).sql(bind)


def test_twenty_of_them_are_exact_while_all_tables_change(folder: Path) -> None:
    replay = Replay.of(folder, REPLAYED, seed=SEED)
    for _ in range(2):
        replay.warehouse.change(0.03)
        for name in REPLAYED:
            replay.check(name)
    assert [name for name in REPLAYED if not replay.filled[name]] == []
    assert [name for name in REPLAYED if not replay.moved[name]] == []
