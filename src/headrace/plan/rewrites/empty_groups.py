"""What an aggregate gives over no rows."""

from __future__ import annotations

from sqlglot import exp

from headrace.plan.expressions import function_name, number
from headrace.sql.functions import COLLECTING_AGGREGATES, COUNTING_AGGREGATES


def empty_value(aggregate: exp.Expr) -> exp.Expr | None:
    """The value of an aggregate over no rows, or None where it is NULL.

    >>> from headrace.plan.expressions import call, col
    >>> empty_value(call("COUNT", col("a"))).sql(), empty_value(call("SUM", col("a")))
    ('0', None)
    """
    while isinstance(aggregate, (exp.Filter, exp.WithinGroup, exp.IgnoreNulls, exp.RespectNulls)):
        aggregate = aggregate.this
    name = function_name(aggregate)
    if name in COUNTING_AGGREGATES:
        return number(0)
    if name in COLLECTING_AGGREGATES:
        return exp.Array()
    return None


def filled(value: exp.Expr, aggregate: exp.Expr, found: exp.Expr) -> exp.Expr:
    """The aggregate's value where a group was found, else its value over no rows."""
    empty = empty_value(aggregate)
    if empty is None:
        return value
    missing = exp.If(this=exp.Is(this=found, expression=exp.null()), true=empty)
    return exp.Case(ifs=[missing], default=value)
