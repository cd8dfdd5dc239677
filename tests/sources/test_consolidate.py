"""Netting out in Arrow, held to a plain count of equal rows."""

from __future__ import annotations

import random
from collections import Counter
from datetime import UTC, datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from headrace.plan.hidden import WEIGHT
from headrace.sources.cancel import pair_off
from headrace.sources.consolidate import consolidate

VALUES: dict[str, tuple[pa.DataType, list[object]]] = {
    "i": (pa.int32(), [None, 0, 1, -1, 2**31 - 1]),
    "x": (pa.float64(), [None, 0.0, -0.0, float("nan"), 1.5]),
    "f": (pa.float32(), [None, 0.0, -0.0, float("nan")]),
    "s": (pa.string(), [None, "", "a", "A", "ü"]),
    "b": (pa.binary(), [None, b"", b"\x00", b"\x00\x00"]),
    "d": (pa.decimal128(38, 2), [None, Decimal("0.00"), Decimal("9" * 36)]),
    "t": (pa.timestamp("us", "UTC"), [None, datetime(2026, 1, 1, tzinfo=UTC), datetime(1, 1, 1, tzinfo=UTC)]),
    "o": (pa.bool_(), [None, True, False]),
}


def made_up(seed: int, rows: int, columns: list[str], *, spread: bool) -> pa.Table:
    """Make rows of which most are lost and gained again in another order."""
    rng = random.Random(seed)
    made = {name: pa.array(rng.choices(VALUES[name][1], k=rows), VALUES[name][0]) for name in columns}
    if spread:
        made["i"] = pa.array(rng.choices(range(rows), k=rows), pa.int32())
    old = pa.table(made)
    order = rng.sample(range(rows), rows - rows // 10) + rng.choices(range(rows), k=rows // 20)
    new = old.take(pa.array(order))
    weighted = [
        side.append_column(WEIGHT, pa.array([weight] * len(side), pa.int64()))
        for side, weight in ((old, -1), (new, 1), (new.slice(0, 10), 2))
    ]
    return pa.concat_tables(weighted)


def counted(rows: pa.Table) -> dict[str, int]:
    total: Counter[str] = Counter()
    for row in rows.to_pylist():
        weight = row.pop(WEIGHT)
        total[repr(row)] += weight
    return {text: weight for text, weight in total.items() if weight}


@pytest.mark.parametrize("spread", [True, False], ids=["mostly distinct", "mostly duplicates"])
@pytest.mark.parametrize("columns", [["s"], ["i"], ["x", "s"], ["o", "d", "b"], list(VALUES)], ids=str)
def test_both_steps_keep_the_sum_of_every_value(columns: list[str], spread: bool) -> None:
    for seed in range(3):
        rows = made_up(seed, 400, columns, spread=spread)
        paired, netted = pair_off(rows), consolidate(rows)
        assert counted(paired) == counted(rows)
        assert counted(netted) == counted(rows)
        assert len(counted(netted)) == netted.num_rows
        assert netted.schema == rows.schema


def test_many_rewritten_rows() -> None:
    rows = made_up(7, 30_000, ["i", "s", "x"], spread=True)
    assert pair_off(rows).num_rows < rows.num_rows / 3
    assert counted(consolidate(rows)) == counted(rows)


def test_nothing_and_no_columns() -> None:
    empty = pa.schema([("a", pa.int64()), (WEIGHT, pa.int64())]).empty_table()
    assert consolidate(empty).num_rows == 0
    assert pair_off(empty).num_rows == 0
    alone = pa.table({WEIGHT: pa.array([1, 1, -3], pa.int64())})
    assert consolidate(alone).to_pylist() == [{WEIGHT: -1}]
    assert consolidate(alone.slice(0, 0)).num_rows == 0


def test_nested_values_compare_in_full() -> None:
    kind = pa.struct([("a", pa.list_(pa.float64())), ("m", pa.map_(pa.string(), pa.int32()))])
    values = [
        {"a": [0.0], "m": [("x", 1), ("y", 2)]},
        {"a": [0.0], "m": [("y", 2), ("x", 1)]},
        {"a": [-0.0], "m": [("x", 1), ("y", 2)]},
        {"a": None, "m": None},
        {"a": [None], "m": None},
        None,
    ]
    rows = pa.table({"v": pa.array(values, kind), WEIGHT: pa.array([1, -1, 1, 1, 1, 1], pa.int64())})
    assert consolidate(rows)["v"].to_pylist() == values[2:]


def test_nested_times_that_python_does_not_know_are_netted_out() -> None:
    far = pa.array([[2_932_897], [2_932_898], [2_932_897], None], pa.list_(pa.int32()))
    moments = pa.StructArray.from_arrays([pa.array([2**60, 2**60, 2**60, 0], pa.timestamp("us"))], ["t"])
    rows = pa.table({"d": far.cast(pa.list_(pa.date32())), "m": moments, WEIGHT: [1, 1, -1, 1]})
    found = consolidate(rows)
    assert found["d"].cast(far.type).to_pylist() == [[2_932_898], None]
    assert found.schema == rows.schema
