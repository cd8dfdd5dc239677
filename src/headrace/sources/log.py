"""Delta's transaction log, read directly: what each commit of a table did, without a Spark job."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import blake2b
from pathlib import Path
from typing import Any

import pyarrow.fs as pafs

from headrace.errors import HeadraceError
from headrace.sources.files import is_local, store_of

_COMMITS_KEPT = 256
# Numbers in the name of a part of a checkpoint.
_PART_AND_COUNT = 2
# How far clocks of writers may have put commits out of order; a look at a commit costs microseconds.
_OUT_OF_ORDER = 8


@dataclass(frozen=True)
class Commit:
    """One version of a Delta table."""

    version: int
    timestamp: datetime
    info: Mapping[str, Any]
    adds: tuple[Mapping[str, Any], ...] = ()
    removes: tuple[Mapping[str, Any], ...] = ()
    change_files: tuple[Mapping[str, Any], ...] = ()
    metadata: Mapping[str, Any] | None = None
    protocol: Mapping[str, Any] | None = None
    digest: str = ""

    @property
    def changes_data(self) -> bool:
        """Tell a change from a commit that only moves rows (OPTIMIZE) or notes something (VACUUM)."""
        actions = (*self.adds, *self.removes)
        return any(action.get("dataChange", True) for action in actions)

    @property
    def operation(self) -> str:
        return str(self.info.get("operation", ""))

    @property
    def user_metadata(self) -> str:
        return str(self.info.get("userMetadata") or "")

    def metric(self, name: str) -> int:
        return int((self.info.get("operationMetrics") or {}).get(name) or 0)


@dataclass(frozen=True)
class DeltaLog:
    """The log folder of one table, on a local disk or any store that Arrow reaches."""

    location: str
    _commits: dict[int, tuple[object, Commit]] = field(default_factory=dict, compare=False, repr=False)

    def exists(self) -> bool:
        return bool(self._names())

    def newest_version(self) -> int | None:
        """Find the newest version by the names in the log folder; a checkpoint outlives its commit."""
        names = self._names()
        versions = (_version_of(name) for name in names)
        checkpoints = (checkpoint_version(name) for name in names)
        return max((found for found in (*versions, *checkpoints) if found is not None), default=None)

    def newest_checkpoint(self, upto: int) -> tuple[int, list[str]] | None:
        """Find the files of the newest checkpoint at or before a version; one that lacks a part is none."""
        found: dict[int, list[str]] = {}
        for name in self._names():
            version = checkpoint_version(name)
            if version is not None and version <= upto:
                found.setdefault(version, []).append(name)
        complete = {version: names for version, all_ in found.items() if (names := _one_checkpoint(all_))}
        return max(complete.items()) if complete else None

    def earliest_version(self) -> int | None:
        """Find the oldest version whose commit file is still there."""
        versions = [version for name in self._names() if (version := _version_of(name)) is not None]
        return min(versions, default=None)

    def version_at(self, moment: datetime) -> int | None:
        """Find the last version by which nothing later than a moment was committed.

        Clocks of writers differ, so that a commit may bear an earlier time than the one before it: it still
        contains what that one wrote.
        """
        newest = self.newest_version()
        if newest is None:
            return None
        answer: int | None = None
        in_time = 0
        for version in range(newest, -1, -1):
            commit = self.commit(version)
            if commit is None:
                return version if answer is None else answer
            if commit.timestamp > moment:
                answer, in_time = None, 0
                continue
            answer = version if answer is None else answer
            in_time += 1
            if in_time > _OUT_OF_ORDER:
                break
        return answer

    def commit(self, version: int) -> Commit | None:
        """Read one version's commit, or None where the log no longer holds it."""
        stamp = self.stamp(version)
        if stamp is None:
            return None
        kept = self._commits.get(version)
        if kept is None or kept[0] != stamp:
            if len(self._commits) >= _COMMITS_KEPT:
                self._commits.clear()
            modified = datetime.fromtimestamp(stamp[0] / 1e9, UTC)
            try:
                kept = stamp, parse_commit(version, self._read(_commit_name(version)), modified)
            except ValueError as error:
                raise _damaged(self.location, version, str(error)) from error
            self._commits[version] = kept
        return kept[1]

    def stamp(self, version: int) -> tuple[int, int] | None:
        """Tell a commit file from another of the same name: a table may be dropped and made anew here."""
        name = _commit_name(version)
        with _reading(self.location):
            if is_local(self.location):
                try:
                    found = os.stat(f"{self.location}/_delta_log/{name}")
                except FileNotFoundError:
                    return None
                return found.st_mtime_ns, found.st_size
            store, root = store_of(self.location)
            info = store.get_file_info(f"{root}/_delta_log/{name}")
        return (info.mtime_ns or 0, info.size or 0) if info.type == pafs.FileType.File else None

    def commits(self, after: int, upto: int) -> Iterator[Commit | None]:
        """Yield the commits of versions after+1 … upto; None stands for one that is gone."""
        for version in range(after + 1, upto + 1):
            yield self.commit(version)

    def _names(self) -> list[str]:
        with _reading(self.location):
            if is_local(self.location):
                try:
                    return os.listdir(Path(self.location) / "_delta_log")
                except FileNotFoundError:
                    return []
            store, root = store_of(self.location)
            selector = pafs.FileSelector(f"{root}/_delta_log", allow_not_found=True)
            return [info.base_name for info in store.get_file_info(selector)]

    def _read(self, name: str) -> str:
        with _reading(self.location):
            if is_local(self.location):
                return (Path(self.location) / "_delta_log" / name).read_text("utf-8")
            store, root = store_of(self.location)
            with store.open_input_stream(f"{root}/_delta_log/{name}") as stream:
                return str(stream.read().decode())


@contextmanager
def _reading(location: str) -> Iterator[None]:
    """Say which table it is whose folder or store cannot be read, as ours to tell from all other trouble."""
    try:
        yield
    except OSError as error:
        raise HeadraceError(
            "source_unreadable",
            f"The Delta log of {location} cannot be read: {error}",
            hint="Check the table's files and that this process may read them.",
        ) from error


def parse_commit(version: int, text: str, modified: datetime) -> Commit:
    """Read the actions of one commit file.

    >>> moved = '{"add": {"path": "a", "dataChange": false}}'
    >>> commit = parse_commit(3, moved, datetime(2026, 1, 1, tzinfo=UTC))
    >>> commit.version, commit.changes_data
    (3, False)
    """
    actions: dict[str, list[Mapping[str, Any]]] = {}
    # Text in an action may hold other characters that Python counts as ends of lines.
    lines = [json.loads(line) for line in text.split("\n") if line.strip()]
    if not lines or not all(isinstance(line, dict) for line in lines):
        raise ValueError("it holds no actions")
    for line in lines:
        for kind, action in line.items():
            actions.setdefault(kind, []).append(action)
    info = (actions.get("commitInfo") or [{}])[0]
    in_commit = info.get("inCommitTimestamp")
    return Commit(
        version=version,
        timestamp=datetime.fromtimestamp(in_commit / 1000, UTC) if in_commit else modified,
        info=info,
        adds=tuple(actions.get("add", ())),
        removes=tuple(actions.get("remove", ())),
        change_files=tuple(actions.get("cdc", ())),
        metadata=next(iter(actions.get("metaData", ())), None),
        protocol=next(iter(actions.get("protocol", ())), None),
        digest=blake2b(text.encode(), digest_size=8).hexdigest(),
    )


def _damaged(location: str, version: int, finding: str) -> HeadraceError:
    """Say that a commit is not whole: taken for one that did nothing it would hide lost changes."""
    return HeadraceError(
        "log_damaged",
        f"The commit {_commit_name(version)} in the Delta log of {location} is empty or cut: {finding}.",
        hint="Bring the file back from a copy. Where there is none and it is the newest commit, remove it, "
        "and write again what it wrote; a stream table does that by itself.",
    )


def _commit_name(version: int) -> str:
    return f"{version:020d}.json"


def _version_of(name: str) -> int | None:
    """Read a version from a commit's file name; checkpoints and checksums are not versions of their own.

    >>> _version_of("00000000000000000012.json"), _version_of("00000000000000000010.checkpoint.parquet")
    (12, None)
    """
    stem, _, ending = name.partition(".")
    return int(stem) if ending == "json" and stem.isdigit() else None


def checkpoint_version(name: str) -> int | None:
    """Read a version from the name of a checkpoint: in one file, in parts, or of the second kind.

    >>> checkpoint_version("00000000000000000010.checkpoint.parquet")
    10
    >>> checkpoint_version("00000000000000000010.checkpoint.0000000001.0000000002.parquet")
    10
    >>> checkpoint_version("00000000000000000012.json"), checkpoint_version("_last_checkpoint")
    (None, None)
    """
    stem, _, ending = name.partition(".")
    is_one = ending.startswith("checkpoint.") and ending.endswith(("parquet", "json"))
    return int(stem) if is_one and stem.isdigit() else None


def _one_checkpoint(names: Sequence[str]) -> list[str]:
    """Choose one of the checkpoints of a version: one in a file, else all parts of one, else another kind.

    >>> _one_checkpoint(["10.checkpoint.0000000001.0000000002.parquet"])
    []
    """
    other, parts = [], dict[str, list[str]]()
    for name in sorted(names):
        middle = name.split(".")[2:-1]
        if not middle:
            return [name]
        if len(middle) == _PART_AND_COUNT and all(one.isdigit() for one in middle):
            parts.setdefault(middle[1], []).append(name)
        else:
            other.append(name)
    return next((found for count, found in parts.items() if len(found) == int(count)), other[:1])
