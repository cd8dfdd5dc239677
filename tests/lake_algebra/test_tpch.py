"""TPC-H on Spark and Delta, in short; `python -m tests.lake_algebra.tpch` replays all of it."""

from __future__ import annotations

import pytest

import headrace
from tests.conftest import SMALL
from tests.lake_algebra.tpch import Replay, check

# Joins of six tables, HAVING by a subquery, an outer join, NOT IN, IN over groups, EXISTS and its negation.
QUERIES = ("q07", "q11", "q13", "q16", "q18", "q20", "q21", "q22")


def test_some_queries_through_one_round_on_all_tables(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("tpch")
    with headrace.connect(warehouse=folder, spark_conf=SMALL) as hr:
        replay = Replay(hr, folder, QUERIES)
        replay.round()
        for story in replay.stories.values():
            check(story)
