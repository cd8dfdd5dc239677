"""Columns that nothing reads are not computed, and not read from sources."""

from __future__ import annotations

from dataclasses import replace

from sqlglot import exp

from headrace.plan.expressions import columns_in
from headrace.plan.nodes import (
    Aggregate,
    Generate,
    Join,
    Node,
    Project,
    Scan,
    SetOperation,
    TopN,
    Window,
    walk,
)


def prune(root: Project) -> Project:
    """Drop columns that nothing above reads, until there is none; the root shows what the user asked for."""
    while True:
        # The root's names are the user's, and may be those of other columns below.
        needed = _read_columns(root.child) | columns_in(*root.expressions)
        below = _without(root.child, needed, {})
        if below is root.child:
            return root
        root = Project(below, root.items)


def merge_projections(node: Project) -> Project:
    """Make one projection of the two at the root, where the upper one only picks and renames.

    Before: SELECT x AS y FROM (SELECT a + 1 AS x, b FROM t)
    After:  SELECT a + 1 AS y FROM t
    """
    if not isinstance(node.child, Project):
        return node
    picked = [item.name for _, item in node.items if isinstance(item, exp.Column)]
    if len(picked) != len(node.items) or len(set(picked)) != len(picked):
        return node
    below = dict(node.child.items)
    return Project(node.child.child, tuple((name, below[item.name]) for name, item in node.items))


def _read_columns(root: Node) -> set[str]:
    read: set[str] = set()
    for node in walk(root):
        for name, expression in getattr(node, "items", ()):
            # A column that is passed on under its own name is not read by that.
            read |= columns_in(expression) - {name}
        match node:
            case Project():
                continue
            case Aggregate():
                read |= set(node.keys)
            case Window():
                read |= set(node.partition)
            case SetOperation():
                read |= set(node.columns)
            case TopN():
                read |= set(node.partition)
        read |= columns_in(*node.expressions)
    return read


def _without(node: Node, needed: set[str], done: dict[int, Node]) -> Node:
    if id(node) in done:
        return done[id(node)]
    inputs = tuple(_without(child, needed, done) for child in node.inputs)
    pruned = node.with_inputs(inputs)
    match pruned:
        case Scan():
            names = tuple(pair for pair in pruned.names if pair[0] in needed)
            if names != pruned.names:
                pruned = replace(pruned, names=names)
        case Project() | Window():
            items = tuple(item for item in pruned.items if item[0] in needed)
            if isinstance(pruned, Window) and not items:
                pruned = pruned.child
            elif items != pruned.items:
                pruned = replace(pruned, items=items)
        case Aggregate() if pruned.keys:
            aggregates = tuple(item for item in pruned.aggregates if item[0] in needed)
            if aggregates != pruned.aggregates:
                pruned = replace(pruned, aggregates=aggregates)
        case Join() | Generate():
            pass
    done[id(node)] = pruned
    return pruned
