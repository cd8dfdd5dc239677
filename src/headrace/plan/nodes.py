"""Operators: frozen, typed, each deriving its columns.

Column names are unique in a whole plan, so an expression names a column without saying whose it is. The
inputs of a union or set operation are the exception: they agree on their names, which the result has too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from enum import Enum
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeAlias, TypeVar

from sqlglot import exp

from headrace.plan.expressions import columns_in
from headrace.plan.hidden import WEIGHT
from headrace.sql.names import TableName

if TYPE_CHECKING:
    from headrace.sql.analysis import Analysis

Named: TypeAlias = tuple[tuple[str, exp.Expr], ...]
JoinKind: TypeAlias = Literal["inner", "left", "semi", "anti", "mark"]


V = TypeVar("V")


class once(Generic[V]):  # noqa: N801 - used as a decorator, like property
    """A property that is computed at its first look.

    The standard library's holds a lock for all nodes of a class while it computes, up to Python 3.11: two
    threads whose plans nest two classes in opposite orders would wait for each other for ever.
    """

    def __init__(self, compute: Callable[[Any], V]) -> None:
        self._compute = compute
        self.__doc__ = compute.__doc__

    def __get__(self, node: Any, _: type | None = None) -> V:
        value = self._compute(node)
        # Found there from now on, before this descriptor.
        node.__dict__[self._compute.__name__] = value
        return value


class State(Enum):
    """Which rows of a source a scan reads."""

    OLD = "old"
    NEW = "new"
    CHANGE = "change"


# Identity is what makes a node shared or not, and comparing trees by value would cost time for nothing.
@dataclass(frozen=True, eq=False)
class Node:
    """An operator over its inputs."""

    @once
    def inputs(self) -> tuple[Node, ...]:
        return tuple(value for _, value in self._inputs())

    @once
    def columns(self) -> tuple[str, ...]:
        raise NotImplementedError

    @property
    def expressions(self) -> tuple[exp.Expr, ...]:
        """The expressions this operator evaluates over the columns of its inputs."""
        return ()

    def _inputs(self) -> Iterator[tuple[str, Node]]:
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, Node):
                yield field.name, value

    def with_inputs(self: N, inputs: tuple[Node, ...]) -> N:
        """The same operator over other inputs; the node itself when they are the same."""
        names = [name for name, _ in self._inputs()]
        if inputs == self.inputs:
            return self
        changes: dict[str, Any] = dict(zip(names, inputs, strict=True))
        return replace(self, **changes)


N = TypeVar("N", bound=Node)


@dataclass(frozen=True, eq=False)
class Scan(Node):
    """A source at one state; `names` pairs each column of the plan with the source's column."""

    source: TableName
    names: tuple[tuple[str, str], ...]
    state: State = State.NEW

    @once
    def columns(self) -> tuple[str, ...]:
        columns = tuple(name for name, _ in self.names)
        return (*columns, WEIGHT) if self.state is State.CHANGE else columns


@dataclass(frozen=True, eq=False)
class Constant(Node):
    """Rows that the query itself gives: VALUES, range(), a SELECT without FROM."""

    relation: exp.Expr
    names: tuple[str, ...]

    @once
    def columns(self) -> tuple[str, ...]:
        return self.names


@dataclass(frozen=True, eq=False)
class Project(Node):
    """One row of expressions for each row."""

    child: Node
    items: Named

    @once
    def columns(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.items)

    @property
    def expressions(self) -> tuple[exp.Expr, ...]:
        return tuple(expression for _, expression in self.items)


@dataclass(frozen=True, eq=False)
class Filter(Node):
    """The rows for which a condition is true."""

    child: Node
    condition: exp.Expr

    @once
    def columns(self) -> tuple[str, ...]:
        return self.child.columns

    @property
    def expressions(self) -> tuple[exp.Expr, ...]:
        return (self.condition,)


@dataclass(frozen=True, eq=False)
class Join(Node):
    """Two inputs by a condition; right and full joins are written with these kinds.

    A mark join keeps every left row and adds the column `mark`: true where a right row meets `on` and
    `matches`, else null where one meets `on` and leaves `matches` null, else false.
    """

    kind: JoinKind
    left: Node
    right: Node
    on: exp.Expr | None = None
    matches: exp.Expr | None = None
    mark: str = ""

    def __post_init__(self) -> None:
        if both := set(self.left.columns) & set(self.right.columns):
            raise ValueError(f"both sides of a join have {sorted(both)}")

    @once
    def columns(self) -> tuple[str, ...]:
        match self.kind:
            case "inner" | "left":
                return self.left.columns + self.right.columns
            case "mark":
                return (*self.left.columns, self.mark)
        return self.left.columns

    @property
    def expressions(self) -> tuple[exp.Expr, ...]:
        return tuple(expression for expression in (self.on, self.matches) if expression is not None)


@dataclass(frozen=True, eq=False)
class Aggregate(Node):
    """One row for each distinct value of the keys; without aggregates it is DISTINCT."""

    child: Node
    keys: tuple[str, ...]
    aggregates: Named = ()

    @once
    def columns(self) -> tuple[str, ...]:
        return self.keys + tuple(name for name, _ in self.aggregates)

    @property
    def expressions(self) -> tuple[exp.Expr, ...]:
        return tuple(expression for _, expression in self.aggregates)


@dataclass(frozen=True, eq=False)
class Window(Node):
    """Every row with window functions added, all over the same partition."""

    child: Node
    partition: tuple[str, ...]
    items: Named

    @once
    def columns(self) -> tuple[str, ...]:
        return self.child.columns + tuple(name for name, _ in self.items)

    @property
    def expressions(self) -> tuple[exp.Expr, ...]:
        return tuple(expression for _, expression in self.items)


@dataclass(frozen=True, eq=False)
class TopN(Node):
    """The first rows of each partition in an order that ends with all columns, so that ties are decided."""

    child: Node
    order: tuple[exp.Expr, ...]
    limit: int | None
    offset: int = 0
    partition: tuple[str, ...] = ()

    @once
    def columns(self) -> tuple[str, ...]:
        return self.child.columns

    @property
    def expressions(self) -> tuple[exp.Expr, ...]:
        return self.order


@dataclass(frozen=True, eq=False)
class Generate(Node):
    """Every row with each of the rows that a generator function makes of it."""

    child: Node
    function: exp.Expr
    outer: bool
    names: tuple[str, ...]

    @once
    def columns(self) -> tuple[str, ...]:
        return self.child.columns + self.names

    @property
    def expressions(self) -> tuple[exp.Expr, ...]:
        return (self.function,)


@dataclass(frozen=True, eq=False)
class UnionAll(Node):
    """All rows of all inputs, which have the same column names in the same order."""

    branches: tuple[Node, ...]

    def __post_init__(self) -> None:
        if any(branch.columns != self.branches[0].columns for branch in self.branches):
            raise ValueError(f"columns of a union differ: {[branch.columns for branch in self.branches]}")

    @once
    def columns(self) -> tuple[str, ...]:
        return self.branches[0].columns

    @once
    def inputs(self) -> tuple[Node, ...]:
        return self.branches

    def with_inputs(self, inputs: tuple[Node, ...]) -> UnionAll:
        return self if inputs == self.branches else UnionAll(inputs)


@dataclass(frozen=True, eq=False)
class SetOperation(Node):
    """INTERSECT or EXCEPT, with or without ALL."""

    kind: Literal["intersect", "except"]
    all: bool
    left: Node
    right: Node

    def __post_init__(self) -> None:
        if self.left.columns != self.right.columns:
            raise ValueError(f"columns differ: {self.left.columns}, {self.right.columns}")

    @once
    def columns(self) -> tuple[str, ...]:
        return self.left.columns


@dataclass(frozen=True, eq=False)
class Opaque(Node):
    """A whole query that is kept as text: it can be computed at a state, and has no finer rule."""

    query: Analysis
    names: tuple[str, ...]
    reason: str
    state: State = State.NEW
    changed: frozenset[TableName] = frozenset()

    @once
    def columns(self) -> tuple[str, ...]:
        return self.names


def walk(node: Node) -> Iterator[Node]:
    """Every node once, inputs first."""
    seen: set[int] = set()
    # A node is met twice: first its inputs go before it, then it is given.
    pending = [(node, False)]
    while pending:
        part, is_ready = pending.pop()
        if is_ready:
            yield part
        elif id(part) not in seen:
            seen.add(id(part))
            pending.append((part, True))
            pending += [(child, False) for child in reversed(part.inputs)]


def free_columns(node: Node) -> set[str]:
    """Columns that a plan reads and does not make: those of an outer query."""
    made: set[str] = set()
    read: set[str] = set()
    for part in walk(node):
        made |= set(part.columns)
        read |= columns_in(*part.expressions)
    return read - made


def at_most_one_row(node: Node) -> bool:
    """Whether a plan gives one row at most, whatever its sources hold."""
    match node:
        case Aggregate():
            return not node.keys or at_most_one_row(node.child)
        case Join(kind="inner" | "left"):
            return at_most_one_row(node.left) and at_most_one_row(node.right)
        case Join():
            return at_most_one_row(node.left)
        case Project() | Filter() | Window() | TopN():
            return at_most_one_row(node.child)
    return False


def sources(node: Node) -> frozenset[TableName]:
    """The sources that a plan reads."""
    found: set[TableName] = set()
    for part in walk(node):
        if isinstance(part, Scan):
            found.add(part.source)
        elif isinstance(part, Opaque):
            found |= set(part.query.sources)
    return frozenset(found)
