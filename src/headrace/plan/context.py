"""What the builder carries through one query."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from sqlglot import exp

from headrace.plan.expressions import col
from headrace.plan.hidden import NOTHING
from headrace.plan.nodes import Constant, Named, Node, Project
from headrace.plan.scope import Names, Scope, Visible
from headrace.sql.analysis import Analysis
from headrace.sql.functions import AGGREGATES


@dataclass(frozen=True)
class Built:
    """A planned query: its node, and each output column's name for the user and in the plan."""

    node: Node
    columns: tuple[Visible, ...]


@dataclass(frozen=True)
class Subplan:
    """A subquery inside an expression; `compare` makes the condition from outer values and its columns."""

    kind: Literal["exists", "in", "quantified", "scalar"]
    built: Built
    compare: Callable[[list[exp.Expr], list[exp.Expr]], exp.Expr] | None = None


@dataclass(frozen=True)
class Definition:
    """A CTE: its query, the environment it sees, and the names it gives its columns."""

    query: exp.Expr
    environment: Environment
    columns: tuple[str, ...]


@dataclass(frozen=True)
class Environment:
    """Where names of tables are looked up: CTEs first, then the analysis of the text they stand in."""

    analysis: Analysis
    ctes: Mapping[str, Definition] = field(default_factory=dict)

    def with_cte(self, name: str, definition: Definition) -> Environment:
        return replace(self, ctes={**self.ctes, name.lower(): definition})


BuildQuery: TypeAlias = Callable[["Context", exp.Expr, Environment, Scope | None], Built]


@dataclass(frozen=True)
class Context:
    """State of one build: fresh names, subqueries met, and how to build a nested query."""

    build_query: BuildQuery
    names: Names = field(default_factory=Names)
    subplans: list[Subplan] = field(default_factory=list)
    marks: dict[str, str] = field(default_factory=dict)
    aggregates: frozenset[str] = AGGREGATES
    # Columns of types without an order (maps, variants), which cannot decide ties.
    unorderable: set[str] = field(default_factory=set)

    def subquery(self, query: exp.Expr, environment: Environment, outer: Scope | None) -> Built:
        return self.build_query(self, query, environment, outer)


def passing(node: Node) -> Named:
    """Items that pass every column on."""
    return tuple((name, col(name)) for name in node.columns)


def extend(node: Node, items: Named) -> Node:
    """The node with columns added."""
    return Project(node, passing(node) + items) if items else node


def one_row() -> Node:
    """The relation of a SELECT without FROM."""
    return Constant(exp.select(exp.alias_(exp.Literal.number(1), NOTHING, quoted=True)), (NOTHING,))
