"""A change that several tables need is read once; what is kept is bounded."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

from headrace.catalog import SourceVersion
from headrace.errors import HeadraceError
from headrace.plan.hidden import WEIGHT
from headrace.sources import shared
from headrace.sources.changes import SourceChange
from headrace.sources.delta import DeltaSource
from headrace.sources.shared import SharedChanges
from headrace.sql.names import TableName

NO_SPARK: Any = None


@pytest.fixture
def source(tmp_path: Path) -> DeltaSource:
    for start in range(3):
        write_deltalake(str(tmp_path / "t"), pa.table({"a": [start], "b": [start]}), mode="append")
    return DeltaSource(TableName("s", "t"), str(tmp_path / "t"))


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The versions that were really read, each when its reading began."""
    begun: list[int] = []
    read = shared.held_changes

    def counted(*arguments: Any, **limits: Any) -> Any:
        begun.append(arguments[1].version)
        return read(*arguments, **limits)

    monkeypatch.setattr(shared, "held_changes", counted)
    return begun


def at(source: DeltaSource, version: int) -> SourceVersion:
    return SourceVersion(version, source.table_id(version))


def test_many_threads_read_one_change_once(source: DeltaSource, reads: list[int]) -> None:
    changes = SharedChanges()
    old, new = at(source, 0), at(source, 2)
    with ThreadPoolExecutor(8) as pool:
        asked = [pool.submit(changes.read, NO_SPARK, source, old, new, ["a", "b"]) for _ in range(16)]
        found = [one.result() for one in asked]
    assert reads == [0]
    assert {one.gained for one in found} == {2}


def test_other_columns_and_versions_are_other_changes(source: DeltaSource, reads: list[int]) -> None:
    changes = SharedChanges()
    assert changes.read(NO_SPARK, source, at(source, 0), at(source, 2), ["a"]).columns == ("a",)
    assert changes.read(NO_SPARK, source, at(source, 0), at(source, 2), ["b"]).columns == ("b",)
    assert changes.read(NO_SPARK, source, at(source, 1), at(source, 2), ["b"]).gained == 1
    assert reads == [0, 0, 1]


BOTH = {(TableName("s", "t"), 0): ("a", "b")}


def rows_of(change: SourceChange) -> list[dict[str, Any]]:
    assert change.rows is not None
    return sorted(change.rows.to_pylist(), key=str)


def test_what_several_tables_are_about_to_need_is_read_once(source: DeltaSource, reads: list[int]) -> None:
    """Two files of three rows are taken back, and the third has a row that differs in b alone."""
    write_deltalake(source.location, pa.table({"a": [1, 7], "b": [5, 7]}), mode="overwrite")
    old, new = at(source, 0), at(source, 3)
    alone = {name: SharedChanges().read(NO_SPARK, source, at(source, 2), new, [name]) for name in "ab"}
    del reads[:]
    changes = SharedChanges()
    with changes.expecting({(TableName("s", "t"), 2): ("a", "b")}), ThreadPoolExecutor(8) as pool:
        asked = [
            (name, pool.submit(changes.read, NO_SPARK, source, at(source, 2), new, [name]))
            for name in "ab" * 8
        ]
        for name, one in asked:
            found = one.result()
            assert rows_of(found) == rows_of(alone[name])
            assert (found.gained, found.lost, found.only_adds) == (
                alone[name].gained,
                alone[name].lost,
                False,
            )
            assert found.columns == (name,)
            assert found.schema == alone[name].schema
        assert rows_of(asked[0][1].result()) == [
            {"a": 0, WEIGHT: -1},
            {"a": 2, WEIGHT: -1},
            {"a": 7, WEIGHT: 1},
        ]
        assert reads == [2]
        changes.read(NO_SPARK, source, old, new, ["a"])
        assert reads == [2, 0], "nobody else reads from there on"
    changes.read(NO_SPARK, source, at(source, 1), new, ["a"])
    assert reads == [2, 0, 1]


def test_what_changed_for_others_alone_is_no_change(source: DeltaSource) -> None:
    write_deltalake(source.location, pa.table({"a": [0, 1, 2], "b": [8, 8, 8]}), mode="overwrite")
    changes = SharedChanges()
    with changes.expecting({(TableName("s", "t"), 2): ("a", "b")}):
        assert changes.read(NO_SPARK, source, at(source, 2), at(source, 3), ["a"]).is_empty
        assert rows_of(changes.read(NO_SPARK, source, at(source, 2), at(source, 3), ["b"])) == [
            {"b": 0, WEIGHT: -1},
            {"b": 1, WEIGHT: -1},
            {"b": 2, WEIGHT: -1},
            {"b": 8, WEIGHT: 3},
        ]


def test_a_column_that_another_table_misses_concerns_that_one_alone(
    source: DeltaSource, reads: list[int]
) -> None:
    changes = SharedChanges()
    with changes.expecting({(TableName("s", "t"), 0): ("gone", "a", "b")}):
        for name in "ab":
            assert changes.read(NO_SPARK, source, at(source, 0), at(source, 2), [name]).gained == 2
        assert reads == [0]
        with pytest.raises(HeadraceError, match="gone"):
            changes.read(NO_SPARK, source, at(source, 0), at(source, 2), ["gone"])


def test_a_damaged_column_of_another_table_concerns_that_one_alone(tmp_path: Path) -> None:
    """The file is damaged where the values of b are, and nowhere else."""
    location = str(tmp_path / "t")
    write_deltalake(location, pa.table({"a": [0], "b": [0]}))
    write_deltalake(location, pa.table({"a": [1] * 9, "b": list(range(1000, 1009))}), mode="append")
    source = DeltaSource(TableName("s", "t"), location)
    (added,) = next(one for one in source.log.commits(0, 1) if one is not None).adds
    file = tmp_path / "t" / added["path"]
    chunk = pq.ParquetFile(file).metadata.row_group(0).column(1)
    start = chunk.dictionary_page_offset or chunk.data_page_offset
    content = bytearray(file.read_bytes())
    content[start : start + chunk.total_compressed_size] = b"\xff" * chunk.total_compressed_size
    file.write_bytes(content)
    changes = SharedChanges()
    with changes.expecting({(TableName("s", "t"), 0): ("a", "b")}):
        assert changes.read(NO_SPARK, source, at(source, 0), at(source, 1), ["a"]).gained == 9
        with pytest.raises((OSError, pa.ArrowException)):
            changes.read(NO_SPARK, source, at(source, 0), at(source, 1), ["b"])


def test_nested_values_are_read_by_those_who_use_them(tmp_path: Path, reads: list[int]) -> None:
    location = str(tmp_path / "t")
    for number in range(2):
        rows = pa.table({"a": [number], "b": [number], "n": [{"x": number}]})
        write_deltalake(location, rows, mode="append")
    source, changes = DeltaSource(TableName("s", "t"), location), SharedChanges()
    with changes.expecting({(TableName("s", "t"), 0): ("a", "n", "b")}):
        found = [changes.read(NO_SPARK, source, at(source, 0), at(source, 1), [one]) for one in "abn"]
    assert [rows_of(one)[0][name] for one, name in zip(found, "abn", strict=True)] == [1, 1, {"x": 1}]
    assert reads == [0, 0], "of the plain columns together, and of the nested one"


def test_what_may_be_too_large_to_keep_is_read_by_each(source: DeltaSource) -> None:
    changes = SharedChanges(most_bytes=60)
    with changes.expecting(BOTH):
        for name in "ab":
            assert changes.read(NO_SPARK, source, at(source, 0), at(source, 2), [name]).gained == 2
    assert changes.size <= 60
    with changes.expecting(BOTH):
        assert changes.read(NO_SPARK, source, at(source, 0), at(source, 2), ["a", "b"]).gained == 2


def test_who_is_not_among_the_readers_reads_its_own_columns(source: DeltaSource) -> None:
    changes = SharedChanges()
    with changes.expecting({(TableName("s", "t"), 0): ("a",)}):
        assert changes.read(NO_SPARK, source, at(source, 0), at(source, 2), ["b"]).columns == ("b",)
    assert changes.size < 2048, "one change of one column"


def test_a_copied_folder_has_changes_of_its_own(source: DeltaSource, tmp_path: Path) -> None:
    """It keeps the identity of the table, and goes its own way from there."""
    old = at(source, 2)
    shutil.copytree(source.location, tmp_path / "copy")
    copy = DeltaSource(TableName("s", "copy"), str(tmp_path / "copy"))
    write_deltalake(source.location, pa.table({"a": [7], "b": [7]}), mode="append")
    write_deltalake(copy.location, pa.table({"a": [8, 9], "b": [8, 9]}), mode="append")
    assert source.table_id(3) == copy.table_id(3)
    changes = SharedChanges()
    assert changes.read(NO_SPARK, source, old, at(source, 3), ["a"]).gained == 1
    assert changes.read(NO_SPARK, copy, old, at(copy, 3), ["a"]).gained == 2


def test_what_is_kept_is_bounded(source: DeltaSource, reads: list[int]) -> None:
    changes = SharedChanges(most_bytes=2500)
    for _ in range(2):
        for version in (0, 1):
            changes.read(NO_SPARK, source, at(source, version), at(source, 2), ["a"])
            assert changes.size <= 2500
    assert reads == [0, 1]
    tiny = SharedChanges(most_bytes=0)
    for _ in range(2):
        tiny.read(NO_SPARK, source, at(source, 0), at(source, 2), ["a"])
    assert tiny.size == 0
    assert reads == [0, 1, 0, 0]


def test_a_failed_reading_is_tried_again(source: DeltaSource, reads: list[int]) -> None:
    changes = SharedChanges()
    for _ in range(2):
        with pytest.raises(HeadraceError):
            changes.read(NO_SPARK, source, at(source, 0), at(source, 2), ["missing"])
    assert reads == [0, 0]
