"""Operators that work on groups of rows: recompute the groups that the change touches.

K is the set of keys in the input's change. Δ = Q(I₁ ⋉ K) - Q(I₀ ⋉ K), computed in one pass: both states of
the input go through the operator together, the side (1 new, -1 old) being one more key, and come out as
weights. Right by construction for any aggregate and any window function, since the operator itself runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from headrace.delta.contract import both_states, from_sides, ordered
from headrace.delta.differ import Change, Differ, Rule
from headrace.delta.whole import recompute
from headrace.plan.expressions import all_same, col, partition_also
from headrace.plan.hidden import SIDE
from headrace.plan.nodes import Aggregate, Join, Node, Project, SetOperation, TopN, UnionAll, Window


def aggregate(differ: Differ, node: Aggregate) -> Change:
    """Recompute the groups whose keys occur in the change."""
    below = differ.change(node.child)
    if not node.keys:
        return recompute(differ, node, below, "one group of all rows")
    rule = Rule("by key", f"groups of {_listed(node.keys)} that the change touches")
    if below is None:
        return None, rule
    rows = touched(differ, node.child, below, node.keys)
    grouped = Aggregate(rows, (*node.keys, SIDE), node.aggregates)
    return from_sides(grouped, node.columns), rule


def window(differ: Differ, node: Window) -> Change:
    """Recompute the partitions in which rows change."""
    below = differ.change(node.child)
    if node.partition:
        rule = Rule("by key", f"partitions of {_listed(node.partition)} that the change touches")
    else:
        rule = Rule("whole", "one partition of all rows")
    if below is None:
        return None, rule
    rows = touched(differ, node.child, below, node.partition)
    numbered = Window(rows, (*node.partition, SIDE), partition_also(node.items, (SIDE,)))
    return from_sides(numbered, node.columns), rule


def top_n(differ: Differ, node: TopN) -> Change:
    """Take the first rows of both states again."""
    below = differ.change(node.child)
    why = f"the first rows of {_listed(node.partition)}" if node.partition else "the first rows of all"
    rule = Rule("by key" if node.partition else "whole", why)
    if below is None:
        return None, rule
    rows = touched(differ, node.child, below, node.partition)
    return from_sides(replace(node, child=rows, partition=(*node.partition, SIDE)), node.columns), rule


def set_operation(differ: Differ, node: SetOperation) -> Change:
    """Count anew the rows that occur in the change of either input."""
    rule = Rule("by key", "rows that occur in the change of an input")
    changes = [c for c in (differ.change(node.left), differ.change(node.right)) if c is not None]
    if not changes:
        return None, rule
    names = tuple(differ.fresh("k") for _ in node.columns)
    keys = distinct_keys(changes, node.columns, names)
    columns = (*node.columns, SIDE)
    left, right = (
        ordered(
            restricted(both_states(differ.new(child), differ.old(child)), keys, node.columns, names), columns
        )
        for child in (node.left, node.right)
    )
    return from_sides(SetOperation(node.kind, node.all, left, right), node.columns), rule


def touched(differ: Differ, child: Node, change: Node, keys: Sequence[str]) -> Node:
    """Both states of the input, restricted to the keys that occur in its change."""
    states = both_states(differ.new(child), differ.old(child))
    if not keys:
        return states
    names = tuple(differ.fresh("k") for _ in keys)
    return restricted(states, distinct_keys([change], keys, names), keys, names)


def distinct_keys(changes: Sequence[Node], keys: Sequence[str], names: Sequence[str]) -> Node:
    """K: the distinct keys of changes, under names of their own."""
    renamed = tuple(
        Project(change, tuple((name, col(key)) for key, name in zip(keys, names, strict=True)))
        for change in changes
    )
    return Aggregate(renamed[0] if len(renamed) == 1 else UnionAll(renamed), tuple(names))


def restricted(states: Node, keys: Node, columns: Sequence[str], names: Sequence[str]) -> Node:
    """The rows whose keys are in K, where NULL equals NULL."""
    return Join("semi", states, keys, all_same(zip(columns, names, strict=True)))


def _listed(keys: Sequence[str]) -> str:
    return ", ".join(keys)
