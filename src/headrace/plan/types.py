"""Spark types of columns, as far as they can be told without Spark."""

from __future__ import annotations

import re

from sqlglot import exp

from headrace.plan.build import Plan
from headrace.plan.nodes import Node, Project, Scan, UnionAll

_DECIMAL = re.compile(r"decimal\((\d+),\s*(\d+)\)\Z")
INTEGERS = frozenset({"tinyint", "smallint", "int", "integer", "bigint", "byte", "short", "long"})


def column_types(plan: Plan, node: Node) -> dict[str, str]:
    """The types of a node's columns that come unchanged from a source."""
    match node:
        case Scan():
            columns = {c.name: c.type.lower() for c in plan.analysis.tables[node.source].columns}
            return {name: columns[column] for name, column in node.names}
        case Project():
            below = column_types(plan, node.child)
            return {
                name: below[item.name]
                for name, item in node.items
                if isinstance(item, exp.Column) and item.name in below
            }
        case UnionAll():
            first, *others = (column_types(plan, branch) for branch in node.branches)
            return {n: t for n, t in first.items() if all(other.get(n) == t for other in others)}
    types: dict[str, str] = {}
    for child in node.inputs:
        types |= column_types(plan, child)
    return {name: type_ for name, type_ in types.items() if name in node.columns}


def decimal_of(type_: str) -> tuple[int, int] | None:
    """Precision and scale of a decimal type.

    >>> decimal_of("decimal(10,2)")
    (10, 2)
    """
    found = _DECIMAL.match(type_)
    return (int(found[1]), int(found[2])) if found else None
