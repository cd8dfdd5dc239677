"""Carry out one apply: look at the table, choose a path, write, commit; again if somebody moved the files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from pyspark.sql import SparkSession

from headrace.sources.log import Commit
from headrace.storage.apply.change import TableChange
from headrace.storage.apply.choose import Choice, Path, Sizes, choose_path
from headrace.storage.apply.driver import draft_append, draft_files, draft_rewrite
from headrace.storage.apply.hide import draft_vectors
from headrace.storage.apply.limits import Limits
from headrace.storage.apply.sizes import driver_sizes, spark_sizes
from headrace.storage.apply.spark import (
    CONFLICTS,
    Apply,
    append_by_spark,
    merge_by_spark,
    rewrite_by_spark,
)
from headrace.storage.apply.weights import weighted_frame
from headrace.storage.commit import (
    Draft,
    VersionTaken,
    check_commits_since,
    commit_draft,
    discard,
    storage_busy,
)
from headrace.storage.marker import Marker, read_marker
from headrace.storage.reach import driver_obstacle
from headrace.storage.snapshot import Snapshot, UnreadableLog, read_snapshot
from headrace.storage.table import Storage

# Each failed try means that an OPTIMIZE finished meanwhile; nobody runs so many at once.
_TRIES = 5

_DRAFTS: Mapping[Path, Callable[[Snapshot, TableChange], Draft]] = {
    Path.APPEND: draft_append,
    Path.FILES: draft_files,
    Path.REWRITE: draft_rewrite,
    Path.VECTORS: draft_vectors,
}
_BY_SPARK: Mapping[Path, Apply] = {
    Path.SPARK_APPEND: append_by_spark,
    Path.SPARK_MERGE: merge_by_spark,
    Path.SPARK_REWRITE: rewrite_by_spark,
}


@dataclass(frozen=True)
class Applied:
    """What was done; an empty change makes no commit."""

    commit: Commit | None
    path: Path
    reason: str
    inserted: int
    deleted: int


def apply_change(
    storage: Storage,
    change: TableChange,
    marker: Marker,
    *,
    spark: SparkSession,
    base: int | None = None,
    writer: str = "auto",
    limits: Limits | None = None,
    path: Path | None = None,
) -> Applied:
    """Apply a change exactly once, onto the version `base` or one that holds the same rows.

    `writer="spark"` leaves all writing to Spark; `path` forces one path. A retry with the same marker finds
    the commit of the first try and repeats nothing.
    """
    task = _Task(storage, change, marker, spark, writer, limits or Limits(), path)
    if base is None:
        base = storage.log.newest_version()
    for _ in range(_TRIES):
        try:
            return task.attempt(base if base is not None else -1)
        except (VersionTaken, FileNotFoundError, *CONFLICTS):
            continue
    raise storage_busy(storage, _TRIES)


@dataclass(frozen=True)
class _Task:
    storage: Storage
    change: TableChange
    marker: Marker
    spark: SparkSession
    writer: str
    limits: Limits
    path: Path | None

    def attempt(self, base: int) -> Applied:
        """Try once against the newest version."""
        snapshot, obstacle = self._look()
        newest = self.storage.log.newest_version()
        # The commits are looked at after the snapshot is taken: what comes later, the commit itself refuses.
        done = check_commits_since(self.storage, self.marker, base)
        if done is not None:
            return _already_applied(done)
        if snapshot is not None and self._fits_driver(obstacle):
            sizes = driver_sizes(snapshot, self.change)
            choice = self._choose(sizes, "")
            if choice.path is Path.NOTHING:
                return Applied(None, choice.path, choice.reason, 0, 0)
            if choice.path in _DRAFTS:
                return self._commit(snapshot, choice, sizes)
            obstacle = choice.reason
        version = snapshot.version if snapshot is not None else newest
        return self._by_spark(snapshot, version if version is not None else -1, obstacle)

    def _fits_driver(self, obstacle: str) -> bool:
        return not obstacle and self.change.frame is None and self.path not in _BY_SPARK

    def _look(self) -> tuple[Snapshot | None, str]:
        try:
            snapshot = read_snapshot(self.storage.log)
        except UnreadableLog as finding:
            return None, str(finding)
        if self.writer == "spark":
            return snapshot, "the setting apply is spark"
        return snapshot, driver_obstacle(snapshot)

    def _choose(self, sizes: Sizes, obstacle: str) -> Choice:
        forced = self.path if (self.path in _BY_SPARK) == bool(obstacle) else None
        if forced is not None and (sizes.inserted or sizes.deleted):
            return Choice(forced, "asked for")
        return choose_path(sizes, self.limits, spark_only=obstacle)

    def _commit(self, snapshot: Snapshot, choice: Choice, sizes: Sizes) -> Applied:
        draft = _DRAFTS[choice.path](snapshot, self.change)
        marker = self._counted(sizes.inserted, sizes.deleted)
        try:
            commit = commit_draft(self.storage, draft, marker, read_version=snapshot.version)
        except BaseException:
            discard(snapshot, draft)
            raise
        return Applied(commit, choice.path, choice.reason, sizes.inserted, sizes.deleted)

    def _by_spark(self, snapshot: Snapshot | None, version: int, obstacle: str) -> Applied:
        with weighted_frame(self.spark, self.storage, self.change) as weighted:
            sizes = spark_sizes(snapshot, weighted)
            choice = self._choose(sizes, obstacle or "the change is large")
            if choice.path is Path.NOTHING:
                return Applied(None, choice.path, choice.reason, 0, 0)
            marker = self._counted(sizes.inserted, sizes.deleted)
            commit = _BY_SPARK[choice.path](self.storage, weighted, marker, version)
        # Spark lets commits of others come between; ours must follow on data that we know.
        check_commits_since(self.storage, marker, version)
        return Applied(commit, choice.path, choice.reason, sizes.inserted, sizes.deleted)

    def _counted(self, inserted: int, deleted: int) -> Marker:
        return replace(self.marker, rows_inserted=inserted, rows_deleted=deleted)


def _already_applied(commit: Commit) -> Applied:
    marker = read_marker(commit)
    assert marker is not None
    inserted, deleted = marker.rows_inserted or 0, marker.rows_deleted or 0
    return Applied(commit, Path.NOTHING, "this refresh was applied before", inserted, deleted)
