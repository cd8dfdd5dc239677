"""How many rows commits say that they changed.

An UPDATE of one row copies the file that holds it: by its files alone the whole table came and went. The
writer counted what it really changed, and says so in the commit. These are estimates, for choosing a way; no
result depends on them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from headrace.sources.log import Commit

# What a full refresh really changed in a stream table: its files say that all rows came and went.
GAINED_ROWS, LOST_ROWS = "numGainedRows", "numLostRows"


def stated_rows(commits: Iterable[Commit]) -> tuple[int, int] | None:
    """Add up the rows that commits gained and lost, or give None where one does not say it."""
    gained = lost = 0
    for commit in commits:
        if not commit.changes_data:
            continue
        one = _by_metrics(commit) or _by_files(commit)
        if one is None:
            return None
        gained, lost = gained + one[0], lost + one[1]
    return gained, lost


def _by_metrics(commit: Commit) -> tuple[int, int] | None:
    match commit.operation:
        case "UPDATE":
            (updated,) = _metrics(commit, "numUpdatedRows") or (None,)
            return None if updated is None else (updated, updated)
        case "DELETE":
            (deleted,) = _metrics(commit, "numDeletedRows") or (None,)
            return None if deleted is None else (0, deleted)
        case "MERGE":
            names = ("numTargetRowsInserted", "numTargetRowsUpdated", "numTargetRowsDeleted")
            counts = _metrics(commit, *names)
            if counts is not None:
                inserted, updated, deleted = counts
                return inserted + updated, updated + deleted
            # A stream table's own commit.
            counts = _metrics(commit, "numOutputRows", "numDeletedRows")
            return None if counts is None else (counts[0], counts[1])
        case "WRITE":
            counts = _metrics(commit, GAINED_ROWS, LOST_ROWS)
            return None if counts is None else (counts[0], counts[1])
    return None


def _metrics(commit: Commit, *names: str) -> list[int] | None:
    stated = commit.info.get("operationMetrics") or {}
    found = [stated.get(name) for name in names]
    if any(value is None or not str(value).isdigit() for value in found):
        return None
    return [int(str(value)) for value in found]


def _by_files(commit: Commit) -> tuple[int, int] | None:
    """Count the rows of whole files; a file with hidden rows says too little."""
    sums = []
    for actions in (commit.adds, commit.removes):
        counts = [json.loads(action.get("stats") or "{}").get("numRecords") for action in actions]
        if None in counts or any(action.get("deletionVector") for action in actions):
            return None
        sums.append(sum(counts))
    return sums[0], sums[1]
