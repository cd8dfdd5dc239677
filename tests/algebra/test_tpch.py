"""TPC-H's 22 queries: every one is planned, and its change is exact while all eight tables change."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from headrace.delta import State, compile_change, plan_query, query_sql
from headrace.plan.nodes import Opaque, walk
from headrace.plan.repeatable import unrepeatable
from headrace.sql.analysis import analyze
from headrace.sql.names import TableName
from tests.algebra.tpch import TABLES, Warehouse, generate, texts

SEED = 1
ROUNDS = 3
CHANGED = frozenset(TableName("default", table) for table in TABLES)
# DuckDB averages decimals as floats, whose last digits follow the order of rows; Spark averages them exactly.
FLOATS_IN_DUCKDB = {"q01"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tpch")
    generate(folder, "0.02")
    return folder


def rounded(rows: Counter[tuple[object, ...]]) -> dict[tuple[object, ...], int]:
    counted: Counter[tuple[object, ...]] = Counter()
    for row, count in rows.items():
        counted[tuple(round(value, 6) if isinstance(value, float) else value for value in row)] += count
    return {row: count for row, count in counted.items() if count}


def bind(name: TableName, state: State) -> str:
    return f"{name.table}_{state.value}"


def test_all_queries_are_maintained_exactly_while_all_tables_change(folder: Path) -> None:
    warehouse = Warehouse.load(folder, SEED)
    assert len(texts()) == 22
    plans = {}
    for name, text in texts().items():
        analysis = analyze(text, current_schema="default", resolve=warehouse.resolve)
        assert analysis.refusals == ()
        plans[name] = plan_query(analysis)
        assert unrepeatable(plans[name]) == (), name
        assert not any(isinstance(node, Opaque) for node in walk(plans[name].root)), name
    filled: Counter[str] = Counter()
    moved: Counter[str] = Counter()
    for _ in range(ROUNDS):
        warehouse.change(0.05)
        for name, plan in plans.items():
            old, new = (
                warehouse.run(query_sql(plan, lambda table, _, s=state: bind(table, s), dialect="duckdb"))
                for state in (State.OLD, State.NEW)
            )
            change = warehouse.run(compile_change(plan, CHANGED).sql(bind, dialect="duckdb"))
            for *row, weight in change:
                old[tuple(row)] += weight
            if name in FLOATS_IN_DUCKDB:
                assert rounded(old) == rounded(new), name
            else:
                assert {row: n for row, n in old.items() if n} == dict(new), name
            filled[name] += bool(new)
            moved[name] += bool(change)
    assert [name for name in plans if not filled[name]] == []
    assert [name for name in plans if not moved[name]] == []
