"""Random queries on Spark and Delta: `python -m tests.lake_algebra.campaign --cases 300 --seed 1000`."""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from sqlglot import exp

import headrace
from headrace import Headrace, HeadraceError
from headrace.catalog import Action
from headrace.sql.references import parse_query
from tests.algebra.queries import Generator, Schema, random_row, random_schema
from tests.conftest import SMALL
from tests.lake_algebra.play import rows_of, stored_rows
from tests.lake_algebra.sources import SourceTable

# Stream tables over one set of sources.
LAKE = 15
# A cross product of many tables keeps Spark, or its planner, busy for hours, and its change query longer.
MOST_TABLES = 8
LONGEST_SECONDS = 10


@dataclass
class Report:
    """What a campaign met."""

    cases: int = 0
    refreshes: int = 0
    effective: int = 0
    refused_by_spark: Counter[str] = field(default_factory=Counter)
    actions: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        actions = ", ".join(f"{count} {action}" for action, count in self.actions.most_common())
        return (
            f"{self.cases} cases, {self.refreshes} refreshes ({actions}), "
            f"{self.effective} of which changed the result, {len(self.failures)} failures; "
            f"{self.refused_by_spark.total()} queries that Spark does not run"
        )


@dataclass
class Lake:
    """One warehouse with random sources, and stream tables over them."""

    hr: Headrace
    folder: Path
    seed: int
    report: Report
    random: Random = field(init=False)
    schema: Schema = field(init=False)
    sources: list[SourceTable] = field(init=False)
    tables: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.random = Random(self.seed)
        self.schema = random_schema(self.random)
        self.sources = [
            SourceTable(self.hr, self.folder, name, columns, self.random)
            for name, columns in self.schema.items()
        ]
        for source in self.sources:
            count = self.random.choice((0, 4, 8, 8, 14))
            source.create([random_row(self.random, source.columns) for _ in range(count)])
        # A statement brings the session's names in step with the folder.
        self.hr.sql("SHOW TABLES")

    def add(self, depth: int) -> None:
        """Create a stream table over a query that Spark runs and whose result its text decides."""
        text = self.query(depth)
        self.report.cases += 1
        name = f"st{self.report.cases}"
        try:
            self.hr.create_stream_table(name, text, refresh_mode="DIFFERENTIAL")
        except HeadraceError as error:
            self.fail(text, f"creation: {error}")
            return
        table = self.hr.catalog.find(self.hr.qualify(name))
        if table.effective_mode == "DIFFERENTIAL":
            self.tables[name] = text
        else:
            self.fail(text, table.mode_reason)

    def query(self, depth: int) -> str:
        while True:
            generator = Generator(self.random, self.schema)
            text = generator.query(min(depth, self.random.choice((0, 1, 1, 2, 2, 2, 3, 4)))).sql
            if generator.ambiguous or len(list(parse_query(text).find_all(exp.Table))) > MOST_TABLES:
                continue
            stop = threading.Timer(LONGEST_SECONDS, self.hr.spark.sparkContext.cancelAllJobs)
            stop.start()
            try:
                self.hr.spark.sql(text).toArrow()
            except PySparkException as error:
                self.report.refused_by_spark[str(error.getCondition())] += 1
            except Py4JJavaError:
                # What is cancelled after its job began comes back undressed.
                self.report.refused_by_spark["too slow"] += 1
            else:
                return text
            finally:
                stop.cancel()

    def change(self) -> None:
        """Write to some of the sources."""
        chosen = [source for source in self.sources if self.random.random() < 0.6]
        for source in chosen or [self.random.choice(self.sources)]:
            source.change()

    def refresh(self) -> None:
        """Refresh every stream table by the change, and hold it to its query."""
        for name, text in list(self.tables.items()):
            before = stored_rows(self.hr, name)
            try:
                result = self.hr.refresh_stream_table(name)
            except HeadraceError as error:
                self.fail(text, f"refresh: {error}")
                del self.tables[name]
                continue
            stored, wanted = stored_rows(self.hr, name), rows_of(self.hr.spark.sql(text).toArrow())
            self.report.refreshes += 1
            self.report.actions[str(result.action)] += 1
            self.report.effective += stored != before
            if result.action not in (Action.DIFFERENTIAL, Action.NO_DATA):
                self.fail(text, f"{result.action}: {result.reason}")
            if stored != wanted:
                writes = {source.name: source.written for source in self.sources}
                difference = f"missing {wanted - stored}, extra {stored - wanted}"
                self.fail(text, f"{result.action}, {result.reason}: {difference}; writes {writes}")
                del self.tables[name]

    def verify(self) -> None:
        """Compare once more, by the product's own means."""
        for name, text in self.tables.items():
            verified = self.hr.verify(name)
            if not verified.ok:
                self.fail(text, str(verified))

    def fail(self, text: str, what: str) -> None:
        self.report.failures.append(f"seed {self.seed}: {text}\n  {what}")


@contextmanager
def random_lake(seed: int, report: Report) -> Iterator[Lake]:
    """Random sources in a warehouse of their own."""
    with (
        tempfile.TemporaryDirectory() as folder,
        headrace.connect(warehouse=folder, spark_conf=SMALL) as hr,
    ):
        yield Lake(hr, Path(folder), seed, report)


def run_lake(seed: int, report: Report, *, cases: int, rounds: int, depth: int) -> None:
    """Make stream tables over random sources, and refresh them after each round of changes."""
    with random_lake(seed, report) as lake:
        for _ in range(cases):
            lake.add(depth)
        for _ in range(rounds):
            lake.change()
            lake.refresh()
        lake.verify()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0, help="of the first lake; each lake takes the next one")
    parser.add_argument("--depth", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--stop", type=int, default=10, help="stop after so many failures")
    arguments = parser.parse_args()
    report, started, told, seed = Report(), time.monotonic(), 0, arguments.seed
    while report.cases < arguments.cases and len(report.failures) < arguments.stop:
        cases = min(LAKE, arguments.cases - report.cases)
        run_lake(seed, report, cases=cases, rounds=arguments.rounds, depth=arguments.depth)
        for failure in report.failures[told:]:
            print(failure, flush=True)
        print(f"{time.monotonic() - started:.0f} s, seed {seed}: {report}", flush=True)
        told, seed = len(report.failures), seed + 1
    print(f"seeds {arguments.seed} to {seed - 1}: {report}, {time.monotonic() - started:.0f} s")
    print(f"not run by Spark: {dict(report.refused_by_spark)}")
    return 1 if report.failures else 0


if __name__ == "__main__":
    sys.exit(main())
