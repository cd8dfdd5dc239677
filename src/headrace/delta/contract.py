"""The contract of a change: the relation's columns and one weight; and helpers that keep it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sqlglot import exp

from headrace.plan.expressions import call, col, number
from headrace.plan.hidden import SIDE, WEIGHT
from headrace.plan.nodes import Aggregate, Filter, Node, Opaque, Project, Scan, State, UnionAll
from headrace.sql.names import TableName


def require_change(change: Node, relation: Node) -> Node:
    """Check that a plan is a change of a relation: its columns, and the weight."""
    if set(change.columns) != {*relation.columns, WEIGHT}:
        raise ValueError(f"not a change of {relation.columns}: {change.columns}")
    return change


def at_state(
    node: Node, state: State, changed: frozenset[TableName], done: dict[int, Node] | None = None
) -> Node:
    """The plan over its sources at a state; a source that did not change has one state only."""
    done = {} if done is None else done
    if id(node) not in done:
        match node:
            case Scan() if node.source in changed:
                done[id(node)] = replace(node, state=state)
            case Opaque():
                done[id(node)] = replace(node, state=state, changed=changed)
            case _:
                inputs = tuple(at_state(child, state, changed, done) for child in node.inputs)
                done[id(node)] = node.with_inputs(inputs)
    return done[id(node)]


def ordered(node: Node, columns: Sequence[str]) -> Node:
    """The node with exactly these columns in this order."""
    if node.columns == tuple(columns):
        return node
    return Project(node, tuple((name, col(name)) for name in columns))


def weighted(node: Node, weight: int) -> Node:
    """Rows of a plain relation as a change that adds or takes away each of them."""
    return Project(node, (*((name, col(name)) for name in node.columns), (WEIGHT, number(weight))))


def both_states(new: Node, old: Node) -> Node:
    """The rows of both states in one relation, told apart by the side."""
    return UnionAll((_on_side(new, 1), _on_side(old, -1)))


def _on_side(node: Node, side: int) -> Node:
    return Project(node, (*((name, col(name)) for name in node.columns), (SIDE, number(side))))


def from_sides(node: Node, columns: Sequence[str]) -> Node:
    """What an operator made of both states as a change: the side is the weight."""
    return Project(node, (*((name, col(name)) for name in columns), (WEIGHT, col(SIDE))))


def sum_of(changes: Sequence[Node], relation: Node) -> Node:
    """The sum of changes of one relation."""
    columns = (*relation.columns, WEIGHT)
    aligned = tuple(ordered(change, columns) for change in changes)
    return aligned[0] if len(aligned) == 1 else UnionAll(aligned)


def no_rows(node: Node) -> Node:
    """An empty change with the relation's columns, which keeps their types in a union."""
    return weighted(Filter(node, exp.false()), 1)


def consolidated(change: Node) -> Node:
    """One row for each distinct row, with its net weight; rows whose weights cancel are gone."""
    columns = tuple(name for name in change.columns if name != WEIGHT)
    net = "__hr_net"
    summed = Aggregate(change, columns, ((net, call("SUM", col(WEIGHT))),))
    kept = Filter(summed, exp.NEQ(this=col(net), expression=number(0)))
    return Project(kept, (*((name, col(name)) for name in columns), (WEIGHT, col(net))))
