"""Many random cases: `python -m tests.algebra.campaign --cases 5000 --seed 1`."""

from __future__ import annotations

import argparse
import gc
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from random import Random

import duckdb

from headrace.delta import keyed_change, state_plan
from headrace.delta.kept import kept_plan
from headrace.plan.nodes import Opaque, State, sources
from tests.algebra.engine import Database, Subject, check_round, name_of, without_optimizer
from tests.algebra.queries import Generator, random_row, random_schema
from tests.algebra.stored import Inside, Kept, Replacement

# How deep queries nest, in parts of twenty: the deep ones cost most and meet the same rules.
DEPTHS = (0,) * 3 + (1,) * 10 + (2,) * 5 + (3, 4)


@dataclass
class Report:
    """What a campaign met."""

    cases: int = 0
    rounds: int = 0
    effective: int = 0
    by_state: int = 0
    by_replacement: int = 0
    by_groups_inside: int = 0
    opaque: int = 0
    not_compared: int = 0
    refused_by_duckdb: int = 0
    optimizer: int = 0
    failures: list[tuple[int, str]] = field(default_factory=list)

    def __str__(self) -> str:
        return (
            f"{self.cases} cases, {self.rounds} rounds, {self.effective} of which changed the result, "
            f"{len(self.failures)} failures; "
            f"{self.by_state} with state, {self.by_groups_inside} with state inside, "
            f"{self.by_replacement} by replacement too, "
            f"{self.opaque} kept as text, {self.not_compared} with open ties, "
            f"{self.refused_by_duckdb} that DuckDB cannot run, {self.optimizer} wrong by its optimizer alone"
        )


def check_case(number: int, report: Report, *, depth: int = 4) -> None:
    """The case of a number; where DuckDB's optimizer alone makes a difference, that is not ours."""
    try:
        run_case(Random(number), report, depth=depth)
    except (AssertionError, duckdb.Error):
        with without_optimizer():
            run_case(Random(number), Report(), depth=depth)
        report.optimizer += 1


def run_case(random: Random, report: Report, *, depth: int = 4, rounds: int = 2) -> None:
    """One random schema, its data, a query over it, and rounds of changes."""
    schema = random_schema(random)
    start = {
        table: Counter(random_row(random, columns) for _ in range(random.choice((0, 4, 8, 8, 14))))
        for table, columns in schema.items()
    }
    generator = Generator(random, schema)
    views = {}
    if random.random() < 0.1:
        view = generator.query(1)
        generator.views["seen"] = view.columns
        views["seen"] = (view.sql, [column.name for column in view.columns])
    text = generator.query(min(depth, random.choice(DEPTHS))).sql
    database = Database.shared(schema, start, views)
    subject = Subject(database, text)
    state = state_plan(subject.plan)
    kept = None if state is None else Kept(database, state)
    report.cases += 1
    report.by_state += kept is not None
    report.opaque += isinstance(subject.plan.root, Opaque)
    report.not_compared += generator.ambiguous
    compare = not generator.ambiguous
    if compare:
        try:
            subject.as_written()
        except duckdb.Error:
            compare = False
            report.refused_by_duckdb += 1
            if isinstance(subject.plan.root, Opaque):
                return
    elif isinstance(subject.plan.root, Opaque):
        return
    if isinstance(subject.plan.root, Opaque) and not _runs_as_text(subject):
        report.refused_by_duckdb += 1
        return
    read = sorted(name.table for name in sources(subject.plan.root)) or sorted(schema)
    # Which tables change is fixed for a case, so that its change is compiled once.
    changing = {random.choice(read), *(table for table in schema if random.random() < 0.5)}
    changed = frozenset(map(name_of, changing))
    keyed = keyed_change(subject.plan, changed)
    replacement = None if keyed is None else Replacement(subject, keyed)
    report.by_replacement += replacement is not None
    inner = kept_plan(subject.plan)
    inside = None if inner is None else Inside(database, inner, changed)
    report.by_groups_inside += inside is not None
    result = subject.planned(State.NEW)
    for number in range(1, rounds + 1):
        database.change({table: change_of(random, database, table) for table in sorted(changing)})
        old = Counter(result)
        change = check_round(subject, changed, as_written=compare and number == rounds, old=old)
        result.update(change)
        result = +result
        if kept is not None:
            kept.apply(changed)
            kept.check(result)
        if replacement is not None:
            replacement.check(old, result)
        if inside is not None:
            inside.check(old, result)
        report.rounds += 1
        report.effective += bool(change)


def _runs_as_text(subject: Subject) -> bool:
    """Tell whether DuckDB takes a query that is kept as text in Spark's own words."""
    try:
        subject.planned(State.NEW)
    except duckdb.ParserException:
        return False
    return True


def change_of(random: Random, database: Database, table: str) -> Counter[tuple[object, ...]]:
    """Deletes, inserts, updates and key changes; sometimes everything goes."""
    change: Counter[tuple[object, ...]] = Counter()
    share = random.choice([0.1, 0.3, 0.6, 1.0])
    for row in database.rows[table].elements():
        if random.random() < share:
            change[row] -= 1
            if random.random() < 0.5:
                place = random.randrange(len(row))
                fresh = random_row(random, database.schemas[table])
                change[(*row[:place], fresh[place], *row[place + 1 :])] += 1
    for _ in range(random.randint(0, 3)):
        change[random_row(random, database.schemas[table])] += random.randint(1, 2)
    return change


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--depth", type=int, default=4)
    parser.add_argument("--stop", type=int, default=10, help="stop after so many failures")
    arguments = parser.parse_args()
    # Trees of expressions come and go by the hundred thousand, and few of them hold cycles.
    gc.set_threshold(100_000, 20, 50)
    report, started = Report(), time.monotonic()
    for case in range(arguments.cases):
        seed = arguments.seed * 1_000_000 + case
        try:
            check_case(seed, report, depth=arguments.depth)
        except Exception as failure:  # noqa: BLE001  (a campaign reports every failure and goes on)
            report.failures.append((seed, f"{type(failure).__name__}: {failure}"))
            print(f"case {seed}: {type(failure).__name__}: {str(failure)[:3000]}\n", flush=True)
            if len(report.failures) >= arguments.stop:
                break
        if report.cases % 200 == 0:
            print(f"seed {arguments.seed} so far: {report}", flush=True)
    print(f"seed {arguments.seed}: {report}, {time.monotonic() - started:.0f} s")
    return 1 if report.failures else 0


if __name__ == "__main__":
    sys.exit(main())
