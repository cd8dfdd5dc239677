"""Subqueries inside expressions to joins: a column that holds their value takes their place."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from headrace.plan.context import Context, Subplan, passing
from headrace.plan.expressions import (
    call,
    col,
    columns_in,
    conjunction,
    conjuncts,
    is_aggregate_call,
    number,
    rewrite,
    subquery_calls,
    substitute,
    wrap,
)
from headrace.plan.hidden import SUBQUERY
from headrace.plan.nodes import Aggregate, Filter, Join, Named, Node, Project, free_columns
from headrace.plan.rewrites.decorrelate import Pulled, bind_to_domain, pull_conditions
from headrace.plan.rewrites.empty_groups import filled


def lift_condition(context: Context, node: Node, condition: exp.Expr) -> Node:
    """Filter by a condition with subqueries; one that stands alone under AND needs no mark.

    Before: WHERE a > 1 AND EXISTS (SELECT * FROM u WHERE u.k = t.k)
    After:  a semi join with u ON u.k = t.k, and WHERE a > 1
    """
    rest: list[exp.Expr] = []
    alone: list[exp.Expr] = []
    for part in conjuncts(condition):
        (alone if _standing_alone(context, part) else rest).append(part)
    plain = conjunction(part for part in rest if not any(subquery_calls(part)))
    if plain is not None:
        node = Filter(node, plain)
    marked = [part for part in rest if any(subquery_calls(part))]
    # As Spark does it: a value that is the same for all rows chooses among them before a join does.
    node = _chosen(context, node, [part for part in marked if _compares_one_value(context, node, part)])
    for part in alone:
        node = _semi_or_anti(context, node, part)
    return _chosen(context, node, [part for part in marked if not _compares_one_value(context, node, part)])


def _chosen(context: Context, node: Node, conditions: Sequence[exp.Expr]) -> Node:
    """Filter by conditions with subqueries, whose columns are gone afterwards."""
    test = conjunction(conditions)
    if test is None:
        return node
    columns = node.columns
    node, (test,) = lift(context, node, [test])
    return Project(Filter(node, test), tuple((name, col(name)) for name in columns))


def _compares_one_value(context: Context, node: Node, part: exp.Expr) -> bool:
    """Tell whether all subqueries of a condition are scalar and the same for every row."""
    subplans = [_subplan(context, marker) for marker in subquery_calls(part)]
    return all(
        one.kind == "scalar" and not free_columns(one.built.node) & set(node.columns) for one in subplans
    )


def _standing_alone(context: Context, part: exp.Expr) -> exp.Anonymous | None:
    inner = part.this if isinstance(part, exp.Not) else part
    while isinstance(inner, exp.Paren):
        inner = inner.this
    if not isinstance(inner, exp.Anonymous) or inner.this != SUBQUERY:
        return None
    nested = any(any(subquery_calls(value)) for value in inner.expressions)
    return None if nested or _subplan(context, inner).kind == "scalar" else inner


def _semi_or_anti(context: Context, node: Node, part: exp.Expr) -> Node:
    marker = _standing_alone(context, part)
    assert marker is not None
    pulled, matches = _conditions(context, node, marker)
    if not isinstance(part, exp.Not):
        return Join("semi", node, pulled.node, conjunction([*pulled.conditions, *conjuncts(matches)]))
    # NOT IN is true only where every comparison is false: one that is null keeps the row out as well.
    hit = [exp.Or(this=wrap(matches), expression=_is_null(matches))] if matches is not None else []
    return Join("anti", node, pulled.node, conjunction([*pulled.conditions, *hit]))


def _is_null(expression: exp.Expr) -> exp.Expr:
    return exp.Is(this=exp.Paren(this=expression.copy()), expression=exp.null())


def lift(context: Context, node: Node, expressions: Sequence[exp.Expr]) -> tuple[Node, list[exp.Expr]]:
    """Join every subquery of the expressions to the node, and put its column in its place.

    Before: SELECT a OR EXISTS (SELECT * FROM u WHERE u.k = t.k) FROM t
    After:  SELECT a OR mark FROM t MARK JOIN u ON u.k = t.k
    """
    lifted = []
    for expression in expressions:
        node, replaced = _lift_one(context, node, expression)
        lifted.append(replaced)
    return node, lifted


def decided(context: Context, expression: exp.Expr, *, negated: bool = False) -> exp.Expr:
    """Give IN over a subquery the value that Spark gives it: false where it is unknown, negated or not.

    Before: NOT (f OR a IN (SELECT b FROM u))
    After:  NOT f AND COALESCE(NOT a IN (SELECT b FROM u), FALSE)
    """
    match expression:
        case exp.Paren() if _has_in(context, expression):
            return wrap(decided(context, expression.this, negated=negated))
        case exp.Not() if _has_in(context, expression):
            return wrap(decided(context, expression.this, negated=not negated))
        case exp.And() | exp.Or() if _has_in(context, expression):
            sides = [
                wrap(decided(context, side, negated=negated))
                for side in (expression.this, expression.expression)
            ]
            is_and = isinstance(expression, exp.And) is not negated
            return (exp.And if is_and else exp.Or)(this=sides[0], expression=sides[1])

    def visit(part: exp.Expr) -> exp.Expr | None:
        if _is_in(context, part):
            return call("COALESCE", part.copy(), exp.false())
        is_below = part is not expression and isinstance(part, (exp.Not, exp.And, exp.Or))
        return decided(context, part) if is_below else None

    if negated and _is_in(context, expression):
        return call("COALESCE", exp.Not(this=expression.copy()), exp.false())
    plain = rewrite(expression, visit)
    return exp.Not(this=wrap(plain)) if negated else plain


def _has_in(context: Context, expression: exp.Expr) -> bool:
    return any(_is_in(context, marker) for marker in subquery_calls(expression))


def _is_in(context: Context, node: exp.Expr) -> bool:
    if not isinstance(node, exp.Anonymous) or node.this != SUBQUERY:
        return False
    return _subplan(context, node).kind == "in"


def _lift_one(context: Context, node: Node, expression: exp.Expr) -> tuple[Node, exp.Expr]:
    expression = decided(context, expression)
    columns: dict[str, str] = {}
    # Innermost first: a subquery's outer value may hold another subquery.
    for marker in sorted(subquery_calls(expression), key=lambda call: len(list(call.walk()))):
        if any(any(subquery_calls(value)) for value in marker.expressions):
            node, values = lift(context, node, marker.expressions[1:])
            replaced = exp.Anonymous(this=SUBQUERY, expressions=[marker.expressions[0], *values])
        else:
            replaced = marker
        key = replaced.sql()
        if context.marks.get(key) not in node.columns:
            node, context.marks[key] = _join_subquery(context, node, replaced)
        columns[marker.sql()] = context.marks[key]

    def visit(part: exp.Expr) -> exp.Expr | None:
        if isinstance(part, exp.Anonymous) and part.this == SUBQUERY:
            return col(columns[part.sql()])
        return None

    return node, rewrite(expression, visit)


def outer_columns(context: Context, expression: exp.Expr) -> set[str]:
    """The columns that an expression's subqueries read from around them."""
    found: set[str] = set()
    for marker in subquery_calls(expression):
        found |= free_columns(_subplan(context, marker).built.node)
    return found


def _subplan(context: Context, marker: exp.Anonymous) -> Subplan:
    return context.subplans[int(marker.expressions[0].name)]


def _join_subquery(context: Context, node: Node, marker: exp.Anonymous) -> tuple[Node, str]:
    subplan = _subplan(context, marker)
    if subplan.kind == "scalar":
        return scalar_join(context, node, subplan.built.node, subplan.built.columns[0][1])
    pulled, matches = _conditions(context, node, marker)
    mark = context.names.fresh("mark")
    return Join("mark", node, pulled.node, conjunction(pulled.conditions), matches, mark), mark


def _conditions(context: Context, node: Node, marker: exp.Anonymous) -> tuple[Pulled, exp.Expr | None]:
    """The subquery as the right side of a join, its condition, and the comparison that may be null."""
    subplan = _subplan(context, marker)
    inner = subplan.built.node
    pulled = pull_conditions(inner, duplicates_matter=False) or bind_to_domain(context, node, inner)
    if subplan.compare is None:
        return pulled, None
    columns: list[exp.Expr] = [col(name) for _, name in subplan.built.columns]
    return pulled, subplan.compare(list(marker.expressions[1:]), columns)


def scalar_join(context: Context, node: Node, inner: Node, value: str) -> tuple[Node, str]:
    """Join the value of a scalar subquery: the one of the empty group where nothing matches.

    Before: SELECT (SELECT COUNT(*) FROM u WHERE u.k = t.k) FROM t
    After:  SELECT CASE WHEN found IS NULL THEN 0 ELSE n END
            FROM t LEFT JOIN (SELECT k, COUNT(*) AS n, TRUE AS found FROM u GROUP BY k) ON k = t.k
    """
    if not free_columns(inner) & set(node.columns):
        single = inner if _is_single_row(inner) else _guarded(context, inner, value, ())
        return Join("inner", node, single), value
    if joined := _grouped_by_equalities(context, node, inner, value):
        return joined
    pulled = pull_conditions(inner)
    equal = _equalities(pulled, node) if pulled else None
    if pulled and equal is not None:
        keyed, keys = _with_keys(context, pulled.node, [mine for mine, _ in equal])
        guarded = _guarded(context, keyed, value, keys)
        on = [
            exp.EQ(this=wrap(theirs), expression=col(key))
            for (_, theirs), key in zip(equal, keys, strict=True)
        ]
        return Join("left", node, guarded, conjunction(on)), value
    bound = bind_to_domain(context, node, inner)
    keys = tuple(name for name in bound.node.columns if name in columns_in(*bound.conditions))
    guarded = _guarded(context, bound.node, value, keys)
    return Join("left", node, guarded, conjunction(bound.conditions)), value


def _is_single_row(node: Node) -> bool:
    while isinstance(node, Project):
        node = node.child
    return isinstance(node, Aggregate) and not node.keys


def _guarded(context: Context, node: Node, value: str, keys: tuple[str, ...]) -> Node:
    """At most one row for each key; more is the error that Spark raises for a scalar subquery."""
    first, rows = context.names.fresh(value), context.names.fresh("rows")
    grouped = Aggregate(node, keys, ((first, call("MAX", col(value))), (rows, call("COUNT", exp.Star()))))
    message = exp.Literal.string("A scalar subquery returned more than one row")
    too_many = exp.If(this=exp.GT(this=col(rows), expression=number(1)), true=call("RAISE_ERROR", message))
    items = (*((key, col(key)) for key in keys), (value, exp.Case(ifs=[too_many], default=col(first))))
    return Project(grouped, items)


def _equalities(pulled: Pulled, outer: Node) -> list[tuple[exp.Expr, exp.Expr]] | None:
    """The pairs (inner, outer) when every condition equates an inner expression with an outer one."""
    pairs = []
    for condition in pulled.conditions:
        if not isinstance(condition, exp.EQ):
            return None
        sides = (condition.this, condition.expression)
        mine, theirs = (columns_in(side) for side in sides)
        inner, free = set(pulled.node.columns), set(outer.columns)
        if mine <= inner and mine and theirs and theirs <= free:
            pairs.append(sides)
        elif theirs <= inner and theirs and mine and mine <= free:
            pairs.append((sides[1], sides[0]))
        else:
            return None
    return pairs


def _with_keys(context: Context, node: Node, keys: Sequence[exp.Expr]) -> tuple[Node, tuple[str, ...]]:
    names = tuple(context.names.fresh("key") for _ in keys)
    return Project(node, passing(node) + tuple(zip(names, keys, strict=True))), names


def _grouped_by_equalities(context: Context, node: Node, inner: Node, value: str) -> tuple[Node, str] | None:
    """The usual correlated aggregate: group it by its side of the equalities."""
    if not isinstance(inner, Project) or not isinstance(inner.child, Aggregate) or inner.child.keys:
        return None
    aggregate = inner.child
    if columns_in(*aggregate.expressions) & free_columns(inner):
        return None
    pulled = pull_conditions(aggregate.child)
    equal = _equalities(pulled, node) if pulled else None
    if (
        pulled is None
        or equal is None
        or not all(is_aggregate_call(item, context.aggregates) for _, item in aggregate.aggregates)
    ):
        return None
    keyed, keys = _with_keys(context, pulled.node, [mine for mine, _ in equal])
    found = context.names.fresh("found")
    grouped = Aggregate(keyed, keys, aggregate.aggregates)
    right = Project(grouped, (*passing(grouped), (found, exp.true())))
    on = [
        exp.EQ(this=wrap(theirs), expression=col(key)) for (_, theirs), key in zip(equal, keys, strict=True)
    ]
    joined = Join("left", node, right, conjunction(on))
    values = {name: filled(col(name), item, col(found)) for name, item in aggregate.aggregates}
    expression = substitute(dict(inner.items)[value], values)
    items: Named = (*passing(node), (value, expression))
    return Project(joined, items), value
