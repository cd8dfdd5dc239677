"""What the driver writes by itself: exact contents, one commit, nothing lost to crashes and other writers."""

from __future__ import annotations

import json
import os
import random
from collections import Counter
from dataclasses import replace
from datetime import date, datetime
from pathlib import Path as FilePath
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable, write_deltalake

from headrace.errors import HeadraceError
from headrace.sources.search import decoded_columns
from headrace.storage import data_files
from headrace.storage import snapshot as snapshots
from headrace.storage.apply import WEIGHT, Limits, Path, TableChange, driver, search
from headrace.storage.apply import run as apply_run
from headrace.storage.apply.change import Located
from headrace.storage.apply.driver import locate
from headrace.storage.apply.search import find_rows
from headrace.storage.commit import commit_draft
from headrace.storage.data_files import file_statistics
from headrace.storage.identity import Integers
from headrace.storage.marker import read_marker
from headrace.storage.reach import driver_obstacle
from headrace.storage.snapshot import read_snapshot
from headrace.storage.table import Storage
from tests.storage.tables import SCHEMA, Model, Row, random_change, random_row, weighted

DRIVER = [Path.FILES, Path.REWRITE, Path.VECTORS, None]


def row(number: int) -> Row:
    """A row that differs from all others by its id alone."""
    return (number, *random_row(random.Random(0))[1:])


def stored(model: Model) -> Counter[Row]:
    return model.read_by_delta_rs()


@pytest.mark.parametrize("path", DRIVER)
@pytest.mark.parametrize("seed", range(5))
def test_random_changes_leave_exactly_the_expected_rows(model: Model, path: Path | None, seed: int) -> None:
    rng = random.Random(seed)
    for round_ in range(12):
        change = random_change(rng, model.rows, size=12)
        if round_ == 8:
            change = Counter({row: -count for row, count in model.rows.items()})
        before = model.storage.log.newest_version()
        applied = model.apply(change, path)
        assert stored(model) == model.rows
        assert applied.inserted == sum(weight for weight in change.values() if weight > 0)
        assert applied.deleted == -sum(weight for weight in change.values() if weight < 0)
        assert model.storage.log.newest_version() == before + (1 if change else 0)


def test_rows_of_large_tables_are_found_by_one_column_where_it_tells_them_apart(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows that agree in it, NULLs, copies and rows hidden before: what is left is exact in every case."""
    monkeypatch.setattr(search, "_LARGE_BYTES", -1)
    ways: Counter[bool] = Counter()
    by_one = search._found_by_one_column

    def noting(*given: object) -> dict[str, Integers] | None:
        found = by_one(*given)  # type: ignore[arg-type]  # as they come
        ways[found is not None] += 1
        return found

    monkeypatch.setattr(search, "_found_by_one_column", noting)
    rng = random.Random(11)
    for number in range(120):
        change = random_change(rng, model.rows, size=4)
        for spread in rng.sample(range(400), k=6):
            change[row(spread)] += 1
        model.apply(Counter(change), Path.VECTORS if number % 2 else None)
        assert stored(model) == model.rows
    assert min(ways[True], ways[False]) > 10, ways


def test_one_column_does_not_hide_that_other_values_are_stored(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "_LARGE_BYTES", -1)
    for number in range(3):
        model.apply(Counter({row(number): 1, row(number + 10): 1}))
    altered = (*row(1)[:4], "altered", *row(1)[5:])
    change = model.change(Counter({altered: -1}))
    with pytest.raises(HeadraceError, match="storage_lacks_rows"):
        apply_run.apply_change(model.storage, change, model.marker(), spark=None, path=Path.VECTORS)  # type: ignore[arg-type]  # needs no Spark
    assert stored(model) == model.rows


@pytest.mark.parametrize("path", DRIVER)
def test_the_commit_carries_the_frontier(model: Model, path: Path | None) -> None:
    model.apply(Counter({row(1): 1, row(2): 1}))
    applied = model.apply(Counter({row(1): -1, row(3): 2}), path)
    assert applied.commit is not None
    marker = read_marker(applied.commit)
    assert marker is not None
    assert marker.frontier["default.source"].version == 2
    assert (marker.rows_inserted, marker.rows_deleted) == (2, 1)
    assert [own for _, own in model.storage.commits_since(0)][-1] == marker


def test_a_commit_is_on_the_disk_before_it_has_its_name(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[tuple[str, int]] = []
    fsync, link = os.fsync, os.link

    def syncing(handle: int) -> None:
        fsync(handle)
        steps.append(("sync", os.fstat(handle).st_ino))

    def linking(draft: FilePath, path: FilePath) -> None:
        link(draft, path)
        steps.append(("link", draft.stat().st_ino))

    monkeypatch.setattr(os, "fsync", syncing)
    monkeypatch.setattr(os, "link", linking)
    model.apply(Counter({row(1): 1}))
    log = FilePath(model.storage.location) / "_delta_log"
    commit = (log / f"{1:020d}.json").stat().st_ino
    assert steps == [("sync", commit), ("link", commit), ("sync", log.stat().st_ino)]


@pytest.mark.parametrize("path", [Path.FILES, Path.REWRITE, Path.VECTORS])
def test_copies_are_counted(model: Model, path: Path) -> None:
    model.apply(Counter({row(1): 3, row(2): 1}))
    model.apply(Counter({row(1): 2}))
    model.apply(Counter({row(1): -4}), path)
    assert stored(model) == Counter({row(1): 1, row(2): 1})


@pytest.mark.parametrize("path", [Path.FILES, Path.REWRITE, Path.VECTORS])
def test_rows_that_are_not_stored_change_nothing(model: Model, path: Path) -> None:
    model.apply(Counter({row(1): 1}))
    version = model.storage.log.newest_version()
    with pytest.raises(HeadraceError) as caught:
        model.apply(Counter({row(1): -2, row(5): 1}), path)
    assert caught.value.code == "storage_lacks_rows"
    assert model.storage.log.newest_version() == version
    assert stored(model) == Counter({row(1): 1})


@pytest.mark.parametrize("path", [Path.FILES, Path.REWRITE, Path.VECTORS])
def test_a_key_alone_finds_the_rows(model: Model, path: Path) -> None:
    model.apply(Counter({row(number): 1 for number in range(50)}))
    new = (7, *random_row(random.Random(9))[1:])
    model.apply(Counter({row(7): -1, new: 1, row(8): -1}), path, key=("id",))
    assert stored(model) == model.rows


def test_zeros_of_either_sign_are_one_value(tmp_path: FilePath) -> None:
    location = tmp_path / "t"
    write_deltalake(location, pa.table({"x": [0.0, -0.0, 1.5]}))
    model = Model(at(location), pa.schema([("x", pa.float64())]), None)
    model.apply(Counter({(0.0,): -2}), Path.FILES)
    assert model.read_by_delta_rs() == Counter({(1.5,): 1})


def test_an_empty_change_makes_no_commit(model: Model) -> None:
    applied = model.apply(Counter())
    assert applied.commit is None
    assert applied.path is Path.NOTHING
    assert model.storage.log.newest_version() == 0


def test_a_retry_repeats_nothing(model: Model) -> None:
    change = model.change(Counter({row(1): 1}))
    marker = model.marker()
    first, second = (
        apply_run.apply_change(model.storage, change, marker, spark=None, base=0)  # type: ignore[arg-type]  # needs no Spark
        for _ in range(2)
    )
    assert first.commit == second.commit
    assert (second.inserted, second.reason) == (1, "this refresh was applied before")
    assert stored(model) == Counter({row(1): 1})


def test_files_without_a_commit_are_not_seen(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that dies between its files and its commit has done nothing."""
    model.apply(Counter({row(1): 1}))

    class Killed(BaseException):
        pass

    def die(*_: object, **__: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(apply_run, "commit_draft", die)
        patch.setattr(apply_run, "discard", lambda *_: None)
        with pytest.raises(Killed):
            model.apply(Counter({row(1): -1, row(2): 1}), Path.FILES)
    assert len(list(FilePath(model.storage.location).glob("*.parquet"))) == 2
    assert stored(model) == Counter({row(1): 1})
    model.apply(Counter({row(1): -1, row(2): 1}), Path.FILES)
    assert stored(model) == Counter({row(2): 1})


def test_a_failed_commit_leaves_no_files(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    model.apply(Counter({row(1): 1}))

    def fail(*_: object, **__: object) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(apply_run, "commit_draft", fail)
    with pytest.raises(OSError, match="no space"):
        model.apply(Counter({row(1): -1, row(2): 1}), Path.VECTORS)
    assert len(list(FilePath(model.storage.location).glob("*.parquet"))) == 1


def between_read_and_commit(monkeypatch: pytest.MonkeyPatch, action: object) -> None:
    """Run an action once, after the files are written and before the commit."""
    waiting = [action]

    def commit(*args: object, **options: object) -> object:
        while waiting:
            waiting.pop()()  # type: ignore[operator]  # a list of calls
        return commit_draft(*args, **options)  # type: ignore[arg-type]  # passed on

    monkeypatch.setattr(apply_run, "commit_draft", commit)


@pytest.mark.parametrize("path", [Path.FILES, Path.REWRITE])
def test_a_concurrent_optimize_is_waited_out(
    model: Model, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(4):
        model.apply(Counter({row(number): 1}))
    between_read_and_commit(monkeypatch, lambda: DeltaTable(model.storage.location).optimize.compact())
    applied = model.apply(Counter({row(1): -1, row(9): 1}), path)
    assert stored(model) == model.rows
    assert applied.commit is not None
    assert applied.commit.version == 6
    assert model.storage.log.commit(5).operation == "OPTIMIZE"  # type: ignore[union-attr]  # it is there


def test_a_foreign_change_is_noticed(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    model.apply(Counter({row(1): 1}))
    foreign = weighted(Counter({row(5): 1}), SCHEMA).select(SCHEMA.names)
    between_read_and_commit(
        monkeypatch, lambda: write_deltalake(model.storage.location, foreign, mode="append")
    )
    with pytest.raises(HeadraceError) as caught:
        model.apply(Counter({row(2): 1}))
    assert caught.value.code == "storage_written_by_others"
    assert stored(model) == Counter({row(1): 1, row(5): 1})


def test_a_foreign_change_before_the_refresh_is_noticed(model: Model) -> None:
    model.apply(Counter({row(1): 1}))
    base = model.storage.log.newest_version()
    foreign = weighted(Counter({row(5): 1}), SCHEMA).select(SCHEMA.names)
    write_deltalake(model.storage.location, foreign, mode="append")
    with pytest.raises(HeadraceError) as caught:
        model.apply(Counter({row(2): 1}), base=base)
    assert caught.value.code == "storage_written_by_others"


def test_of_two_refreshers_one_works(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    between_read_and_commit(monkeypatch, lambda: model.apply(Counter({row(1): 1})))
    with pytest.raises(HeadraceError) as caught:
        model.apply(Counter({row(2): 1}))
    assert caught.value.code == "refresh_overtaken"
    assert stored(model) == Counter({row(1): 1})


@pytest.mark.parametrize("path", [Path.FILES, Path.VECTORS])
def test_the_change_feed_shows_the_change(tmp_path: FilePath, path: Path) -> None:
    model = Model.by_delta_rs(tmp_path / "t", **{"delta.enableChangeDataFeed": "true"})
    model.apply(Counter({row(number): 1 for number in range(20)}))
    applied = model.apply(Counter({row(1): -1, row(30): 2}), path)
    assert applied.path == path
    feed = pa.table(DeltaTable(model.storage.location).load_cdf(starting_version=2).read_all())
    kinds = Counter(zip(feed["id"].to_pylist(), feed["_change_type"].to_pylist(), strict=True))
    assert kinds == Counter({(1, "delete"): 1, (30, "insert"): 2})


@pytest.mark.parametrize("path", [Path.FILES, Path.REWRITE])
def test_duckdb_reads_the_files_of_the_result(model: Model, path: Path) -> None:
    """DuckDB's own Parquet reader, over the files that the log names."""
    model.apply(Counter({row(number): 1 for number in range(20)}))
    model.apply(Counter({row(3): -1, row(4): -1, row(99): 1}), path)
    files = DeltaTable(model.storage.location).file_uris()
    names = ["id", "name", "price", "day", "local"]
    found = duckdb.execute(f"SELECT {', '.join(names)} FROM read_parquet(?)", [files]).fetchall()
    places = [SCHEMA.get_field_index(name) for name in names]
    assert Counter(found) == Counter({tuple(line[at] for at in places): 1 for line in model.rows})
    assert len(found) == 19


def test_only_the_files_of_the_change_are_copied(model: Model) -> None:
    """A change of recent rows leaves old files alone, whatever their number."""
    for start in range(0, 100, 10):
        model.apply(Counter({row(number): 1 for number in range(start, start + 10)}))
    removed = model.apply(Counter({row(95): -1}), Path.FILES).commit
    assert removed is not None
    assert len(removed.removes) == 1
    assert stored(model) == model.rows


def test_a_small_bound_hides_rows_and_a_large_one_copies(model: Model) -> None:
    model.apply(Counter({row(number): 1 for number in range(100)}))
    thin = Limits(rewrite_bytes=0, copy_bytes=0)
    assert model.apply(Counter({row(1): -1}), limits=thin).path is Path.VECTORS
    assert model.apply(Counter({row(2): -1}), limits=Limits(rewrite_bytes=0)).path is Path.FILES
    assert model.apply(Counter({row(3): -1})).path is Path.REWRITE
    assert model.apply(Counter({row(4): 1})).path is Path.APPEND
    assert stored(model) == model.rows


def test_both_zeros_are_found_at_once(model: Model) -> None:
    """A change tells 0.0 from -0.0, which are one value among stored rows."""
    place = SCHEMA.names.index("ratio")
    zeros = [(*row(1)[:place], zero, *row(1)[place + 1 :]) for zero in (0.0, -0.0)]
    both = pa.concat_tables([weighted(Counter({one: 1}), SCHEMA) for one in zeros])
    model.apply(Counter({row(2): 1}))
    gain = both.set_column(both.column_names.index(WEIGHT), WEIGHT, pa.array([1, 2]))
    lose = both.set_column(both.column_names.index(WEIGHT), WEIGHT, pa.array([-1, -2]))
    for change in (gain, lose):
        spark: Any = None
        apply_run.apply_change(model.storage, TableChange(rows=change), model.marker(), spark=spark)
        assert sum(stored(model).values()) == (4 if change is gain else 1)
    assert stored(model) == model.rows


def test_without_vectors_files_are_copied(model: Model) -> None:
    model.apply(Counter({row(number): 1 for number in range(100)}))
    plain = Limits(rewrite_bytes=0, copy_bytes=0, vectors=False)
    assert model.apply(Counter({row(1): -1, row(200): 1}), limits=plain).path is Path.FILES
    assert "deletionVectors" not in read_snapshot(model.storage.log).features
    assert stored(model) == model.rows


@pytest.mark.parametrize("is_known", [True, False])
@pytest.mark.parametrize("path", [Path.FILES, Path.REWRITE, Path.VECTORS])
def test_rows_whose_place_is_known_are_not_looked_for(
    model: Model, path: Path, is_known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A place in another version says nothing."""
    model.apply(Counter({row(number): 1 for number in range(20)}))
    snapshot = read_snapshot(model.storage.log)
    change = model.change(Counter({row(3): -1, row(30): 1}))
    located = Located(snapshot.version - (not is_known), locate(snapshot, change))
    looked: list[int] = []

    def looking(*given: object, **how: object) -> object:
        looked.append(1)
        return find_rows(*given, **how)  # type: ignore[arg-type]

    monkeypatch.setattr(driver, "find_rows", looking)
    change = replace(change, located=located)
    apply_run.apply_change(model.storage, change, model.marker(), spark=None, path=path)  # type: ignore[arg-type]  # needs no Spark
    assert stored(model) == model.rows - Counter({row(3): 1}) + Counter({row(30): 1})
    assert bool(looked) is not is_known


def test_a_file_is_decoded_once_and_not_at_all_by_who_wrote_it(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoded: list[FilePath] = []
    real = data_files._decoded
    monkeypatch.setattr(
        data_files, "_decoded", lambda path, schema: decoded.append(path) or real(path, schema)
    )
    model.apply(Counter({row(number): 1 for number in range(20)}))
    model.apply(Counter({row(1): -1}), Path.VECTORS)
    assert decoded == []
    decoded_columns.forget()
    assert decoded_columns.size == 0
    for _ in range(2):
        model.apply(Counter({row(2): -1, row(3): -1}), Path.VECTORS)
        model.apply(Counter({row(2): 1, row(3): 1}))
    assert len(decoded) == len(set(decoded)) + 1, "one look for the column that tells most, one for the rest"
    assert stored(model) == model.rows


@pytest.mark.parametrize("path", [Path.FILES, Path.REWRITE])
def test_no_columns_of_removed_files_are_kept(model: Model, path: Path) -> None:
    decoded_columns.forget()
    model.apply(Counter({row(number): 1 for number in range(100)}))
    sizes = []
    for number in range(10):
        model.apply(Counter({row(number): -1, row(100 + number): 1}), path)
        sizes.append(decoded_columns.size)
    assert max(sizes) <= 1.5 * sizes[0] > 0
    assert stored(model) == model.rows


def test_statistics_hold_for_every_reader(model: Model) -> None:
    """Filters by each column find the rows that statistics must not hide."""
    rng = random.Random(4)
    model.apply(Counter(random_row(rng, domain=60) for _ in range(200)))
    model.apply(Counter({next(iter(model.rows)): -1}), Path.VECTORS)
    files = pa.table(DeltaTable(model.storage.location).get_add_actions(flatten=True))
    contents = pa.table(DeltaTable(model.storage.location).scan().read_all())
    for name in ("id", "n", "small", "tiny", "price", "day", "at", "local"):
        bounds = pc.min_max(contents[name])
        assert pc.min(files[f"min.{name}"]).as_py() <= bounds["min"].as_py()
        assert pc.max(files[f"max.{name}"]).as_py() >= bounds["max"].as_py()
    names = {text for text in contents["name"].to_pylist() if text}
    low = min(
        json.loads(file.add["stats"])["minValues"]["name"] for file in read_snapshot(model.storage.log).files
    )
    assert all(low <= text for text in names)


def test_years_beyond_the_last_one_of_python_have_no_bounds() -> None:
    """Spark knows them, and the last moment of the year 9999, rounded up, is one of them."""
    far = pa.table(
        {
            "id": [1, 2],
            # The first day of the year 10000.
            "day": pa.array([0, 2_932_897], pa.int32()).cast(pa.date32()),
            "never": pa.array([datetime(9999, 12, 31, 23, 59, 59, 999_999), None], pa.timestamp("us")),
            "last": [date(1, 1, 1), date(9999, 12, 31)],
        }
    )
    found = json.loads(file_statistics(far))
    assert found["minValues"] == {"id": 1, "last": "0001-01-01"}
    assert found["maxValues"] == {"id": 2, "last": "9999-12-31"}
    assert found["nullCount"]["never"] == 1


def test_a_snapshot_moved_on_equals_one_read_anew(model: Model) -> None:
    rng = random.Random(5)
    for round_ in range(8):
        model.apply(random_change(rng, model.rows, size=12), Path.VECTORS if round_ % 2 else None)
        if round_ == 4:
            DeltaTable(model.storage.location).create_checkpoint()
        moved = read_snapshot(model.storage.log)
        snapshots._states.clear()
        anew = read_snapshot(model.storage.log)
        assert {(file.path, str(file.vector)) for file in moved.files} == {
            (file.path, str(file.vector)) for file in anew.files
        }
        assert moved.rows == anew.rows == sum(model.rows.values())
    assert stored(model) == model.rows


def test_a_table_made_anew_at_the_same_place_is_noticed(tmp_path: FilePath) -> None:
    location = tmp_path / "t"
    for rows in ([1, 2, 3], [4]):
        write_deltalake(location, pa.table({"x": rows}))
        assert read_snapshot(at(location).log).rows == len(rows)
        for file in [*location.glob("*.parquet"), *location.glob("_delta_log/*")]:
            file.unlink()


def at(location: FilePath) -> Storage:
    return Storage(str(location), "id-t")


def test_tables_that_the_driver_leaves_to_spark(tmp_path: FilePath) -> None:
    plain = pa.table({"x": [1], "y": [2]})
    write_deltalake(tmp_path / "appended", plain, configuration={"delta.appendOnly": "true"})
    write_deltalake(tmp_path / "parts", plain, partition_by="y")
    write_deltalake(tmp_path / "checked", plain)
    DeltaTable(tmp_path / "checked").alter.add_constraint({"positive": "x > 0"})
    findings = {
        folder.name: driver_obstacle(read_snapshot(at(folder).log)) for folder in sorted(tmp_path.iterdir())
    }
    assert findings == {
        "appended": "it only takes appends",
        "checked": "its protocol is writer version 3",
        "parts": "it is partitioned",
    }
