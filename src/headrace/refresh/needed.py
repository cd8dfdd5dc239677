"""The rows of large tables that a change can meet, found on the driver.

A change joins a handful of rows with whole tables, and Spark scans every one of them for each term. Here the
plan of a change is followed from its small inputs outward, without computing it: a join by equal columns
needs only the rows of one side that have the values of the other. What the plan as a whole needs of a table
is read once, and the change is then computed from these rows as if they were the table.

Everything here may find too many rows, and never too few: a condition that Arrow does not compute as Spark
does is taken for true, a column that it does not compute is left out and limits nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import StructType
from sqlglot import exp

from headrace.delta.bilinear import Flat, flatten, is_join_tree
from headrace.delta.parts import is_made
from headrace.plan.expressions import Pairs, conjuncts, equal_columns, perhaps_equal_columns
from headrace.plan.hidden import WEIGHT
from headrace.plan.nodes import (
    Aggregate,
    Filter,
    Generate,
    Join,
    Node,
    Opaque,
    Project,
    Scan,
    SetOperation,
    State,
    TopN,
    UnionAll,
    Window,
    walk,
)
from headrace.refresh.arrow_kinds import NotInArrow
from headrace.refresh.on_driver import Typed, before
from headrace.refresh.supersets import (
    Limits,
    Search,
    distinct,
    filtered,
    met_by,
    paired,
    passes,
    plain,
    projected,
    renamed,
    tests_of,
    together,
)
from headrace.sources.changes import SourceChange
from headrace.sources.search import ROW
from headrace.sql.names import TableName

# What the driver holds of one table.
MOST_ROWS = 2_000_000
# A table that is needed whole is followed up to so many rows.
_SMALL_ROWS = 200_000

OpenSource: TypeAlias = Callable[[TableName, Sequence[str]], Search | None]


@dataclass(frozen=True)
class Near:
    """All rows of a source that a change can meet, before and after it."""

    old: pa.Table | None
    """None where the plan does not read them."""
    new: pa.Table
    schema: StructType

    def at(self, state: State) -> pa.Table:
        if state is not State.OLD:
            return self.new
        if self.old is None:
            raise ValueError("an old state that the plan was not to read")
        return self.old

    @property
    def largest(self) -> int:
        """How many rows there are in the larger state."""
        return max(int(rows.num_rows) for rows in (self.old, self.new) if rows is not None)


class Needed:
    """What one plan needs of its sources."""

    def __init__(
        self,
        root: Node,
        changes: Mapping[TableName, SourceChange],
        open_source: OpenSource,
        given: Mapping[TableName, Typed] | None = None,
        useful: float = math.inf,
    ) -> None:
        """Take up a plan; where more rows of a table than are useful are expected, none is looked up."""
        self._changes = changes
        self._useful = useful
        self._open_source = open_source
        self._opened: dict[TableName, Search | None] = {}
        self._given = {name: plain(*typed) for name, typed in (given or {}).items()}
        self._columns = _columns_read(root)
        self._read_before = {
            node.source for node in walk(root) if isinstance(node, Scan) and node.state is State.OLD
        }
        self._whole: set[TableName] = set()
        self._tests: dict[TableName, list[Limits]] = {}
        self._found: dict[TableName, list[pa.Table]] = {}
        # Whatever is known by its identity is held, lest another object take its place.
        self._held: list[object] = [root]
        self._done: dict[tuple[object, ...], pa.Table | None] = {}
        self._values: dict[tuple[int, str, bool], pa.Array] = {}
        self._seeds = _seeds(root)
        self._rows(root, {})

    def _open(self, name: TableName) -> Search | None:
        if name not in self._opened:
            self._opened[name] = self._open_source(name, self._columns[name])
        return self._opened[name]

    def tables(self) -> dict[TableName, Near]:
        """Give the sources of which only some rows are needed."""
        near = {}
        for name in self._found.keys() - self._whole:
            try:
                near[name] = self._near(name)
            except (NotInArrow, pa.ArrowException):
                continue
        return near

    def _near(self, name: TableName) -> Near:
        rows = pa.concat_tables(self._found[name])
        # In the order of the files, so that floats are summed as they would be there.
        _, places = np.unique(rows[ROW].to_numpy(), return_index=True)
        new = rows.take(pa.array(places)).drop_columns([ROW])
        change, source = self._changes.get(name), self._open(name)
        assert source is not None
        if change is None:
            return Near(new, new, source.schema)
        if name not in self._read_before:
            return Near(None, new, source.schema)
        if change.rows is None:
            raise NotInArrow("a change that Spark holds")
        moved = change.rows.select([*self._columns[name], WEIGHT])
        met = reduce(pc.or_, (passes(moved, tests) for tests in self._tests[name]))
        return Near(before(new, moved.filter(met), MOST_ROWS), new, source.schema)

    def _rows(self, node: Node, limits: Limits) -> pa.Table | None:
        """Follow a plan, of whose rows only those within limits matter.

        Give rows that hold, for the columns they have, all values that occur together; None for unknown.
        """
        if WEIGHT in node.columns:
            # A change is small by itself, and shared by many that have different limits.
            limits = {}
        key = (id(node), *sorted((name, id(values)) for name, values in limits.items()))
        if key not in self._done:
            self._held += [node, *limits.values()]
            self._done[key] = self._followed(node, limits)
        return self._done[key]

    def _followed(self, node: Node, limits: Limits) -> pa.Table | None:
        match node:
            case Scan():
                return self._scanned(node, limits)
            case Project():
                passed = {
                    item.name: limits[name]
                    for name, item in node.items
                    if name in limits and isinstance(item, exp.Column)
                }
                return projected(node, self._rows(node.child, passed))
            case Filter() | Join(kind="inner") if is_join_tree(node):
                return self._joined(flatten(node), limits)
            case Filter():
                return filtered(self._rows(node.child, limits), conjuncts(node.condition))
            case Join():
                return self._left_joined(node, limits)
            case Aggregate():
                rows = self._rows(node.child, _within(limits, node.keys))
                return distinct(rows, node.keys)
            case Window() | TopN():
                return self._rows(node.child, _within(limits, node.partition))
            case Generate():
                return self._rows(node.child, _within(limits, node.child.columns))
            case SetOperation() | UnionAll():
                alike = {name: limits[name] for name in limits if self._is_of_one_type(node, name)}
                return together([self._rows(branch, alike) for branch in node.inputs])
            case Opaque():
                self._whole |= set(node.query.sources)
        return None

    def _scanned(self, node: Scan, limits: Limits) -> pa.Table | None:
        name = node.source
        if is_made(name):
            return renamed(self._given.get(name), node)
        if node.state is State.CHANGE:
            change = self._changes[name]
            return renamed(plain(change.rows, change.schema), node) if change.rows is not None else None
        rows = self._looked_up(name, {source: limits[own] for own, source in node.names if own in limits})
        if rows is None:
            self._whole.add(name)
            return None
        moved = self._changes.get(name) if node.state is State.OLD else None
        if moved is not None:
            lost = moved.rows.select(rows.column_names) if moved.rows is not None else None
            rows = together([rows, lost])
        return renamed(rows, node)

    def _looked_up(self, name: TableName, limits: Limits) -> pa.Table | None:
        """Find the rows of a source within limits; None where they are too many.

        Of a small table that nothing limits, these are all: what it is joined with may be limited by them.
        """
        # Arrow does not count rows without columns.
        source = self._open(name) if name not in self._whole and self._columns[name] else None
        tests = tests_of(limits, source) if source is not None else {}
        if source is None or not (tests or source.count <= _SMALL_ROWS):
            return None
        if tests and source.expected(tests) > self._useful:
            return None
        key = (name, *sorted((column, id(limits[column])) for column in tests))
        if key not in self._done:
            rows = source.rows(tests)
            self._done[key] = plain(rows, source.schema) if rows is not None else None
            if rows is not None:
                self._found.setdefault(name, []).append(rows)
                self._tests.setdefault(name, []).append(tests)
        return self._done[key]

    def _joined(self, flat: Flat, limits: Limits) -> pa.Table | None:
        """Follow inner joins from the input that promises to hold least; those met limit the next."""
        pairs = equal_columns(flat.conditions)
        pairs = [*pairs, *_turned(pairs)]
        waiting, known = list(flat.inputs), dict(limits)
        met: pa.Table | None = None
        while waiting:
            following = min(waiting, key=lambda one: self._rank(one, known))
            waiting.remove(following)
            rows = self._rows(following, _within(known, following.columns))
            if rows is not None:
                met = filtered(rows if met is None else paired(met, rows, pairs), flat.conditions)
                known |= self._met(pairs, met)
        return met

    def _left_joined(self, node: Join, limits: Limits) -> pa.Table | None:
        """Follow a join whose every result belongs to one left row."""
        both = equal_columns(conjuncts(node.on))
        mine, theirs = set(node.left.columns), set(node.right.columns)
        pairs = [(a, b, nulls) for a, b, nulls in (*both, *_turned(both)) if a in mine and b in theirs]
        perhaps = perhaps_equal_columns(conjuncts(node.on))
        perhaps = [(a, b) for a, b in (*perhaps, *((b, a) for a, b in perhaps)) if a in mine and b in theirs]
        own = _within(limits, mine)
        if node.kind == "semi" and WEIGHT not in mine and id(node.right) in self._seeds:
            right = self._rows(node.right, {})
            met = self._met(_turned(pairs), right) | self._perhaps_met([(b, a) for a, b in perhaps], right)
            left = self._rows(node.left, {**own, **met})
            return left if left is None or right is None else met_by(left, right, pairs)
        left = self._rows(node.left, own)
        # A right row that is left out must not make a left row look as if it had no partner: only what
        # follows from the left rows limits these.
        self._rows(node.right, self._met(pairs, left) | self._perhaps_met(perhaps, left))
        return left

    def _met(self, pairs: Pairs, rows: pa.Table | None) -> dict[str, pa.Array]:
        """The values that rows have in the columns that a join compares."""
        if rows is None:
            return {}
        self._held.append(rows)
        found = {}
        for column, other, nulls in pairs:
            if column not in rows.column_names:
                continue
            key = id(rows), column, nulls
            if key not in self._values:
                values = rows[column].unique()
                self._values[key] = values if nulls else values.drop_null()
            found[other] = self._values[key]
        return found

    def _perhaps_met(self, pairs: Sequence[tuple[str, str]], rows: pa.Table | None) -> dict[str, pa.Array]:
        """The values that a column has and NULL, where a NULL on this side would not meet every value."""
        found: dict[str, pa.Array] = {}
        if rows is None:
            return found
        for column, other in pairs:
            if column in rows.column_names and not rows[column].null_count:
                values = rows[column].unique()
                found[other] = pa.concat_arrays([values, pa.nulls(1, values.type)])
        return found

    def _is_of_one_type(self, node: Node, column: str) -> bool:
        """Tell whether a set operation leaves a column as it is in all inputs, instead of casting some."""
        kinds = {self._type(branch, column) for branch in node.inputs}
        return None not in kinds and (len(kinds) == 1 or all(map(pa.types.is_integer, kinds)))

    def _type(self, node: Node, column: str) -> pa.DataType | None:
        """The type of a column that comes from a source as it is; None where that is not known."""
        match node:
            case Scan():
                return self._source_type(node, dict(node.names).get(column))
            case Project():
                item = dict(node.items)[column]
                return self._type(node.child, item.name) if isinstance(item, exp.Column) else None
            case SetOperation() | UnionAll():
                kinds = {self._type(branch, column) for branch in node.inputs}
                return kinds.pop() if len(kinds) == 1 else None
        below = [child for child in node.inputs if column in child.columns]
        return self._type(below[0], column) if below else None

    def _source_type(self, node: Scan, column: str | None) -> pa.DataType | None:
        change = self._changes.get(node.source)
        if column is None or is_made(node.source):
            return None
        if change is not None and change.rows is not None and column in change.rows.column_names:
            return change.rows.schema.field(column).type
        source = self._open(node.source) if node.source in self._columns else None
        return source.arrow_schema.field(column).type if source is not None else None

    def _rank(self, node: Node, limits: Limits) -> tuple[int, float]:
        """Order the inputs of joins by how much each promises to hold."""
        if WEIGHT in node.columns:
            return 0, 0
        within = _within(limits, node.columns)
        if within:
            return 1, self._expected(node, within)
        return (2 if id(node) in self._seeds else 3), 0

    def _expected(self, node: Node, limits: Limits) -> float:
        """Estimate how many rows are within limits; what is no plain table goes first."""
        while isinstance(node, Filter):
            node = node.child
        if not isinstance(node, Scan) or node.state is State.CHANGE or is_made(node.source):
            return 0
        source = self._open(node.source)
        tests = {column: limits[own] for own, column in node.names if own in limits}
        return source.expected(tests) if source is not None else math.inf


def _columns_read(root: Node) -> dict[TableName, tuple[str, ...]]:
    """The columns that a plan reads of each source, whatever the state."""
    found: dict[TableName, dict[str, None]] = {}
    for node in walk(root):
        if isinstance(node, Scan) and node.state is not State.CHANGE and not is_made(node.source):
            found.setdefault(node.source, {}).update(dict.fromkeys(column for _, column in node.names))
    return {name: tuple(columns) for name, columns in found.items()}


def _seeds(root: Node) -> set[int]:
    """The nodes that read a change, or what was computed before."""
    found: set[int] = set()
    for node in walk(root):
        is_seed = isinstance(node, Scan) and (node.state is State.CHANGE or is_made(node.source))
        if is_seed or any(id(child) in found for child in node.inputs):
            found.add(id(node))
    return found


def _within(limits: Limits, columns: Iterable[str]) -> Limits:
    return {name: limits[name] for name in columns if name in limits}


def _turned(pairs: Pairs) -> Pairs:
    return [(b, a, nulls) for a, b, nulls in pairs]
