"""Random writes by delta-rs, milliseconds each, checked between every two versions on the driver."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from headrace.catalog import SourceVersion
from headrace.plan.hidden import WEIGHT
from headrace.sources.changes import Limits, SourceChange, read_changes
from headrace.sources.delta import DeltaSource
from headrace.sql.names import TableName

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.string()), ("x", pa.float64())])
COLUMNS = tuple(SCHEMA.names)


class Writer:
    """Writes at random to one table."""

    def __init__(self, location: str, seed: int, *, feed: bool, partitioned: bool) -> None:
        self.random = random.Random(seed)
        self.location = location
        DeltaTable.create(
            location,
            SCHEMA,
            partition_by=["v"] if partitioned else None,
            configuration={"delta.enableChangeDataFeed": str(feed).lower()},
        )

    def step(self) -> None:
        steps: list[Callable[[], object]] = [
            self.append,
            self.append,
            self.delete,
            self.update,
            self.merge,
            self.overwrite,
            self.compact,
            self.restore,
        ]
        self.random.choice(steps)()

    def rows(self) -> pa.Table:
        picked = self.random.choices(range(6), k=self.random.randint(1, 8))
        return pa.table(
            {
                "k": [None if n == 5 else n for n in picked],
                "v": [self.random.choice(["a", "b/ c", "ü", None]) for _ in picked],
                "x": [self.random.choice([None, 0.0, -0.0, float("nan"), 1.5]) for _ in picked],
            },
            schema=SCHEMA,
        )

    def append(self) -> None:
        write_deltalake(self.location, self.rows(), mode="append")

    def overwrite(self) -> None:
        write_deltalake(self.location, self.rows(), mode="overwrite")

    def delete(self) -> None:
        DeltaTable(self.location).delete(f"k = {self.random.randint(0, 5)}")

    def update(self) -> None:
        DeltaTable(self.location).update({"x": "2.5"}, predicate=f"k >= {self.random.randint(1, 5)}")

    def merge(self) -> None:
        keys = pa.table({"k": pa.array(range(self.random.randint(1, 7)), pa.int64())})
        (
            DeltaTable(self.location)
            .merge(keys, "s.k = t.k", source_alias="s", target_alias="t")
            .when_matched_delete("t.k = 1")
            .when_matched_update({"x": "t.x + 1"})
            .when_not_matched_insert({"k": "s.k", "v": "'a'"})
            .execute()
        )

    def compact(self) -> None:
        DeltaTable(self.location).optimize.compact()

    def restore(self) -> None:
        table = DeltaTable(self.location)
        table.restore(self.random.randint(0, table.version() - 1))


@pytest.mark.parametrize("partitioned", [False, True], ids=["whole", "partitioned"])
@pytest.mark.parametrize("feed", [False, True], ids=["no feed", "feed"])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_old_rows_and_change_are_the_new_rows(
    tmp_path: Path, seed: int, feed: bool, partitioned: bool
) -> None:
    location = str(tmp_path / "a table")
    writer = Writer(location, seed, feed=feed, partitioned=partitioned)
    writer.append()
    for _ in range(15):
        writer.step()
    source = DeltaSource(TableName("default", "t"), location)
    newest = source.log.newest_version() or 0
    states = [contents(location, version) for version in range(newest + 1)]
    for old in range(newest + 1):
        for new in range(old, newest + 1):
            for limits in (Limits(), Limits(feed=False)):
                got = states[old].copy()
                for row, weight in change(source, old, new, limits):
                    got[row] += weight
                assert +got == states[new], (old, new, limits)
                assert min(got.values(), default=0) >= 0


def change(source: DeltaSource, old: int, new: int, limits: Limits) -> list[tuple[str, int]]:
    versions = (SourceVersion(version, source.table_id(version)) for version in (old, new))
    # The driver reads all of this: no session is needed.
    found = read_changes(None, source, *versions, COLUMNS, limits=limits)  # type: ignore[arg-type]  # needs no Spark
    assert found.rows is not None
    rows = [(written(row), row["__hr_weight"]) for row in found.rows.to_pylist()]
    assert len({text for text, _ in rows}) == len(rows)
    assert all(weight for _, weight in rows)
    assert found.only_adds == all(weight > 0 for _, weight in rows)
    for some in (("x", "k"), ("v",)):
        assert Counter(netted(found.over(some))) == projected(found, some)
    return rows


def netted(found: SourceChange) -> dict[str, int]:
    assert found.rows is not None
    rows = found.rows.to_pylist()
    net = {repr([row[name] for name in found.columns]): row[WEIGHT] for row in rows}
    assert len(net) == len(rows)
    assert (found.gained, found.lost) == (
        sum(weight for weight in net.values() if weight > 0),
        -sum(weight for weight in net.values() if weight < 0),
    )
    return net


def projected(found: SourceChange, columns: tuple[str, ...]) -> Counter[str]:
    """Sum the weights of a change by some of its columns, and leave out what is nothing."""
    assert found.rows is not None
    net: Counter[str] = Counter()
    for row in found.rows.to_pylist():
        net[repr([row[name] for name in columns])] += row[WEIGHT]
    return Counter({text: weight for text, weight in net.items() if weight})


def contents(location: str, version: int) -> Counter[str]:
    rows = DeltaTable(location, version=version).to_pyarrow_table().to_pylist()
    return Counter(written(row) for row in rows)


def written(row: dict[str, object]) -> str:
    return repr([row[name] for name in COLUMNS])
