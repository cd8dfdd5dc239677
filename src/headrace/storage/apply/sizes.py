"""Measure a change against the table it goes to, from the log alone."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from headrace.storage.apply.change import WEIGHT, TableChange
from headrace.storage.apply.choose import Sizes
from headrace.storage.apply.skipping import FileFilter, overlapping
from headrace.storage.apply.weights import WeightedFrame
from headrace.storage.snapshot import DataFile, Snapshot


def driver_sizes(snapshot: Snapshot, change: TableChange) -> Sizes:
    """Measure a change in Arrow."""
    assert change.rows is not None
    match = change.key or tuple(snapshot.arrow_schema.names)
    losses = change.losses
    touched = FileFilter(losses, match).select(snapshot.files) if losses.num_rows else []
    return _sizes(
        snapshot,
        touched,
        inserted=change.gains.num_rows,
        deleted=int(np.sum(losses[WEIGHT].to_numpy())),
        change_bytes=change.rows.nbytes,
    )


def spark_sizes(snapshot: Snapshot | None, change: WeightedFrame) -> Sizes:
    """Measure a change in Spark; of a table whose log is not readable here nothing more is known."""
    if snapshot is None:
        return Sizes(inserted=change.inserted, deleted=change.deleted, change_bytes=None)
    touched = overlapping(snapshot.files, change.bounds) if change.deleted else []
    return _sizes(snapshot, touched, inserted=change.inserted, deleted=change.deleted, change_bytes=None)


def _sizes(
    snapshot: Snapshot, touched: Sequence[DataFile], *, inserted: int, deleted: int, change_bytes: int | None
) -> Sizes:
    return Sizes(
        inserted=inserted,
        deleted=deleted,
        change_bytes=change_bytes,
        table_bytes=snapshot.size,
        table_files=len(snapshot.files),
        touched_bytes=sum(file.size for file in touched),
        touched_files=len(touched),
        largest_touched=max((file.size for file in touched), default=0),
    )
