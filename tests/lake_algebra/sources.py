"""Random Delta tables, and random writes to them by delta-rs and by Spark."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from headrace import Headrace
from tests.algebra.queries import STR, random_row

Row = tuple[Any, ...]
Columns = Sequence[tuple[str, str]]


@dataclass
class SourceTable:
    """One table of a warehouse, written to at random."""

    hr: Headrace
    warehouse: Path
    name: str
    columns: Columns
    random: Random
    written: list[str] = field(default_factory=list)

    @property
    def location(self) -> str:
        return str(self.warehouse / self.name)

    def create(self, rows: Iterable[Row]) -> None:
        """Make the table; some have a change feed, some deletion vectors, some neither."""
        feed = self.random.random() < 0.4
        vectors = not feed and self.random.random() < 0.3
        if vectors:
            # Only Spark writes deletion vectors.
            listed = ", ".join(f"{name} {_spark_type(type_)}" for name, type_ in self.columns)
            self.hr.sql(
                f"CREATE TABLE {self.name} ({listed}) USING delta "
                "TBLPROPERTIES (delta.enableDeletionVectors = true)"
            )
            self.insert_by_spark(rows)
            return
        configuration = {"delta.enableChangeDataFeed": str(feed).lower()}
        write_deltalake(self.location, self._arrow(rows), configuration=configuration)

    def change(self) -> None:
        """Write to the table one to three times."""
        writes: list[Callable[[], object]] = [
            self.append,
            self.append,
            self.replace_some,
            self.replace_some,
            self.by_spark,
            self.empty,
        ]
        if not self._has_vectors():
            writes += [self.delete, self.update, self.update]
        for _ in range(self.random.choice((1, 1, 2, 3))):
            write = self.random.choice(writes)
            self.written.append(write.__name__)
            write()

    def append(self) -> None:
        rows = [random_row(self.random, self.columns) for _ in range(self.random.randint(1, 4))]
        write_deltalake(self.location, self._arrow(rows * self.random.randint(1, 2)), mode="append")

    def replace_some(self) -> None:
        """Write the table anew with single copies of rows gone, changed or added."""
        rows: Counter[Row] = Counter()
        share = self.random.choice((0.1, 0.3, 0.6))
        for row in self._rows():
            if self.random.random() > share:
                rows[row] += 1
            elif self.random.random() < 0.6:
                place = self.random.randrange(len(row))
                fresh = random_row(self.random, self.columns)
                rows[(*row[:place], fresh[place], *row[place + 1 :])] += 1
        rows.update(random_row(self.random, self.columns) for _ in range(self.random.randint(0, 2)))
        write_deltalake(self.location, self._arrow(rows.elements()), mode="overwrite")

    def delete(self) -> None:
        DeltaTable(self.location).delete(self._condition())

    def update(self) -> None:
        name, type_ = self.random.choice(list(self.columns))
        value = _literal(random_row(self.random, [(name, type_)])[0])
        DeltaTable(self.location).update({name: value}, predicate=self._condition())

    def by_spark(self) -> None:
        condition = self._condition()
        name, type_ = self.random.choice(list(self.columns))
        value = _literal(random_row(self.random, [(name, type_)])[0])
        statements = [
            f"DELETE FROM {self.name} WHERE {condition}",
            f"UPDATE {self.name} SET {name} = {value} WHERE {condition}",
            f"INSERT INTO {self.name} SELECT * FROM {self.name} WHERE {condition}",
        ]
        self.hr.sql(self.random.choice(statements))

    def empty(self) -> None:
        """Take every row away, one time in three."""
        if self.random.random() < 0.35:
            self.hr.sql(f"DELETE FROM {self.name}")
        else:
            self.append()

    def insert_by_spark(self, rows: Iterable[Row]) -> None:
        values = ", ".join(f"({', '.join(map(_literal, row))})" for row in rows)
        if values:
            self.hr.sql(f"INSERT INTO {self.name} VALUES {values}")

    def _condition(self) -> str:
        name, type_ = self.random.choice(list(self.columns))
        if self.random.random() < 0.2:
            return f"{name} IS NULL"
        value = "'xy'" if type_ == STR else str(self.random.randint(0, 2))
        return f"{name} {self.random.choice(['=', '>='])} {value}"

    def _rows(self) -> list[Row]:
        if self._has_vectors():
            found = self.hr.spark.read.format("delta").load(self.location).collect()
            return sorted((tuple(row) for row in found), key=repr)
        columns = DeltaTable(self.location).to_pyarrow_table().to_pydict()
        return sorted(zip(*(columns[name] for name, _ in self.columns), strict=True), key=repr)

    def _has_vectors(self) -> bool:
        return "deletionVectors" in (DeltaTable(self.location).protocol().writer_features or [])

    def _arrow(self, rows: Iterable[Row]) -> pa.Table:
        listed = list(rows)
        types = [(name, pa.string() if type_ == STR else pa.int32()) for name, type_ in self.columns]
        columns = [pa.array([row[i] for row in listed], type_) for i, (_, type_) in enumerate(types)]
        return pa.Table.from_arrays(columns, schema=pa.schema(types))


def _spark_type(type_: str) -> str:
    return "STRING" if type_ == STR else "INT"


def _literal(value: Any) -> str:
    if value is None:
        return "NULL"
    return f"'{value}'" if isinstance(value, str) else str(value)
