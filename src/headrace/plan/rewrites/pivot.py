"""PIVOT to an aggregate with one FILTER for each value."""

from __future__ import annotations

from sqlglot import exp

from headrace.plan.context import Built, Context, Environment
from headrace.plan.expressions import (
    call,
    col,
    columns_in,
    conjunction,
    function_name,
    is_aggregate_call,
    rewrite,
    same,
)
from headrace.plan.nodes import Aggregate, Named, Project
from headrace.plan.resolve import resolve
from headrace.plan.scope import Scope, Unplannable, Visible

# Aggregates whose values are arrays or structs, for which Spark pivots otherwise.
_COLLECTING = frozenset({"collect_list", "collect_set", "array_agg", "max_by", "min_by", "histogram_numeric"})


def pivot_relation(context: Context, environment: Environment, built: Built, pivot: exp.Pivot) -> Built:
    """Turn the values of a column into columns.

    Before: t PIVOT (SUM(a) FOR b IN ('x', 'y'))
    After:  SELECT c, SUM(a) FILTER (WHERE b <=> 'x') AS x, SUM(a) FILTER (WHERE b <=> 'y') AS y
            FROM t GROUP BY c
    """
    if pivot.args.get("unpivot") or len(pivot.args.get("fields") or ()) != 1:
        raise Unplannable("UNPIVOT")
    scope = Scope(visible=built.columns)
    choice = pivot.args["fields"][0]
    tested = [resolve(context, environment, item, scope) for item in _row(choice.this)]
    aggregates = [_aggregate(context, environment, item, scope) for item in pivot.expressions]
    if any(_shows_nothing(item) for item in pivot.expressions):
        raise Unplannable("PIVOT with an aggregate that is not NULL over no rows")
    used = columns_in(*tested, *(call_ for _, call_ in aggregates))
    keys = tuple(column for column in built.columns if column[1] not in used)
    items: Named = ()
    filtered: Named = ()
    users: list[Visible] = list(keys)
    for value in choice.expressions:
        label, cells = _value(value)
        hit = conjunction(same(test, cell) for test, cell in zip(tested, cells, strict=True))
        if hit is None:
            raise Unplannable("PIVOT over nothing")
        any_row = context.names.fresh("found")
        filtered += ((any_row, call("COUNT_IF", hit)),)
        for alias, expression in aggregates:
            user = label if len(aggregates) == 1 else f"{label}_{alias}"
            name = context.names.fresh(user)
            expression, parts = _restrict(context, expression, hit)
            filtered += parts
            # Spark gives NULL, not the value of the empty group, where a value has no rows.
            some = exp.If(this=exp.GT(this=col(any_row), expression=exp.Literal.number(0)), true=expression)
            items += ((name, exp.Case(ifs=[some])),)
            users.append((user, name))
    grouped = Aggregate(built.node, tuple(name for _, name in keys), filtered)
    passed = tuple((name, col(name)) for _, name in keys)
    return Built(Project(grouped, passed + items), tuple(users))


def _row(value: exp.Expr) -> list[exp.Expr]:
    return list(value.expressions) if isinstance(value, exp.Tuple) else [value]


def _aggregate(
    context: Context, environment: Environment, item: exp.Expr, scope: Scope
) -> tuple[str, exp.Expr]:
    alias = item.alias if isinstance(item, exp.Alias) else item.sql(dialect="spark").lower()
    inner = item.this if isinstance(item, exp.Alias) else item
    return alias, resolve(context, environment, inner, scope)


def _shows_nothing(item: exp.Expr) -> bool:
    """Tell whether Spark shows the aggregate of no rows where a value has none, and not NULL."""
    return any(function_name(part) in _COLLECTING for part in item.walk())


def _value(value: exp.Expr) -> tuple[str, list[exp.Expr]]:
    if isinstance(value, (exp.PivotAlias, exp.Alias)):
        return value.alias, _row(value.this)
    if isinstance(value, exp.Literal):
        return value.name, [value]
    raise Unplannable("a PIVOT value without a name")


def _restrict(context: Context, expression: exp.Expr, hit: exp.Expr) -> tuple[exp.Expr, Named]:
    parts: list[tuple[str, exp.Expr]] = []

    def visit(node: exp.Expr) -> exp.Expr | None:
        if not is_aggregate_call(node, context.aggregates):
            return None
        if isinstance(node, exp.Filter):
            raise Unplannable("FILTER inside PIVOT")
        name = context.names.fresh("pivoted")
        parts.append((name, exp.Filter(this=node.copy(), expression=exp.Where(this=hit.copy()))))
        return col(name)

    return rewrite(expression, visit), tuple(parts)
