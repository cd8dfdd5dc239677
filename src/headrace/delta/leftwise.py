"""Joins whose every result belongs to one left row: left, semi, anti and mark joins.

Such a join J is linear in its left input, so ΔJ = J(ΔL, R₁) + J(L₀, R₁) - J(L₀, R₀). The last two agree but
for the left rows that some changed right row meets: A = L₀ ⋉ ΔR. Both are computed in one join of A with both
states of R. Where the condition has equalities, only right rows that share their values with the change are
read.
"""

from __future__ import annotations

from dataclasses import replace

from sqlglot import exp

from headrace.delta.contract import both_states, sum_of
from headrace.delta.differ import Change, Differ, Rule
from headrace.plan.expressions import col, columns_in, conjunction, conjuncts, number, wrap
from headrace.plan.hidden import SIDE, WEIGHT
from headrace.plan.nodes import Aggregate, Constant, Join, Node, Project


def left_driven_join(differ: Differ, node: Join) -> Change:
    """ΔJ = J(ΔL, R₁) + J(A, R₁) - J(A, R₀) with A = L₀ ⋉ ΔR."""
    left, right = differ.change(node.left), differ.change(node.right)
    terms: list[Node] = []
    if left is not None:
        near = _near(differ, differ.new(node.right), node, left)
        terms.append(replace(node, left=left, right=near))
    if right is not None:
        terms.append(_for_changed_right(differ, node, right))
    family = "linear" if right is None else "by key"
    why = "left rows that change" if right is None else "left rows that change or meet a changed right row"
    rule = Rule(family, why)  # type: ignore[arg-type]  # callers give one of its families
    return (sum_of(terms, node) if terms else None), rule


def _for_changed_right(differ: Differ, node: Join, change: Node) -> Node:
    touched = Join("semi", differ.old(node.left), change, _may_meet(node))
    sides = Constant(exp.Values(expressions=[_row(1), _row(-1)]), (SIDE,))
    twice = Join("inner", touched, sides)
    states = both_states(
        _near(differ, differ.new(node.right), node, change),
        _near(differ, differ.old(node.right), node, change),
    )
    side = differ.fresh("side")
    right = Project(states, (*((n, col(n)) for n in node.right.columns), (side, col(SIDE))))
    on = conjunction([*conjuncts(node.on), exp.EQ(this=col(SIDE), expression=col(side))])
    joined = replace(node, left=twice, right=right, on=on)
    return Project(joined, (*((name, col(name)) for name in node.columns), (WEIGHT, col(SIDE))))


def _row(value: int) -> exp.Expr:
    return exp.Tuple(expressions=[number(value)])


def _may_meet(node: Join) -> exp.Expr | None:
    """The condition under which a right row decides something: a comparison that is null counts too."""
    if node.matches is None:
        return node.on
    null = exp.Is(this=exp.Paren(this=node.matches), expression=exp.null())
    return conjunction([*conjuncts(node.on), exp.Or(this=wrap(node.matches), expression=null)])


def _near(differ: Differ, right: Node, node: Join, change: Node) -> Node:
    """Right rows whose values in the join's equalities occur in the change of either side."""
    pairs = []
    for part in conjuncts(node.on):
        if not isinstance(part, (exp.EQ, exp.NullSafeEQ)):
            continue
        for mine, theirs in ((part.this, part.expression), (part.expression, part.this)):
            if _within(mine, node.left) and _within(theirs, node.right):
                pairs.append((mine, theirs, type(part)))
    if not pairs:
        return right
    here = set(change.columns) >= set(node.left.columns)
    names = [differ.fresh("k") for _ in pairs]
    keys = Project(
        change,
        tuple((n, mine if here else theirs) for n, (mine, theirs, _) in zip(names, pairs, strict=True)),
    )
    on = [
        same(this=wrap(theirs), expression=col(n)) for n, (_, theirs, same) in zip(names, pairs, strict=True)
    ]
    return Join("semi", right, Aggregate(keys, tuple(names)), conjunction(on))


def _within(expression: exp.Expr, node: Node) -> bool:
    return bool(columns_in(expression)) and columns_in(expression) <= set(node.columns)
