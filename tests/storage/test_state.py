"""The state of groups: looked up by keys of which some have none yet."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from headrace.storage.apply import search
from headrace.storage.state import StateTable
from headrace.storage.table import Storage


def test_a_group_without_state_is_not_taken_for_another_with_which_it_shares_a_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each user has one group as yet, in several files; some get a second one, in another country."""
    monkeypatch.setattr(search, "_LARGE_BYTES", -1)
    kept = StateTable(Storage(str(tmp_path / "t"), "id-t"), "a definition", ("person", "country"))
    for start in range(0, 40, 10):
        people = list(range(start, start + 10))
        state = pa.table({"person": people, "country": ["DE"] * 10, "n": people})
        write_deltalake(kept.storage.location, state, mode="append")
    touched = pa.table({"person": [3, 17, 39], "country": ["FR", "FR", "DE"]})
    rows, located = kept.rows_of(touched, ("person", "country"), 3)
    assert rows.to_pylist() == [{"person": 39, "country": "DE", "n": 39}]
    assert located is not None
    assert sum(map(len, located.positions.values())) == 1
