"""Ties decided: where an order leaves rows equal, all columns that are still there come after it.

Rows that agree in these too are interchangeable, so old and new results differ only where the data does. The
pass comes after pruning, so that a column which nothing reads decides nothing either.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import replace

from sqlglot import exp

from headrace.plan.expressions import col, function_name
from headrace.plan.nodes import Node, TopN, Window
from headrace.plan.rewrites.windows import window_function
from headrace.sql.functions import FRAME_START_WINDOWS, ORDER_SENSITIVE_WINDOWS, UNFRAMED_WINDOWS


def decide_ties(node: Node, unorderable: Set[str], done: dict[int, Node] | None = None) -> Node:
    """End every order whose ties matter with the columns it does not name."""
    done = {} if done is None else done
    if id(node) not in done:
        decided = node.with_inputs(tuple(decide_ties(child, unorderable, done) for child in node.inputs))
        match decided:
            case Window():
                items = tuple((n, _decided(w, decided.child, unorderable)) for n, w in decided.items)
                decided = replace(decided, items=items)
            case TopN():
                order = (*decided.order, *tie_breakers(decided.child, decided.order, unorderable))
                decided = replace(decided, order=order)
        done[id(node)] = decided
    return done[id(node)]


def _decided(window: exp.Expr, node: Node, unorderable: Set[str]) -> exp.Expr:
    """End the order with all columns where ties would leave the value open.

    A RANGE frame, also the one that ORDER BY implies, takes in all peers of a row: more columns would change
    its meaning, except for a function that looks at the frame's first row only.
    """
    name = function_name(window_function(window))
    order, spec = window.args.get("order"), window.args.get("spec")
    rows = spec is not None and str(spec.args.get("kind") or "").upper() == "ROWS"
    implied_range = spec is None and order is not None
    unordered = order is None and spec is None and name in ORDER_SENSITIVE_WINDOWS
    starts = name in FRAME_START_WINDOWS and implied_range
    if not (rows or unordered or starts or name in UNFRAMED_WINDOWS):
        return window
    decided = window.copy()
    given = [item.copy() for item in order.expressions] if order is not None else []
    decided.set("order", exp.Order(expressions=given + tie_breakers(node, given, unorderable)))
    if order is None and spec is None and name not in UNFRAMED_WINDOWS:
        decided.set("spec", _whole_partition())
    return decided


def _whole_partition() -> exp.WindowSpec:
    return exp.WindowSpec(
        kind="ROWS",
        start="UNBOUNDED",
        start_side="PRECEDING",
        end="UNBOUNDED",
        end_side="FOLLOWING",
    )


def tie_breakers(node: Node, order: Sequence[exp.Expr], unorderable: Set[str]) -> list[exp.Expr]:
    """The columns that the order does not name yet, as its end."""
    named = {item.this.name for item in order if isinstance(item.this, exp.Column)} | unorderable
    return [
        exp.Ordered(this=col(name), desc=False, nulls_first=True)
        for name in node.columns
        if name not in named
    ]
