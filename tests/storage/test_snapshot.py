"""Versions of a table as its log tells them, the newest and older ones."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from headrace.catalog import SourceVersion
from headrace.sources.log import DeltaLog
from headrace.storage.read import searchable, small_table
from headrace.storage.snapshot import read_snapshot


def versions(folder: Path, count: int) -> DeltaLog:
    for number in range(count):
        write_deltalake(folder, pa.table({"a": [number], "b": [10 * number]}), mode="append")
    return DeltaLog(str(folder))


def test_any_version_is_read_whatever_was_read_before(tmp_path: Path) -> None:
    log = versions(tmp_path / "t", 6)
    DeltaTable(log.location, version=2).create_checkpoint()
    for version in (3, 4, None, 1, 5, 0, 2, None):
        snapshot = read_snapshot(log, version)
        expected = 5 if version is None else version
        assert (snapshot.version, len(snapshot.files)) == (expected, expected + 1)
    versions(tmp_path / "t", 1)
    assert read_snapshot(log).version == 6
    assert read_snapshot(log, 5).version == 5


def test_rows_are_read_and_looked_up_as_of_a_version(tmp_path: Path) -> None:
    log = versions(tmp_path / "t", 4)
    at = SourceVersion(1, str(read_snapshot(log).metadata["id"]))
    small = small_table(log, at, ["b"])
    assert small is not None
    assert sorted(small[0]["b"].to_pylist()) == [0, 10]
    source = searchable(log, at, ["a", "b"], most=10)
    assert source is not None
    found = source.rows({"a": pa.array([0, 1, 2, 3])})
    assert found is not None
    assert sorted(found["b"].to_pylist()) == [0, 10]
    assert source.rows({"a": pa.array([3])}).num_rows == 0  # type: ignore[union-attr]  # few rows
    other = SourceVersion(1, "another table")
    assert searchable(log, other, ["a"], most=10) is None
