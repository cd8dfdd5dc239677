"""Decoded columns are kept within bounds, and never taken for those of another file."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headrace.sources import search
from headrace.sources.difference import Piece
from headrace.sources.parquet import Wanted
from headrace.sources.search import ROW, DecodedColumns, decoded_columns, read_matching
from headrace.sources.state import Field

WANTED = Wanted(("k", "s"), (Field("k", "long"), Field("s", "string")), frozenset())
MEGABYTE = pa.chunked_array([pa.array(range(1 << 17), pa.int64())])


def write(folder: Path, rows: dict[str, list[object]]) -> dict[int, Piece]:
    pq.write_table(pa.table(rows), folder / "part.parquet")
    return {0: Piece("part.parquet", 1, {}, None, 1, 0)}


def look(folder: Path, pieces: dict[int, Piece], key: int, most: int = 1 << 20) -> list[object] | None:
    found = read_matching(str(folder), pieces, WANTED, {"k": pa.array([key])}, most_bytes=most)
    return None if found is None else found["s"].to_pylist()


@pytest.fixture(autouse=True)
def nothing_kept() -> None:
    decoded_columns.forget()


def test_the_least_used_columns_go_first() -> None:
    kept = DecodedColumns(most_bytes=3 << 20)
    for name in "abc":
        kept.keep((name,), MEGABYTE)
    assert kept.get(("a",)) is not None
    kept.keep(("d",), MEGABYTE)
    assert [kept.get((name,)) is not None for name in "abcd"] == [True, False, True, True]
    assert kept.size == 3 << 20


def test_memory_is_asked_for_before_it_is_taken() -> None:
    kept = DecodedColumns(most_bytes=3 << 20)
    for name in "abc":
        kept.keep((name,), MEGABYTE)
    with kept.reserved(2 << 20) as room, kept.reserved(2 << 20) as none:
        assert none is None
        assert [kept.get((name,)) is not None for name in "abc"] == [False, False, True], "two made room"
        kept.keep(("d",), MEGABYTE, room)
        kept.keep(("e",), MEGABYTE, room)
        assert kept.size == 3 << 20, "what was reserved is not counted twice"
    with kept.reserved(4 << 20) as too_much:
        assert too_much is None
    assert kept.size == 3 << 20, "nothing goes for what there is no room for anyway"


def test_what_nobody_looks_at_is_given_back() -> None:
    kept = DecodedColumns(seconds=0)
    kept.keep(("a",), MEGABYTE)
    kept.forget_idle()
    assert kept.size == 0


def test_a_file_is_decoded_once_and_anew_when_it_is_another(tmp_path: Path) -> None:
    pieces = write(tmp_path, {"k": [1, 2, 1], "s": ["a", "b", None]})
    assert look(tmp_path, pieces, 1) == ["a", None]
    size = decoded_columns.size
    assert size > 0
    assert look(tmp_path, pieces, 2, most=0) == ["b"], "nothing was left to read"
    write(tmp_path, {"k": [1, 2, 3], "s": ["x", "y", "z"]})
    os.utime(tmp_path / "part.parquet", (1, 1))
    assert look(tmp_path, pieces, 1) == ["x"]


def test_a_file_of_which_much_is_wanted_is_looked_through_by_slices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pieces = write(tmp_path, {"k": [1, 2, 1], "s": ["a", "b", None]})
    kept = read_matching(str(tmp_path), pieces, WANTED, {"k": pa.array([1])}, most_bytes=1 << 20)
    decoded_columns.forget()
    monkeypatch.setattr(search, "_LARGEST_BYTES", 0)
    by_slices = read_matching(str(tmp_path), pieces, WANTED, {"k": pa.array([1])}, most_bytes=1 << 20)
    assert kept is not None
    assert kept.equals(by_slices)
    assert kept[ROW].to_pylist() == [0, 2]
    assert decoded_columns.size == 0


def test_too_much_to_read_is_left_to_spark(tmp_path: Path) -> None:
    assert look(tmp_path, write(tmp_path, {"k": [1], "s": ["a"]}), 1, most=0) is None
