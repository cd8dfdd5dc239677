"""Stream tables of one warehouse through rounds of changes, with what each held after each round.

Many queries share one set of sources, because on Spark a round costs seconds and a query in it little more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable

from headrace import Headrace, HeadraceError
from headrace.refresh.result import RefreshResult

Row = tuple[Any, ...]
Rows = Counter[Row]


@dataclass(frozen=True)
class Step:
    """A stream table after one refresh: what it holds, and what its query gives."""

    action: str
    reason: str
    stored: Rows
    wanted: Rows


@dataclass
class Story:
    """One stream table: its contents when created, and after each refresh."""

    name: str
    query: str
    start: Rows = field(default_factory=Counter)
    steps: list[Step] = field(default_factory=list)
    failure: HeadraceError | None = None

    def check(self) -> list[Rows]:
        """Hold every refresh to the query and to the change; give the contents from the start on."""
        if self.failure is not None:
            raise self.failure
        assert self.steps
        for number, step in enumerate(self.steps, start=1):
            extra, missing = step.stored - step.wanted, step.wanted - step.stored
            assert step.stored == step.wanted, f"round {number}: extra {extra}, missing {missing}"
            assert step.action == "DIFFERENTIAL", f"round {number}: {step.action}, {step.reason}"
        contents = [self.start, *(step.stored for step in self.steps)]
        assert any(rows != self.start for rows in contents), "the result must really change"
        return contents


def play(hr: Headrace, queries: Mapping[str, str], rounds: Sequence[Sequence[str]]) -> dict[str, Story]:
    """Create a stream table for each query, then refresh all after each round of statements.

    What fails for one query is kept in its story, and the others go on.
    """
    names = {f"st_{at}": Story(f"st_{at}", query) for at, query in enumerate(queries.values())}
    for name, story in names.items():
        with kept(story):
            hr.create_stream_table(name, story.query, refresh_mode="DIFFERENTIAL")
            story.start = stored_rows(hr, name)
    for statements in rounds:
        for statement in statements:
            hr.sql(statement)
        for name, story in names.items():
            with kept(story):
                story.steps.append(step(hr, name, hr.refresh_stream_table(name)))
    return dict(zip(queries, names.values(), strict=True))


@contextmanager
def kept(story: Story) -> Iterator[None]:
    """Keep the first failure of a story."""
    try:
        yield
    except HeadraceError as failure:
        story.failure = story.failure or failure


def step(hr: Headrace, name: str, result: RefreshResult) -> Step:
    """What a stream table holds now, beside the result of its query's own text."""
    query = hr.catalog.find(hr.qualify(name)).query
    wanted = rows_of(hr.spark.sql(query).toArrow())
    return Step(str(result.action), result.reason, stored_rows(hr, name), wanted)


def stored_rows(hr: Headrace, name: str) -> Rows:
    """The rows of a stream table, read by another reader than Spark where that can."""
    location = Path(hr.catalog.find(hr.qualify(name)).location)
    table = DeltaTable(location)
    if set(table.protocol().reader_features or []) - {"timestampNtz"}:
        return rows_of(hr.spark.table(name).toArrow())
    return rows_of(table.to_pyarrow_table())


def rows_of(table: pa.Table) -> Rows:
    return Counter(tuple(map(_plain, row.values())) for row in table.to_pylist())


def _plain(value: Any) -> Any:
    """A value that can be counted; doubles agree in their first eleven digits, and -0.0 equals 0.0."""
    match value:
        case float():
            return f"{value + 0.0:.10e}"
        case list():
            return tuple(map(_plain, value))
        case dict():
            return tuple((key, _plain(part)) for key, part in value.items())
    return value
