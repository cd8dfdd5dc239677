"""Random queries over tables that changed, for what a refresh looks up and computes on the driver."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from headrace.sql.names import TableName
from tests.algebra.campaign import change_of
from tests.algebra.engine import Database, Subject, name_of
from tests.algebra.queries import INT, Generator, Schema, random_row, random_schema

# Types that numbers may have beside INTEGER; some of them are not compared in Arrow.
NUMBERS = ("SMALLINT", "BIGINT", "DOUBLE", "DECIMAL(10, 2)")


@dataclass(frozen=True)
class Case:
    """A query, and the tables that changed by one round."""

    subject: Subject
    changed: frozenset[TableName]


def random_case(seed: int, depths: Sequence[int], *, numbers: Sequence[str] = (INT,)) -> Case:
    """Make the case of a number: a schema, eight rows in each table, a query, and a change."""
    random = Random(seed)
    schema = random_schema(random)
    start = {table: Counter(random_row(random, schema[table]) for _ in range(8)) for table in schema}
    # The generator knows but two types, and writes what any number takes.
    database = Database.shared(_typed(Random(seed), schema, numbers), start)
    subject = Subject(database, Generator(random, schema).query(random.choice(depths)).sql)
    changing = random.sample(sorted(schema), random.choice((1, 1, 2)))
    database.change({table: change_of(random, database, table) for table in changing})
    return Case(subject, frozenset(map(name_of, changing)))


def _typed(random: Random, schema: Schema, numbers: Sequence[str]) -> Schema:
    return {
        table: [(name, random.choice(numbers) if type_ == INT else type_) for name, type_ in columns]
        for table, columns in schema.items()
    }
