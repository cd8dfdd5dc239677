"""Fixtures: tables of every type that need no Spark."""

from __future__ import annotations

from pathlib import Path as FilePath

import pytest

from tests.storage.tables import Model


@pytest.fixture
def model(tmp_path: FilePath) -> Model:
    """An empty table of every common type, written and read without Spark."""
    return Model.by_delta_rs(tmp_path / "t")
