"""What the statements of one refresh read: changes, sources at both states, and what of these they need."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from headrace.catalog import SourceVersion
from headrace.delta.parts import made_name
from headrace.delta.statements import Statement
from headrace.plan.nodes import Node, State
from headrace.plan.render import Binding
from headrace.refresh.needed import MOST_ROWS, Near, Needed
from headrace.refresh.on_driver import OnDriver, Typed
from headrace.refresh.stages import Given, Staged, in_stages
from headrace.refresh.supersets import Search
from headrace.refresh.task import Task
from headrace.refresh.views import Views
from headrace.sources.changes import SourceChange
from headrace.sources.frames import arrow_frame, computed
from headrace.sources.log import DeltaLog
from headrace.sources.registry import Sources
from headrace.sql.names import TableName, quote
from headrace.storage.read import searchable, small_table, source_rows

# A result of Spark beyond this stays there; nothing of ours grows with the table on the driver.
DRIVER_ROWS = 500_000
# What Arrow computes from rows that it reads itself.
ARROW_ROWS = 2_000_000
# A larger change meets a good part of its tables, and Spark joins them faster than they are looked up.
_MOST_CHANGED = 1_000_000
_MOST_HANDED_OVER = 50_000


@dataclass(frozen=True)
class Beside:
    """A table of ours that queries read beside their sources, before and after the change."""

    log: DeltaLog
    old: SourceVersion
    new: SourceVersion

    def at(self, state: State) -> SourceVersion:
        return self.old if state is State.OLD else self.new


@dataclass
class Inputs:
    """Sources and their changes for queries on Spark and for the driver."""

    spark: SparkSession
    sources: Sources
    task: Task
    changes: Mapping[TableName, SourceChange]
    views: Views
    near: Mapping[TableName, Near] = field(default_factory=dict)
    beside: Mapping[TableName, Beside] = field(default_factory=dict)
    states: frozenset[str] = frozenset()
    """The definitions of all states that the query may keep."""
    built: list[str] = field(default_factory=list)
    """Those that had to be built, noted for all who share these inputs."""
    _named: dict[tuple[TableName, State], str] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self.on_driver = OnDriver(self.changes, self._read)
        """Computes what follows from the changes, and from tables as far as these are small."""
        self.changes_alone = OnDriver(self.changes, lambda *_: None)

    @property
    def changed(self) -> frozenset[TableName]:
        return frozenset(self.changes)

    @property
    def changed_rows_count(self) -> float:
        """How many rows of all sources changed; without end where the driver does not hold them."""
        return sum(
            change.rows.num_rows if change.rows is not None else math.inf for change in self.changes.values()
        )

    @property
    def binding(self) -> Binding:
        """Bind sources and their changes; what is not a relation yet becomes a view when it is asked for."""

        def bind(name: TableName, state: State) -> str:
            if state is not State.CHANGE and name not in self.beside and not self._is_handed_over(name):
                frontier = (self.task.table.frontier or {}) if state is State.OLD else self.task.frontier
                return self.sources.pins.relation(name, frontier[str(name)])
            if (name, state) not in self._named:
                self._named[name, state] = quote(self._view(name, state))
            return self._named[name, state]

        return bind

    def narrowed(self, root: Node, given: Given | None = None, *, for_spark: bool = False) -> Inputs:
        """Take of large sources only the rows that a plan needs, where they can be found quickly."""
        if self.changed_rows_count > _MOST_CHANGED:
            return self
        made = _made(given or {})
        near: Mapping[TableName, Near] = {}
        # What Arrow cannot do, Spark does over whole tables.
        with suppress(pa.ArrowException):
            useful = _MOST_HANDED_OVER if for_spark else math.inf
            near = Needed(root, self.changes, self._open, made, useful).tables()
        if not near:
            return self
        return replace(self, near=near)

    def is_for_arrow(self, node: Node, given: Given) -> bool:
        """Tell whether Arrow knows all of a plan, before any row is looked up for it."""
        return self._trial(given).rows(node) is not None

    def rows(self, node: Node, given: Given) -> pa.Table | None:
        """Compute rows from the tables and from what was computed before, on the driver; None for Spark."""
        return self._driver(given).rows(node)

    def changed_rows(self, node: Node) -> tuple[pa.Table | None, Inputs]:
        """Compute a change on the driver; None where that is for Spark, with what Spark should then read."""
        return self.computed(node, OnDriver.change)

    def computed(
        self, node: Node, compute: Callable[[OnDriver, Node], pa.Table | None]
    ) -> tuple[pa.Table | None, Inputs]:
        """Compute something of a plan on the driver, first without reading any table."""
        rows = compute(self.changes_alone, node)
        if rows is not None:
            return rows, self
        if compute(self._trial({}), node) is None:
            return None, self.narrowed(node, for_spark=True)
        staged = in_stages(node, self._stage)
        if staged is not None and not staged.given:
            inputs = self.narrowed(node)
            return compute(inputs.on_driver, node), inputs
        rows = compute(self._over(staged), staged.root) if staged is not None else None
        # Spark runs the plan as it is, without stages.
        return rows, self if rows is not None else self.narrowed(node)

    def _stage(self, node: Node, given: Given) -> pa.Table | None:
        return self._over(Staged(node, given)).change(node)

    def _over(self, staged: Staged) -> OnDriver:
        """The driver with the rows that a plan needs beside what was computed before."""
        return self.narrowed(staged.root, staged.given)._driver(staged.given)

    def _trial(self, given: Given) -> OnDriver:
        """The driver over no rows at all, which tells at once what is for Spark."""

        def no_rows(name: TableName, columns: Sequence[str], _: State) -> Typed | None:
            source = self._open(name, columns)
            return None if source is None else (source.arrow_schema.empty_table(), source.schema)

        return OnDriver(self.changes, no_rows, _made(given)).without_rows()

    def _driver(self, given: Given) -> OnDriver:
        return OnDriver(self.changes, self._read, _made(given))

    def frame(self, statement: Statement, made: dict[str, str] | None = None) -> DataFrame:
        """The result of a statement, whose parts are computed first and stay until the views are dropped."""
        made = {} if made is None else made
        for part in statement.parts:
            rows = computed(self.spark, self.spark.sql(part.write(self.binding, made)), DRIVER_ROWS)
            made[part.name] = quote(self.views.add(rows))
        return self.spark.sql(statement.write(self.binding, made))

    def _is_handed_over(self, name: TableName) -> bool:
        """Tell whether Spark gets the rows needed; many of them take it longer than reading the table."""
        near = self.near.get(name)
        return near is not None and near.largest <= _MOST_HANDED_OVER

    def _view(self, name: TableName, state: State) -> str:
        if state is State.CHANGE:
            return self.views.add(self.changes[name].to_frame(self.spark))
        near = self.near[name] if self._is_handed_over(name) else None
        if near is not None:
            return self.views.add(arrow_frame(self.spark, near.at(state), near.schema))
        return self.views.add(self._rows_beside(self.beside[name], state))

    def _rows_beside(self, table: Beside, state: State) -> DataFrame:
        at = table.at(state)
        frame = source_rows(self.spark, table.log, at)
        if frame is None:
            reader = self.spark.read.format("delta").option("versionAsOf", at.version)
            frame = reader.load(table.log.location)
        return frame

    def _read(self, name: TableName, columns: Sequence[str], state: State) -> Typed | None:
        near = self.near.get(name)
        if near is not None:
            return near.at(state).select(list(columns)), near.schema
        if name in self.beside:
            return small_table(self.beside[name].log, self.beside[name].at(state), columns)
        if state is State.OLD:
            return None
        return small_table(self.sources.find(name).log, self.task.frontier[str(name)], columns)

    def _open(self, name: TableName, columns: Sequence[str]) -> Search | None:
        if name in self.beside:
            return searchable(self.beside[name].log, self.beside[name].new, columns, most=MOST_ROWS)
        at = self.task.frontier[str(name)]
        return searchable(self.sources.find(name).log, at, columns, most=MOST_ROWS)


def _made(given: Given) -> dict[TableName, Typed]:
    """What was computed before, under the names of the tables that stand for it in a plan."""
    return {made_name(name): rows for name, rows in given.items()}
