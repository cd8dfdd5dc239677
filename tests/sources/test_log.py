"""Reading the log where it is thin: checkpoints without commits, clocks out of order, odd text."""

from __future__ import annotations

import json
import os
import struct
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from headrace import HeadraceError
from headrace.catalog import SourceVersion
from headrace.sources.delta import DeltaSource
from headrace.sources.log import parse_commit
from headrace.sources.vectors import DeletionVector
from headrace.sql.names import TableName

NOW = datetime(2026, 3, 1, tzinfo=UTC)


@pytest.fixture
def table(tmp_path: Path) -> DeltaSource:
    for n in range(4):
        write_deltalake(tmp_path / "t", pa.table({"a": [n]}), mode="append")
    return DeltaSource(TableName("default", "t"), str(tmp_path / "t"))


def commit_file(source: DeltaSource, version: int) -> Path:
    return Path(source.location, "_delta_log", f"{version:020d}.json")


def set_times(source: DeltaSource, *minutes: int) -> None:
    for version, minute in enumerate(minutes):
        path = commit_file(source, version)
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        for line in lines:
            line.get("commitInfo", {}).pop("inCommitTimestamp", None)
        path.write_text("\n".join(json.dumps(line) for line in lines))
        moment = (NOW + timedelta(minutes=minute)).timestamp()
        os.utime(path, (moment, moment))


def test_a_version_that_only_a_checkpoint_names(table: DeltaSource) -> None:
    DeltaTable(table.location).create_checkpoint()
    for version in range(4):
        commit_file(table, version).unlink()
    assert table.log.newest_version() == 3
    assert table.log.version_at(NOW) == 3
    state = table.state(3)
    assert [field.name for field in state.fields] == ["a"]
    assert state.table_id == str(DeltaTable(table.location).metadata().id)
    with pytest.raises(HeadraceError) as refused:
        table.state(2)
    assert refused.value.code == "source_unreadable"


def test_the_version_at_a_moment(table: DeltaSource) -> None:
    set_times(table, 0, 1, 2, 3)
    assert table.log.version_at(NOW + timedelta(minutes=2)) == 2
    assert table.log.version_at(NOW + timedelta(minutes=9)) == 3
    assert table.log.version_at(NOW - timedelta(minutes=1)) is None


def test_a_commit_that_looks_earlier_than_the_one_before_it(table: DeltaSource) -> None:
    set_times(table, 0, 1, 30, 3)
    # Version 3 holds what version 2 wrote at minute 30.
    assert table.log.version_at(NOW + timedelta(minutes=5)) == 1


def test_text_that_python_takes_for_an_end_of_line() -> None:
    text = '{"commitInfo": {"userMetadata": "a\u2028b\x85c"}}\n{"add": {"path": "p", "dataChange": true}}\n'
    commit = parse_commit(1, text, NOW)
    assert commit.user_metadata == "a\u2028b\x85c"
    assert len(commit.adds) == 1


@pytest.mark.parametrize("kept", [0, 1, 300])
def test_a_commit_that_is_empty_or_cut_is_an_error(table: DeltaSource, kept: int) -> None:
    """Taken for a commit that did nothing, it would hide what its writer wrote."""
    text = commit_file(table, 3).read_bytes()
    commit_file(table, 3).write_bytes(text[:kept])
    with pytest.raises(HeadraceError, match=r"00003\.json .* is empty or cut") as refused:
        table.changed(SourceVersion(2, table.table_id(2)), SourceVersion(3, table.table_id(2)))
    assert refused.value.code == "log_damaged"
    commit_file(table, 3).write_bytes(b"\n \n\x00\x00")
    with pytest.raises(HeadraceError, match="log_damaged"):
        table.log.commit(3)
    commit_file(table, 3).write_bytes(text)
    assert table.log.commit(3) is not None


def test_a_deletion_vector_with_runs_arrays_and_bitmaps(tmp_path: Path) -> None:
    runs, few, many = range(10, 50), [3, 9], range(0, 65536, 2)
    body = struct.pack("<IB", 12347 | (2 << 16), 0b001)
    for high, rows in ((0, runs), (1, few), (2, many)):
        body += struct.pack("<HH", high, len(rows) - 1)
    body += struct.pack("<HHH", 1, runs.start, len(runs) - 1)
    body += struct.pack("<2H", *few)
    body += bytes([0b01010101]) * 8192
    data = struct.pack("<iqI", 1681511377, 1, 0) + body
    (tmp_path / "v.bin").write_bytes(b"\x01" + struct.pack(">i", len(data)) + data)
    vector = DeletionVector("p", f"file:{tmp_path}/v.bin", 1, len(data), 0)
    deleted = vector.deleted(str(tmp_path), 3 * 65536)
    found = [row for row, gone in enumerate(deleted.to_pylist()) if gone]
    assert found == [*runs, *(65536 + row for row in few), *(131072 + row for row in many)]
