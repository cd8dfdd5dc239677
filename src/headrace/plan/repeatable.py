"""Whether computing a result again gives the same bits.

A change takes old rows away by their values, as they are computed anew from the old state of the sources. A
sum of floats depends on the order of its rows, and `collect_list`, `first` or `mode` on their order or on
ties: such a row may come out otherwise than it was stored, and then taking it away by value would miss it. A
stream table with one must be changed by key, or in full.
"""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp

from headrace.plan.build import Plan
from headrace.plan.expressions import function_name, is_aggregate_call
from headrace.plan.nodes import Aggregate, Node, Opaque, Window, walk
from headrace.plan.rewrites.windows import window_function
from headrace.plan.types import column_types, is_exact
from headrace.sql.functions import UNFRAMED_WINDOWS

# The same in any order of the rows.
_ORDERLESS = frozenset(
    {
        *("count", "count_if", "min", "max", "bool_and", "bool_or", "any", "some", "every"),
        *("bit_and", "bit_or", "bit_xor", "approx_count_distinct", "percentile", "percentile_cont"),
        *("percentile_disc", "median", "regr_count"),
        *("rank", "dense_rank", "percent_rank", "cume_dist"),
    }
)
# The same in any order where what they add up is exact.
_EXACT_SUMS = frozenset({"sum", "avg", "mean", "try_sum", "try_avg"})


def unrepeatable(plan: Plan) -> tuple[str, ...]:
    """The functions of a plan whose value may differ when it is computed again."""
    return unrepeatable_below(plan, plan.root)


def unrepeatable_below(plan: Plan, root: Node) -> tuple[str, ...]:
    """The same of a part of a plan."""
    return tuple(dict.fromkeys(name for node in walk(root) for name in _doubtful(plan, node)))


def _doubtful(plan: Plan, node: Node) -> Iterator[str]:
    if isinstance(node, Opaque):
        yield "a query kept as text"
        return
    if not isinstance(node, (Aggregate, Window)):
        return
    types = column_types(plan, node.child)
    for expression in node.expressions:
        call = _call(expression)
        name = function_name(call) or call.key
        if isinstance(node, Window) and name in UNFRAMED_WINDOWS | {"first_value", "first"}:
            # Ties of these were decided when the query was planned.
            continue
        if name in _ORDERLESS:
            continue
        if name in _EXACT_SUMS and all(is_exact(a, types) for a in call.args.get("expressions") or ()):
            continue
        yield name.upper()


def _call(expression: exp.Expr) -> exp.Expr:
    if isinstance(expression, exp.Window):
        return window_function(expression)
    while not isinstance(expression, exp.Anonymous) and is_aggregate_call(expression):
        expression = expression.this
    return expression
