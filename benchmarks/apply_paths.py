"""Measure the ways of applying a change to a stream table's Delta table.

Every way applies the same change to a copy of the same table; rounds are interleaved, the first does not
count, and medians are shown. `python benchmarks/apply_paths.py --help` lists the options.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path as FilePath

import numpy as np
import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, write_deltalake
from pyspark.sql import SparkSession

import headrace
from headrace.catalog import SourceVersion
from headrace.storage.apply import WEIGHT, Path, TableChange, apply_change
from headrace.storage.marker import Marker
from headrace.storage.table import Storage

RESULTS = FilePath(__file__).parent / "results" / "apply_paths.json"
MERGE_BY_DELTA_RS = "delta-rs merge"


@dataclass(frozen=True)
class Case:
    """A table, a change of it, and where in the table the change falls."""

    name: str
    rows: int
    changes: int
    pattern: str


CASES = (
    Case("20 k rows, 1 k changes", 20_000, 1_000, "uniform"),
    Case("1 M rows, 10 k changes", 1_000_000, 10_000, "uniform"),
    Case("1 M rows, 10 k recent changes", 1_000_000, 10_000, "recent"),
    Case("6 M rows, 60 k changes", 6_000_000, 60_000, "uniform"),
    Case("6 M rows, 60 k recent changes", 6_000_000, 60_000, "recent"),
)


def main() -> None:
    options = _options()
    chosen = [case for case in CASES if case.rows <= options.max_rows]
    with tempfile.TemporaryDirectory() as folder:
        spark = None
        if options.spark:
            spark = headrace.connect(warehouse=FilePath(folder) / "lake").spark
        results = [measure(case, FilePath(folder), spark, options.rounds) for case in chosen]
    print(table(results))
    if options.write:
        report = {"machine": machine(), "rounds": options.rounds, "results": results}
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text(json.dumps(report, indent=1) + "\n")


def measure(case: Case, folder: FilePath, spark: SparkSession | None, rounds: int) -> dict[str, object]:
    """Time every path on one case, in seconds."""
    original = folder / "original"
    stored = rows_of(np.arange(case.rows), seed=1)
    shutil.rmtree(original, ignore_errors=True)
    write_deltalake(original, stored, target_file_size=8 << 20)
    change = change_of(stored, case)
    times: dict[str, list[float]] = {}
    for _ in range(rounds + 1):
        for name, run in paths(case, spark):
            copy = folder / "copy"
            shutil.copytree(original, copy)
            started = time.perf_counter()
            run(copy, change)
            times.setdefault(name, []).append(time.perf_counter() - started)
            shutil.rmtree(copy)
    size = sum(os.path.getsize(original / path) for path in os.listdir(original) if path.endswith(".parquet"))
    medians = {name: round(statistics.median(taken[1:]), 4) for name, taken in times.items()}
    return {"case": case.name, "table_mb": round(size / 1e6, 1), "seconds": medians}


def paths(
    case: Case, spark: SparkSession | None
) -> Iterator[tuple[str, Callable[[FilePath, pa.Table], None]]]:
    driver = [Path.FILES, Path.VECTORS] + ([Path.REWRITE] if case.rows <= 100_000 else [])
    by_spark = [Path.SPARK_MERGE, Path.SPARK_REWRITE] if spark else []
    for path in (*driver, *by_spark):
        yield path.value, _applying(path, (), spark)
    yield f"{Path.FILES} by key", _applying(Path.FILES, ("id",), spark)
    yield f"{Path.VECTORS} by key", _applying(Path.VECTORS, ("id",), spark)
    yield MERGE_BY_DELTA_RS, merge_by_delta_rs
    yield "append of the gains alone", append_gains


def _applying(
    path: Path, key: tuple[str, ...], spark: SparkSession | None
) -> Callable[[FilePath, pa.Table], None]:
    def run(location: FilePath, change: pa.Table) -> None:
        storage = Storage(str(location), "bench")
        apply_change(storage, TableChange(rows=change, key=key), marker(), spark=spark, path=path)  # type: ignore[arg-type]  # the paths of the driver need no session

    return run


def merge_by_delta_rs(location: FilePath, change: pa.Table) -> None:
    """What the library offers for the same change, without counting copies."""
    names = [name for name in change.column_names if name != WEIGHT]
    same = " AND ".join(f'(t."{name}" IS NOT DISTINCT FROM s."{name}")' for name in names)
    merge = DeltaTable(location).merge(
        change,
        f"{same} AND s.{WEIGHT} < 0",
        source_alias="s",
        target_alias="t",
        commit_properties=CommitProperties(custom_metadata={"userMetadata": marker().encode()}),
    )
    values = {name: f's."{name}"' for name in names}
    merge.when_matched_delete().when_not_matched_insert(values, predicate=f"s.{WEIGHT} > 0").execute()


def append_gains(location: FilePath, change: pa.Table) -> None:
    gains = change.filter(pa.compute.greater(change[WEIGHT], 0))
    apply_change(Storage(str(location), "bench"), TableChange(rows=gains), marker(), spark=None)  # type: ignore[arg-type]  # needs no Spark


def rows_of(ids: np.ndarray, *, seed: int) -> pa.Table:
    """Make rows as a join of orders with customers would give them."""
    rng = np.random.default_rng(seed)
    count = len(ids)
    cents = rng.integers(0, 10**7, count)
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "customer": rng.integers(0, 50_000, count),
            "region": np.array(["north", "south", "east", "west"])[rng.integers(0, 4, count)],
            "amount": pa.array(cents, pa.int64()).cast(pa.decimal128(20, 0)),
            "score": rng.random(count),
            "note": pa.array(rng.integers(0, 10**9, count)).cast(pa.string()),
        }
    )


def change_of(stored: pa.Table, case: Case) -> pa.Table:
    """Update rows all over the table, or in its newest fiftieth."""
    rng = np.random.default_rng(2)
    first = 0 if case.pattern == "uniform" else case.rows - case.rows // 50
    ids = np.sort(rng.choice(np.arange(first, case.rows), case.changes, replace=False))
    old, new = stored.take(pa.array(ids)), rows_of(ids, seed=3)
    parts = [
        part.append_column(WEIGHT, pa.array(np.full(part.num_rows, weight)))
        for part, weight in ((old, -1), (new, 1))
    ]
    return pa.concat_tables(parts)


def marker() -> Marker:
    now = datetime.now(UTC)
    return Marker("bench", 1, "DIFFERENTIAL", "measured", {"s": SourceVersion(1, "s")}, now, now)


def table(results: list[dict[str, object]]) -> str:
    lines = []
    for result in results:
        lines.append(f"\n{result['case']}, {result['table_mb']} MB stored")
        seconds = result["seconds"]
        assert isinstance(seconds, dict)
        lines += [f"  {name:28}{taken:9.3f} s" for name, taken in seconds.items()]
    return "\n".join(lines)


def machine() -> dict[str, object]:
    return {
        "cores": os.cpu_count(),
        "platform": platform.platform(),
        "python": platform.python_version(),
        "load": round(os.getloadavg()[0], 1),
    }


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="measured rounds after one to warm up")
    parser.add_argument("--max-rows", type=int, default=6_000_000, help="leave out larger tables")
    parser.add_argument("--spark", action="store_true", help="measure Spark's paths too")
    parser.add_argument("--write", action="store_true", help=f"write {RESULTS.name}")
    return parser.parse_args()


if __name__ == "__main__":
    main()
