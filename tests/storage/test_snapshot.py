"""Versions of a table as its log tells them, the newest and older ones."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from headrace.catalog import SourceVersion
from headrace.sources.log import DeltaLog
from headrace.storage import snapshot as snapshots
from headrace.storage.apply.skipping import overlapping
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


@pytest.fixture
def forgets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remember no version, as in a process that just began."""
    monkeypatch.setattr(snapshots, "_SNAPSHOTS_KEPT", 0)


@pytest.mark.usefixtures("forgets")
def test_what_others_leave_beside_a_checkpoint_is_none(tmp_path: Path) -> None:
    log = versions(tmp_path / "t", 6)
    DeltaTable(log.location, version=2).create_checkpoint()
    folder = tmp_path / "t" / "_delta_log"
    # Hadoop's checksums on a local disk, and what a writer had no time to finish.
    (folder / ".00000000000000000002.checkpoint.parquet.crc").write_bytes(b"crc")
    (folder / ".00000000000000000004.checkpoint.parquet.tmp").write_bytes(b"")
    first = "00000000000000000004.checkpoint.0000000001.0000000002.parquet"
    (folder / first).write_bytes(b"the second part is missing")
    # Of two checkpoints of a version, the one that can be read.
    (folder / "00000000000000000002.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.json").write_bytes(b"{}")
    for version in range(6):
        assert len(read_snapshot(log, version).files) == version + 1


@pytest.mark.usefixtures("forgets")
def test_a_checkpoint_in_parts_is_read_whole(tmp_path: Path) -> None:
    log = versions(tmp_path / "t", 4)
    DeltaTable(log.location).create_checkpoint()
    folder = tmp_path / "t" / "_delta_log"
    whole = pq.read_table(folder / "00000000000000000003.checkpoint.parquet")
    for part, rows in ((1, whole.slice(0, 3)), (2, whole.slice(3))):
        pq.write_table(rows, folder / f"00000000000000000003.checkpoint.{part:010}.{2:010}.parquet")
    (folder / "00000000000000000003.checkpoint.parquet").unlink()
    for version in range(3):
        (folder / f"{version:020}.json").unlink()
    assert len(read_snapshot(log).files) == 4


def test_a_day_beyond_the_year_9999_hides_no_row_of_its_file(tmp_path: Path) -> None:
    """With a sign before the year its text sorts before all others."""
    days = pa.array([20_454, 2_933_627], pa.int32()).cast(pa.date32())
    write_deltalake(tmp_path / "t", pa.table({"day": days, "b": [1, 2]}))
    log = DeltaLog(str(tmp_path / "t"))
    snapshot = read_snapshot(log)
    (file,) = snapshot.files
    assert file.stats["maxValues"]["day"].startswith("+")
    source = searchable(log, SourceVersion(0, str(snapshot.metadata["id"])), ["day", "b"], most=10)
    assert source is not None
    found = source.rows({"day": days[:1]})
    assert found is not None
    assert found["b"].to_pylist() == [1]
    assert overlapping(snapshot.files, {"day": (date(2026, 1, 1), date(2026, 1, 1))}) == [file]
