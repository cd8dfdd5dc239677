"""What puts a stream table back to the definition it had, where loading it by another one failed."""

from __future__ import annotations

from typing import cast

from headrace.catalog import Status, StreamTable
from headrace.catalog.records import StreamTableChanges

# What a failed load changes besides what was asked for.
_MOVED_BY_FAILURE = frozenset({"status", "consecutive_errors", "last_error"})


def former_definition(
    before: StreamTable, after: StreamTable, changes: StreamTableChanges, *, max_errors: int
) -> StreamTableChanges:
    """Undo a change of definition and what its failed load did, but nothing that others did meanwhile."""
    moved = {*changes, *_MOVED_BY_FAILURE}
    # A table that was suspended is not moved by a failure.
    is_suspended_by_hand = after.status is Status.SUSPENDED and after.consecutive_errors < max_errors
    if is_suspended_by_hand or before.status is Status.SUSPENDED:
        moved.remove("status")
    former = {name: value for name, value in vars(before).items() if name in moved}
    if after.storage_version != before.storage_version:
        former["reinitialize_reason"] = "its contents are those of a query that was taken back"
    return cast(StreamTableChanges, former)
