"""Where every row may change: the difference of the two results. Δ = Q(I₁) - Q(I₀), right by construction."""

from __future__ import annotations

from headrace.delta.contract import sum_of, weighted
from headrace.delta.differ import Change, Differ, Rule
from headrace.plan.nodes import Node, Opaque


def recompute(differ: Differ, node: Node, below: Node | None, why: str) -> Change:
    """Compute both states in full, if any input changes at all."""
    rule = Rule("whole", why)
    if below is None:
        return None, rule
    return sum_of([weighted(differ.new(node), 1), weighted(differ.old(node), -1)], node), rule


def opaque(differ: Differ, node: Opaque) -> Change:
    """A query without operators is computed at both states."""
    rule = Rule("whole", f"kept as text: {node.reason}")
    if not differ.changed & set(node.query.sources):
        return None, rule
    return sum_of([weighted(differ.new(node), 1), weighted(differ.old(node), -1)], node), rule
