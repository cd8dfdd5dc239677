"""TPC-H on Spark and Delta: `python -m tests.lake_algebra.tpch --rounds 5`.

All 22 queries as stream tables, all eight tables changed in every round, every refresh by the change.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

import headrace
from headrace import Headrace
from headrace.plan.hidden import WEIGHT
from tests.algebra.tpch import TABLES, Warehouse, generate, texts
from tests.conftest import SMALL
from tests.lake_algebra.play import Story, step, stored_rows

SCALE = "0.01"
SHARE = 0.05


@dataclass
class Replay:
    """The eight tables in a lake, changed as DuckDB changes them, and stream tables over them."""

    hr: Headrace
    folder: Path
    queries: Sequence[str]
    seed: int = 1
    stories: dict[str, Story] = field(default_factory=dict)
    seconds: dict[str, list[float]] = field(default_factory=dict)
    model: Warehouse = field(init=False)

    def __post_init__(self) -> None:
        with tempfile.TemporaryDirectory() as generated:
            generate(Path(generated), SCALE)
            self.model = Warehouse.load(Path(generated), self.seed)
        for table in TABLES:
            write_deltalake(self.folder / table, self._arrow(f"FROM {table}_new"))
        self.hr.sql("SHOW TABLES")
        for name in self.queries:
            began = time.monotonic()
            self.hr.create_stream_table(name, texts()[name], refresh_mode="DIFFERENTIAL")
            self.seconds[name] = [time.monotonic() - began]
            self.stories[name] = Story(name, texts()[name], stored_rows(self.hr, name))

    def round(self) -> None:
        """Change all tables, and refresh all stream tables."""
        self.model.change(SHARE)
        for table in TABLES:
            self._write(table)
        for name, story in self.stories.items():
            result = self.hr.refresh_stream_table(name)
            self.seconds[name].append(result.duration_ms / 1000)
            story.steps.append(step(self.hr, name, result))

    def _write(self, table: str) -> None:
        """Delete and append what the model says; no two rows of these tables are equal."""
        location = self.folder / table
        lost = self._arrow(f"SELECT * EXCLUDE {WEIGHT} FROM {table}_change WHERE {WEIGHT} < 0")
        gained = self._arrow(f"SELECT * EXCLUDE {WEIGHT} FROM {table}_change WHERE {WEIGHT} > 0")
        assert lost.num_rows or gained.num_rows, table
        same = " AND ".join(f"t.{name} = s.{name}" for name in lost.column_names)
        merge = DeltaTable(location).merge(lost, same, source_alias="s", target_alias="t")
        merge.when_matched_delete().execute()
        write_deltalake(location, gained, mode="append")
        (row,) = self.model.connection.execute(f"SELECT count(*) FROM {table}_new").fetchall()
        assert DeltaTable(location).to_pyarrow_dataset().count_rows() == row[0], table

    def _arrow(self, query: str) -> pa.Table:
        return self.model.connection.sql(query).to_arrow_table()


def check(story: Story) -> None:
    """Hold a query to its rounds: equal, by the change, with rows in it and with changes to them."""
    contents = story.check()
    assert any(contents), "the result must have rows"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--queries", nargs="*", default=sorted(texts()))
    arguments = parser.parse_args()
    failures = 0
    with tempfile.TemporaryDirectory() as folder, headrace.connect(warehouse=folder, spark_conf=SMALL) as hr:
        replay = Replay(hr, Path(folder), arguments.queries, arguments.seed)
        print(f"{len(replay.stories)} stream tables created", flush=True)
        for number in range(1, arguments.rounds + 1):
            replay.round()
            print(f"round {number} done", flush=True)
        for name, story in replay.stories.items():
            try:
                check(story)
                verdict = "equal"
            except AssertionError as failure:
                verdict, failures = str(failure)[:500], failures + 1
            rows = [each.stored.total() for each in story.steps]
            moved = sum(
                a != b
                for a, b in zip(
                    [story.start, *(s.stored for s in story.steps)],
                    [s.stored for s in story.steps],
                    strict=False,
                )
            )
            times = " ".join(f"{seconds:.1f}" for seconds in replay.seconds[name])
            print(f"{name}: {verdict}; rows {rows}, changed in {moved} rounds; seconds {times}")
        assert all(hr.verify(name).ok for name in replay.stories)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
