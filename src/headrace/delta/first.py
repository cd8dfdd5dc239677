"""The first rows of an order, from those that are stored and what changed below.

A stored result of `ORDER BY … LIMIT n` is the old side of its own change: every row that it does not hold
comes after its last one. Put the change below to it and take the first n again; they are right as far as that
last row. Only where too many stored rows went are the first rows of all asked for, and then of the new state
alone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from sqlglot import exp

from headrace.delta.contract import consolidated
from headrace.delta.differ import Differ
from headrace.delta.dispatch import RULES
from headrace.plan.build import Plan
from headrace.plan.nodes import Node, Project, TopN
from headrace.sql.names import TableName

# More stored rows than this are not brought to the driver.
_MOST_ROWS = 10_000


@dataclass(frozen=True, eq=False)
class FirstRows:
    """The change of a query that ends with ORDER BY and LIMIT; `shown` pairs output columns with its own."""

    limit: int
    shown: tuple[tuple[str, str], ...]
    below: Node
    """The net change of the rows that are ordered."""
    now: Node
    """The first rows of the new state."""
    order: tuple[exp.Expr, ...]


def first_rows(plan: Plan, changed: frozenset[TableName]) -> FirstRows | None:
    """The change by way of the stored rows; None where the root is no such order, or hides its columns."""
    names = {name: name for name in plan.root.columns}
    node = plan.root
    while isinstance(node, Project):
        items = dict(node.items)
        if not all(isinstance(items[own], exp.Column) for own in names.values()):
            return None
        names = {shown: items[own].name for shown, own in names.items()}
        node = node.child
    if not isinstance(node, TopN) or node.partition or node.offset or not node.limit:
        return None
    if node.limit > _MOST_ROWS or sorted(names.values()) != sorted(node.columns):
        return None
    differ = Differ(changed, RULES)
    below = differ.change(node.child)
    if below is None:
        return None
    return FirstRows(
        node.limit,
        tuple(names.items()),
        consolidated(below),
        replace(node, child=differ.new(node.child)),
        node.order,
    )
