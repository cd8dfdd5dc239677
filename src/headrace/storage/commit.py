"""The commit that carries data and frontier: written whole, once, at the version after the one read."""

from __future__ import annotations

import contextlib
import json
import os
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import version as package_version
from pathlib import Path
from typing import Any

from headrace.errors import HeadraceError
from headrace.sources.log import Commit
from headrace.storage.data_files import forget_columns
from headrace.storage.marker import APP_ID, Marker
from headrace.storage.snapshot import Snapshot
from headrace.storage.table import Storage


class VersionTaken(Exception):  # noqa: N818 - the retry loop's signal, never shown to a user
    """Somebody committed the version that we meant to write."""


@dataclass(frozen=True, kw_only=True)
class Draft:
    """What a commit will do, before it has a version."""

    operation: str
    parameters: Mapping[str, str] = field(default_factory=dict)
    metrics: Mapping[str, int] = field(default_factory=dict)
    adds: Sequence[Mapping[str, Any]] = ()
    removes: Sequence[Mapping[str, Any]] = ()
    change_files: Sequence[Mapping[str, Any]] = ()
    metadata: Mapping[str, Any] | None = None
    protocol: Mapping[str, Any] | None = None


def commit_draft(storage: Storage, draft: Draft, marker: Marker | None, *, read_version: int) -> Commit:
    """Commit onto the version that was read, or raise VersionTaken and change nothing.

    A commit without a marker may only move rows.
    """
    version = read_version + 1
    lines: list[Mapping[str, Any]] = [{"commitInfo": _commit_info(draft, marker, read_version)}]
    if marker is not None:
        lines.append({"txn": {"appId": APP_ID, "version": version, "lastUpdated": _now()}})
    lines += [{"protocol": draft.protocol}] if draft.protocol else []
    lines += [{"metaData": draft.metadata}] if draft.metadata else []
    lines += [{"remove": action} for action in draft.removes]
    lines += [{"add": action} for action in draft.adds]
    lines += [{"cdc": action} for action in draft.change_files]
    text = "\n".join(json.dumps(line, separators=(",", ":"), ensure_ascii=False) for line in lines)
    _put_if_absent(Path(storage.location) / "_delta_log" / f"{version:020d}.json", text + "\n")
    kept = {action["path"] for action in draft.adds}
    forget_columns(storage.location, {action["path"] for action in draft.removes} - kept)
    commit = storage.log.commit(version)
    assert commit is not None
    return commit


def discard(snapshot: Snapshot, draft: Draft) -> None:
    """Remove files that no commit will name."""
    known = {file.path for file in snapshot.files}
    for action in (*draft.adds, *draft.change_files):
        if action["path"] not in known:
            with contextlib.suppress(OSError):
                (Path(snapshot.location) / action["path"]).unlink()


def check_commits_since(storage: Storage, marker: Marker, base: int) -> Commit | None:
    """Look at what was committed after a version that we relied on.

    Gives the commit of this very refresh if it is among them, so that a retry repeats nothing. Commits
    that only move rows are no obstacle; a change by anybody else is.
    """
    for commit, own in storage.commits_since(base):
        if commit is None:
            raise _written_by_others(storage, "a commit is gone from its log")
        if own is not None and own.refresh == marker.refresh and own.started_at == marker.started_at:
            return commit
        if own is not None:
            raise HeadraceError(
                "refresh_overtaken",
                f"Another refresh wrote version {commit.version} of {storage.location} meanwhile.",
                hint="Nothing is lost; the next refresh goes on from there.",
            )
        if commit.changes_data or commit.metadata is not None:
            raise _written_by_others(storage, f"version {commit.version} ({commit.operation}) is not ours")
    return None


def storage_busy(storage: Storage, tries: int) -> HeadraceError:
    return HeadraceError(
        "storage_busy",
        f"The Delta table at {storage.location} was changed {tries} times while a refresh wrote to it.",
        hint="Refresh again when the maintenance of that table is over.",
    )


def _written_by_others(storage: Storage, finding: str) -> HeadraceError:
    return HeadraceError(
        "storage_written_by_others",
        f"The Delta table of the stream table at {storage.location} was written by somebody else: {finding}.",
        hint="The next refresh rebuilds it; write to the sources instead.",
    )


def _commit_info(draft: Draft, marker: Marker | None, read_version: int) -> dict[str, Any]:
    note = {"userMetadata": marker.encode()} if marker is not None else {}
    return {
        "timestamp": _now(),
        "operation": draft.operation,
        "operationParameters": dict(draft.parameters),
        **({"readVersion": read_version} if read_version >= 0 else {}),
        "isolationLevel": "Serializable",
        "isBlindAppend": False,
        # Delta's history shows metrics as a map of texts.
        "operationMetrics": {name: str(value) for name, value in draft.metrics.items()},
        "engineInfo": _engine(),
        "txnId": str(uuid.uuid4()),
        **note,
    }


@cache
def _engine() -> str:
    """Name who commits; asking what is installed takes a millisecond."""
    return f"Headrace/{package_version('headrace')}"


def _now() -> int:
    return int(time.time() * 1000)


def _put_if_absent(path: Path, text: str) -> None:
    """Make a file appear with all its contents, on the disk too, unless there is one of its name."""
    draft = path.with_name(f"_commit_{uuid.uuid4()}.json.tmp")
    try:
        # A name may reach the disk before what it names: after a power loss the commit would be empty.
        with draft.open("x", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        # A link appears at once and never replaces another, unlike a renamed or a slowly written file.
        os.link(draft, path)
        _keep_names(path.parent)
    except FileExistsError:
        raise VersionTaken from None
    finally:
        with contextlib.suppress(FileNotFoundError):
            draft.unlink()


def _keep_names(folder: Path) -> None:
    """Bring a folder's names to the disk, where its system can."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
