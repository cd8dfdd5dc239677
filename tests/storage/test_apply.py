"""Every path gives the same contents for the same changes, in one commit that carries the frontier."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from headrace import Headrace
from headrace.storage.apply import Path
from headrace.storage.marker import read_marker
from tests.storage.tables import COLUMNS, SCHEMA, Model, random_change

CHANGING = [Path.FILES, Path.REWRITE, Path.VECTORS, Path.SPARK_MERGE, Path.SPARK_REWRITE]


@pytest.mark.parametrize("path", CHANGING)
def test_random_changes_leave_exactly_the_expected_rows(lake: Headrace, path: Path) -> None:
    rng = random.Random(str(path))
    model = Model(lake, "t", COLUMNS, SCHEMA)
    rounds = 4 if path.startswith("spark") else 12
    for round_ in range(rounds):
        change = random_change(rng, model.rows, size=12)
        if round_ == rounds - 2:
            # Everything goes; the last round begins anew.
            change = Counter({row: -count for row, count in model.rows.items()})
        before = model.storage.log.newest_version()
        applied = model.apply(change, path)
        assert model.read_by_spark() == model.rows
        assert model.read_by_delta_rs() == model.rows
        assert applied.inserted == sum(w for w in change.values() if w > 0)
        assert applied.deleted == -sum(w for w in change.values() if w < 0)
        if change:
            assert applied.path == path
            assert applied.commit is not None
            assert applied.commit.version == before + 1
            marker = read_marker(applied.commit)
            assert marker is not None
            assert marker.frontier["default.source"].version == model.refresh
            assert (marker.rows_inserted, marker.rows_deleted) == (applied.inserted, applied.deleted)
