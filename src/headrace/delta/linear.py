"""Linear operators: the change of the result is the operator over the change. ΔQ(R) = Q(ΔR)."""

from __future__ import annotations

from dataclasses import replace

from headrace.delta.bilinear import is_join_tree, join_tree
from headrace.delta.contract import no_rows, sum_of
from headrace.delta.differ import Change, Differ, Rule
from headrace.plan.expressions import col
from headrace.plan.hidden import WEIGHT
from headrace.plan.nodes import Constant, Filter, Generate, Node, Project, Scan, State, UnionAll

_ROW_BY_ROW = Rule("linear", "each row is computed from one row")


def scan(differ: Differ, node: Scan) -> Change:
    """A source's change is read, not derived."""
    if node.source not in differ.changed:
        return None, Rule("source", "did not change")
    return replace(node, state=State.CHANGE), Rule("source", "its change is read")


def constant(_: Differ, __: Constant) -> Change:
    """Rows written in the query never change."""
    return None, Rule("linear", "never changes")


def project(differ: Differ, node: Project) -> Change:
    """Δ(π R) = π ΔR, the weight passing through."""
    below = differ.change(node.child)
    if below is None:
        return None, _ROW_BY_ROW
    return Project(below, (*node.items, (WEIGHT, col(WEIGHT)))), _ROW_BY_ROW


def filter_rows(differ: Differ, node: Filter) -> Change:
    """A filter of the change; over joins the condition takes part in them."""
    if is_join_tree(node):
        return join_tree(differ, node)
    below = differ.change(node.child)
    return (None if below is None else Filter(below, node.condition)), _ROW_BY_ROW


def generate(differ: Differ, node: Generate) -> Change:
    """A row that comes or goes brings or takes its generated rows."""
    below = differ.change(node.child)
    return (None if below is None else replace(node, child=below)), _ROW_BY_ROW


def union_all(differ: Differ, node: UnionAll) -> Change:
    """Δ(R + S) = ΔR + ΔS; a branch that cannot change lends its types only."""
    rule = Rule("linear", "the sum of its branches")
    changes = [differ.change(branch) for branch in node.branches]
    if all(change is None for change in changes):
        return None, rule
    terms: list[Node] = [
        no_rows(differ.new(branch)) if change is None else change
        for branch, change in zip(node.branches, changes, strict=True)
    ]
    return sum_of(terms, node), rule
