"""Housekeeping of a stream table's own storage: few files, a short log, nothing kept that nobody needs.

Every step is due by a rule that a look at the log decides, does a bounded amount of work, and may be
interrupted: what one call leaves, a later one does.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from headrace.sources.log import Commit
from headrace.storage.commit import Draft, VersionTaken, commit_draft
from headrace.storage.data_files import CHANGE_FOLDER, removal, stored_rows, visible_rows, write_data_file
from headrace.storage.layout import CHECKPOINT_INTERVAL, rows_per_file
from headrace.storage.reach import driver_obstacle
from headrace.storage.snapshot import Action, DataFile, Snapshot, UnreadableLog, is_classic, read_snapshot
from headrace.storage.table import Storage
from headrace.storage.vectors import vector_path


@dataclass(frozen=True, kw_only=True)
class Upkeep:
    """How much is kept and how much is done at once."""

    # Versions that time travel reaches, unless they are older than the age below.
    keep_versions: int = 200
    keep_seconds: float = 7 * 86_400
    # A table that is always written anew keeps so many times its size of its past, but a few versions
    # and what is small in any case.
    keep_times: float = 8.0
    keep_bytes: int = 256 << 20
    fewest_versions: int = 8
    # A reader may be at work on files that a commit has just removed.
    grace_seconds: float = 3_600
    # A file that no commit names may belong to one under way, however long that takes.
    stray_seconds: float = 86_400
    # So many small files make a scan measurably slower than one file of their rows.
    small_files: int = 16
    # Rows hidden by vectors are still read; past this share of a file it is cheaper to copy it.
    hidden_share: float = 0.1
    # Copied in about half a second on two cores.
    compact_bytes: int = 32 << 20
    files_per_sweep: int = 2_000


@dataclass(frozen=True)
class Maintained:
    """What one call did."""

    checkpoint: int | None = None
    compacted: int = 0
    files_removed: int = 0
    commits_removed: int = 0


def maintain(
    storage: Storage,
    *,
    spark: SparkSession | None = None,
    oldest_needed: int | None = None,
    upkeep: Upkeep | None = None,
) -> Maintained:
    """Do what is due after a refresh; `oldest_needed` is the oldest version that a downstream table reads.

    A table that only Spark may write is compacted by Spark.
    """
    upkeep = upkeep or Upkeep()
    try:
        snapshot = read_snapshot(storage.log)
    except UnreadableLog:
        return Maintained()
    compacted = _compact(storage, snapshot, upkeep, spark)
    version = storage.log.newest_version() or 0
    is_due = _checkpoint_is_due(storage)
    checkpoint = _checkpoint(storage) if is_due else _just_made(storage, snapshot.version)
    if checkpoint is None:
        return Maintained(compacted=compacted)
    # Files and commits go only right after a checkpoint: commits need it to go, and sweeps stay rare.
    oldest = _oldest_kept(storage, version, upkeep, oldest_needed, most_bytes=_most_kept(snapshot, upkeep))
    removed = _sweep_files(storage, oldest, upkeep)
    return Maintained(checkpoint, compacted, removed, _sweep_log(storage, min(oldest, checkpoint)))


def _compact(storage: Storage, snapshot: Snapshot, upkeep: Upkeep, spark: SparkSession | None) -> int:
    """Join small files and drop hidden rows, in a commit that changes no row."""
    worn = _worn_files(snapshot, upkeep)
    if not worn:
        return 0
    if driver_obstacle(snapshot):
        if spark is None:
            return 0
        spark.sql(f"OPTIMIZE delta.`{storage.location}`").collect()
        return len(worn)
    rows = pa.concat_tables([visible_rows(snapshot, file) for file in worn])
    most = rows_per_file(snapshot.rows)
    adds = [
        write_data_file(snapshot.location, rows.slice(start, most), data_change=False)
        for start in range(0, rows.num_rows, most)
    ]
    draft = Draft(
        operation="OPTIMIZE",
        metrics={"numRemovedFiles": len(worn), "numAddedFiles": len(adds)},
        adds=adds,
        removes=[removal(file.add, data_change=False) for file in worn],
    )
    try:
        commit_draft(storage, draft, None, read_version=snapshot.version)
    except VersionTaken:
        for add in adds:
            (Path(storage.location) / add["path"]).unlink(missing_ok=True)
        return 0
    return len(worn)


def _worn_files(snapshot: Snapshot, upkeep: Upkeep) -> list[DataFile]:
    """Choose the files to copy, oldest first, no more than are copied at once."""
    small_rows = rows_per_file(snapshot.rows) // 4
    small = [file for file in snapshot.files if (file.rows or 0) < small_rows]
    holed = [file for file in snapshot.files if _hidden_share(snapshot, file) > upkeep.hidden_share]
    chosen = {file.path: file for file in holed}
    if len(small) >= upkeep.small_files:
        chosen |= {file.path: file for file in small}
    by_age = sorted(chosen.values(), key=lambda file: int(file.add.get("modificationTime", 0)))
    return list(_up_to(by_age, upkeep.compact_bytes))


def _hidden_share(snapshot: Snapshot, file: DataFile) -> float:
    if file.vector is None:
        return 0.0
    return int(file.vector["cardinality"]) / max(1, stored_rows(snapshot.location, file.add))


def _up_to(files: Sequence[DataFile], most: int) -> Iterator[DataFile]:
    total = 0
    for file in files:
        total += file.size
        if total > most and total != file.size:
            return
        yield file


def _checkpoint_is_due(storage: Storage) -> bool:
    newest = storage.log.newest_version() or 0
    return newest - (_newest_checkpoint(storage, newest) or 0) >= CHECKPOINT_INTERVAL


def _just_made(storage: Storage, version: int) -> int | None:
    """Find the checkpoint that Spark makes at some of its commits, if the last refresh ended in one."""
    return version if _newest_checkpoint(storage, version) == version else None


def _newest_checkpoint(storage: Storage, upto: int) -> int | None:
    """Find the newest checkpoint at or before a version from which every refresh can read the table."""
    found = storage.log.newest_checkpoint(upto)
    return found[0] if found is not None and all(map(is_classic, found[1])) else None


def _checkpoint(storage: Storage) -> int:
    table = DeltaTable(storage.location)
    table.create_checkpoint()
    return table.version()


def _oldest_kept(
    storage: Storage, newest: int, upkeep: Upkeep, oldest_needed: int | None, *, most_bytes: float
) -> int:
    """Find the oldest version that must stay readable."""
    moment = time.time() - upkeep.keep_seconds
    oldest, kept_bytes = newest, 0
    while oldest > max(0, newest - upkeep.keep_versions):
        dropped, commit = storage.log.commit(oldest), storage.log.commit(oldest - 1)
        if dropped is None or commit is None or commit.timestamp.timestamp() < moment:
            break
        kept_bytes += _dropped_bytes(dropped)
        if kept_bytes > most_bytes and newest - oldest >= upkeep.fewest_versions:
            break
        oldest -= 1
    return oldest if oldest_needed is None else min(oldest, oldest_needed)


def _most_kept(snapshot: Snapshot, upkeep: Upkeep) -> float:
    return max(upkeep.keep_bytes, upkeep.keep_times * snapshot.size)


def _dropped_bytes(commit: Commit) -> int:
    """Add up the files that a commit leaves to older versions; one that gets another vector stays."""
    kept = {add["path"] for add in commit.adds}
    return sum(int(one.get("size") or 0) for one in commit.removes if one["path"] not in kept)


def _sweep_files(storage: Storage, oldest: int, upkeep: Upkeep) -> int:
    """Delete files that no kept version names."""
    named = _named_since(storage, oldest)
    if named is None:
        return 0
    now = time.time()
    dropped = _dropped_before(storage, oldest, now - upkeep.grace_seconds)
    removed = 0
    for path in _own_files(storage.location):
        name = str(path.relative_to(storage.location))
        if name in named:
            continue
        with contextlib.suppress(FileNotFoundError):
            if name in dropped or path.stat().st_mtime < now - upkeep.stray_seconds:
                path.unlink()
                removed += 1
        if removed >= upkeep.files_per_sweep:
            break
    return removed


def _named_since(storage: Storage, oldest: int) -> set[str] | None:
    """Name the files of the versions from the oldest kept one on, or give None where the log has a gap."""
    snapshot = read_snapshot(storage.log)
    actions = [file.add for file in snapshot.files]
    for commit in storage.log.commits(oldest, snapshot.version):
        if commit is None:
            return None
        actions += [*commit.removes, *commit.adds, *commit.change_files]
    return _names(actions)


def _dropped_before(storage: Storage, oldest: int, moment: float) -> set[str]:
    """Name the files that commits up to the oldest kept version dropped, except the last ones to do so."""
    actions: list[Action] = []
    for version in range(oldest, -1, -1):
        commit = storage.log.commit(version)
        if commit is None:
            break
        if commit.timestamp.timestamp() < moment:
            actions += [*commit.removes, *commit.change_files]
    return _names(actions)


def _names(actions: Sequence[Action]) -> set[str]:
    vectors = [action["deletionVector"] for action in actions if action.get("deletionVector")]
    return {unquote(str(action["path"])) for action in actions} | {vector_path(vector) for vector in vectors}


def _own_files(location: str) -> Iterator[Path]:
    """List data files, also those of mapped columns, which Delta spreads over folders."""
    for folder, inner, files in os.walk(location):
        inner[:] = [name for name in inner if name == CHANGE_FOLDER or not name.startswith(("_", "."))]
        yield from (Path(folder, name) for name in files if name.endswith((".parquet", ".bin")))


def _sweep_log(storage: Storage, oldest: int) -> int:
    """Delete commits before the oldest kept version, from which on a checkpoint must be able to start.

    A version is read from the checkpoint before it, so the newest checkpoint not after `oldest` stays, too.
    """
    first, removed = _newest_checkpoint(storage, oldest), 0
    if first is None:
        return 0
    folder = Path(storage.location) / "_delta_log"
    versions = {path: _version_of(path.name) for path in folder.iterdir()}
    for path, version in sorted(versions.items()):
        if version is not None and version < first:
            path.unlink(missing_ok=True)
            removed += 1
    return removed


def _version_of(name: str) -> int | None:
    """Read the version that a file of the log belongs to.

    >>> _version_of("00000000000000000012.json"), _version_of("_last_checkpoint")
    (12, None)
    """
    stem = name.split(".")[0]
    return int(stem) if stem.isdigit() else None
