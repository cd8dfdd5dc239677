"""The order of rows on the driver: as one integer each where there is room, and else as Arrow sorts."""

from __future__ import annotations

import random
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from sqlglot import exp

from headrace.refresh import arrow_windows
from headrace.refresh.arrow_windows import sorted_places
from headrace.storage.identity import Integers

FAR = [-(2**63), 2**63 - 1]


def some_column(random_: random.Random, count: int) -> pa.ChunkedArray:
    kind = random_.choice(
        [pa.int32(), pa.int64(), pa.decimal128(18, 2), pa.timestamp("us", "UTC"), pa.date32(), pa.string()]
    )
    numbers = [None if random_.random() < 0.2 else random_.randint(-3, 3) for _ in range(count)]
    if pa.types.is_int64(kind) and random_.random() < 0.3:
        numbers = [number if number is None else random_.choice([*FAR, number]) for number in numbers]
    if pa.types.is_decimal(kind):
        values = pa.array([n if n is None else Decimal(n) / 100 for n in numbers], kind)
    elif pa.types.is_int64(kind) or pa.types.is_timestamp(kind):
        values = pa.array(numbers, pa.int64()).cast(kind)
    else:
        values = pa.array(numbers, pa.int32()).cast(kind)
    cut = random_.randint(0, count)
    return pa.chunked_array([values.slice(0, cut), values.slice(cut)])


@pytest.mark.parametrize("seed", range(400))
def test_rows_are_sorted_as_arrow_sorts_them(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    random_ = random.Random(seed)
    count = random_.choice([0, 1, 2, 9, 50])
    rows = pa.table({f"c{place}": some_column(random_, count) for place in range(random_.randint(1, 3))})
    rows = rows.slice(random_.randint(0, 2))
    order = [
        exp.Ordered(
            this=exp.column(name),
            desc=random_.random() < 0.5,
            nulls_first=random_.choice([True, False, None]),
        )
        for name in rows.column_names
    ]
    partition: Integers | None = None
    if random_.random() < 0.6:
        partition = np.array([random_.randint(0, 2) for _ in range(rows.num_rows)], dtype=np.int64)
    found = sorted_places(rows, order, partition).to_pylist()
    monkeypatch.setattr(arrow_windows, "_as_one_integer", lambda *_: None)
    assert found == sorted_places(rows, order, partition).to_pylist()


def test_plain_columns_are_sorted_as_one_integer(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = pa.table({"a": [3, 1, None, 2], "b": pa.array([1, 1, 2, 2], pa.decimal128(9, 2))})
    monkeypatch.setattr("pyarrow.compute.sort_indices", None)
    order = [exp.Ordered(this=exp.column("b"), desc=True), exp.Ordered(this=exp.column("a"))]
    assert sorted_places(rows, order).to_pylist() == [2, 3, 1, 0]
