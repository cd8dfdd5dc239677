"""Rows of a table read on the driver by their keys."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pytest

from headrace import Headrace
from headrace.storage.read import stored_rows
from headrace.storage.table import Storage


@pytest.fixture
def storage(lake: Headrace) -> Storage:
    lake.sql("CREATE TABLE stored (k INT, s STRING, x DOUBLE) USING delta")
    lake.sql("INSERT INTO stored VALUES (1, 'a', 1.0), (1, 'a', 1.0), (1, 'b', 2.0), (NULL, 'a', NULL)")
    lake.sql("INSERT INTO stored VALUES (2, 'a', 5.0), (3, NULL, 6.0), (1, 'a', 7.0)")
    lake.sql("DELETE FROM stored WHERE x = 2.0")
    location = lake.sql("DESCRIBE DETAIL stored").first()
    assert location is not None
    return Storage(location.location.removeprefix("file:"), 0)


def found(storage: Storage, keys: pa.Table, most: int = 100) -> Counter[tuple[object, ...]] | None:
    rows = stored_rows(storage, keys, keys.column_names, most=most)
    return None if rows is None else Counter(tuple(row.values()) for row in rows.rows.to_pylist())


def test_all_rows_of_the_keys_are_read_and_hidden_ones_are_not(storage: Storage) -> None:
    one = Counter({(1, "a", 1.0): 2, (1, "a", 7.0): 1})
    assert found(storage, pa.table({"k": [1]})) == one
    assert found(storage, pa.table({"k": [1, None, 9]})) == one + Counter({(None, "a", None): 1})
    assert found(storage, pa.table({"k": [1, 3], "s": ["b", None]})) == Counter({(3, None, 6.0): 1})
    assert found(storage, pa.table({"k": pa.array([], pa.int32())})) == Counter()


def test_many_rows_and_keys_that_are_compared_otherwise_are_left_to_spark(storage: Storage) -> None:
    assert found(storage, pa.table({"k": [1]}), most=2) is None
    assert found(storage, pa.table({"x": [1.0]})) is None
