"""Inner joins: one term for each input that changed, joined with the states of the others.

Δ(L ⋈ R) = ΔL ⋈ R₁ + L₀ ⋈ ΔR, telescoped over n inputs: those before the changed one at their old state, those
after it at their new one. Each term starts at the small change and follows the join conditions outward.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass

from sqlglot import exp

from headrace.delta.contract import sum_of
from headrace.delta.differ import Change, Differ, Rule
from headrace.plan.expressions import columns_in, conjunction, conjuncts
from headrace.plan.nodes import Filter, Join, Node


@dataclass(frozen=True)
class Flat:
    """A tree of inner joins as its inputs and all its conditions."""

    inputs: tuple[Node, ...]
    conditions: tuple[exp.Expr, ...]

    def known_conditions(self) -> list[Condition]:
        return [Condition(part, frozenset(columns_in(part))) for part in self.conditions]


@dataclass(frozen=True)
class Condition:
    """A condition and the columns it reads, which are asked for often."""

    expression: exp.Expr
    columns: frozenset[str]


def flatten(node: Node) -> Flat:
    """Inputs and conditions of inner joins, with the filters between them."""
    match node:
        case Join(kind="inner"):
            left, right = flatten(node.left), flatten(node.right)
            conditions = (*left.conditions, *right.conditions, *conjuncts(node.on))
            return Flat(left.inputs + right.inputs, conditions)
        case Filter() if is_join_tree(node.child):
            below = flatten(node.child)
            return Flat(below.inputs, (*below.conditions, *conjuncts(node.condition)))
    return Flat((node,), ())


def is_join_tree(node: Node) -> bool:
    """Whether a node is an inner join, perhaps under filters."""
    while isinstance(node, Filter):
        node = node.child
    return isinstance(node, Join) and node.kind == "inner"


def join_tree(differ: Differ, node: Node) -> Change:
    """The sum of one term for each input that changed."""
    flat = flatten(node)
    conditions = flat.known_conditions()
    changes = [differ.change(child) for child in flat.inputs]
    terms = []
    for place, change in enumerate(changes):
        if change is not None:
            before = [differ.old(child) for child in flat.inputs[:place]]
            after = [differ.new(child) for child in flat.inputs[place + 1 :]]
            terms.append(joined(change, [*before, *after], conditions))
    rule = Rule("bilinear", f"{len(terms)} of {len(flat.inputs)} inputs change: one term for each")
    return (sum_of(terms, node) if terms else None), rule


def joined(first: Node, others: Sequence[Node], conditions: Sequence[Condition]) -> Node:
    """Join an input with the others, always next with one that a condition connects."""
    pending, waiting = list(conditions), list(others)
    node = _filtered(first, pending)
    while waiting:
        following = _connected(node, waiting, pending)
        waiting.remove(following)
        following = _filtered(following, pending)
        on = _taken(pending, {*node.columns, *following.columns})
        node = Join("inner", node, following, conjunction(on))
    return node


def _filtered(node: Node, pending: list[Condition]) -> Node:
    """Apply the conditions that need this input alone."""
    condition = conjunction(_taken(pending, set(node.columns)))
    return node if condition is None else Filter(node, condition)


def _taken(pending: list[Condition], reach: Set[str]) -> list[exp.Expr]:
    """Take the conditions off the list that need only columns within reach."""
    ready = [condition for condition in pending if condition.columns <= reach]
    pending[:] = [condition for condition in pending if not condition.columns <= reach]
    return [condition.expression for condition in ready]


def _connected(node: Node, waiting: Sequence[Node], pending: Sequence[Condition]) -> Node:
    mine = set(node.columns)

    def strength(candidate: Node) -> int:
        theirs = set(candidate.columns)
        links = [
            condition.expression
            for condition in pending
            if condition.columns <= mine | theirs and condition.columns & mine and condition.columns & theirs
        ]
        return 2 if any(isinstance(link, exp.EQ) for link in links) else len(links[:1])

    return max(waiting, key=strength)
