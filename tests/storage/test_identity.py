"""Rows as numbers: equal exactly where the rows are, and the stored rows that a difference takes away."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest

from headrace.plan.hidden import WEIGHT
from headrace.storage.identity import difference_and_lost, row_codes
from headrace.storage.read import StoredRows

KINDS = [pa.int8(), pa.int32(), pa.int64(), pa.uint64(), pa.string(), pa.float64(), pa.date32(), pa.bool_()]


def some_rows(random_: random.Random, count: int) -> pa.Table:
    """Rows with few values, many NULLs, in pieces; integers lie close together or far apart."""
    columns = {}
    for place in range(random_.randint(1, 4)):
        kind = random_.choice(KINDS)
        far = random_.random() < 0.3 and pa.types.is_int64(kind)
        values: list[object] = []
        for _ in range(count):
            number = random_.choice([-(2**63), 0, 2**63 - 1]) if far else random_.randint(0, 3)
            values.append(None if random_.random() < 0.2 else number)
        plain = pa.array(values, pa.int64())
        columns[f"c{place}"] = pa.chunked_array([plain.cast(pa.int32()).cast(kind) if not far else plain])
    rows = pa.table(columns)
    cut = random_.randint(0, count)
    return pa.concat_tables([rows.slice(0, cut), rows.slice(cut)])


@pytest.mark.parametrize("seed", range(300))
def test_codes_are_equal_exactly_where_rows_are(seed: int) -> None:
    rows = some_rows(random.Random(seed), 30)
    codes = row_codes(rows, rows.column_names).tolist()
    values = [tuple(row.values()) for row in rows.to_pylist()]
    known: dict[object, int] = {}
    for code, value in zip(codes, values, strict=True):
        assert known.setdefault(value, code) == code
    assert len(set(known.values())) == len(known)


@pytest.mark.parametrize("seed", range(300))
def test_a_difference_says_which_stored_rows_it_takes_away(seed: int) -> None:
    random_ = random.Random(seed)
    both = some_rows(random_, 40)
    stored, now = both.slice(0, 25), both.slice(25)
    net, lost = difference_and_lost(now, stored)
    before, after = (Counter(tuple(row.values()) for row in rows.to_pylist()) for rows in (stored, now))
    taken = Counter(tuple(row.values()) for row in stored.take(pa.array(lost)).to_pylist())
    assert len(set(lost.tolist())) == len(lost)
    assert taken == before - after
    weights = {tuple(row[name] for name in stored.column_names): row[WEIGHT] for row in net.to_pylist()}
    assert weights == {row: n for row in before | after if (n := after[row] - before[row])}

    files = {"a": np.array([3, 4, 9]), "b": np.arange(100, 112), "c": np.arange(10)}
    located = StoredRows(stored, 7, files).located(lost)
    all_places = [(path, place) for path, places in files.items() for place in places.tolist()]
    wanted = [all_places[place] for place in lost.tolist()]
    assert [
        (path, place) for path, places in located.positions.items() for place in places.tolist()
    ] == wanted
    assert located.version == 7
