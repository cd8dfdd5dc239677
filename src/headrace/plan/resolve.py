"""Expressions as written to expressions over the plan's columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from sqlglot import exp

from headrace.plan.context import Context, Environment, Subplan
from headrace.plan.expressions import (
    call,
    col,
    conjunction,
    function_name,
    is_aggregate_call,
    rewrite,
    wrap,
)
from headrace.plan.hidden import SUBQUERY
from headrace.plan.literals import in_place_of_column, literal_of
from headrace.plan.scope import Scope, Unplannable, Visible
from headrace.sql.stars import is_counted, is_star

# What Spark makes several rows or one of, or names after what it is made of.
_NOT_BY_ROW = frozenset({"window", "session_window", "arrays_zip", "identifier"})
# Where a row of values is only compared, the names of its fields do not matter.
_COMPARING = (exp.In, exp.Predicate, exp.Distinct, exp.Window)
_COMPARISONS = (exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.NullSafeEQ)


def resolve(
    context: Context,
    environment: Environment,
    expression: exp.Expr,
    scope: Scope,
    aliases: Mapping[str, exp.Expr] | None = None,
    *,
    shadows: Mapping[str, exp.Expr] | None = None,
) -> exp.Expr:
    """Name every column by its plan name, and put a call in the place of every subquery.

    Names of the SELECT list that `shadows` has go before columns, except inside an aggregate.
    """

    def again(node: exp.Expr) -> exp.Expr:
        return resolve(context, environment, node, scope, aliases, shadows=shadows)

    def visit(node: exp.Expr) -> exp.Expr | None:
        if shadows and is_aggregate_call(node, context.aggregates):
            return resolve(context, environment, node, scope, aliases)
        match node:
            case exp.Column(parts=[name]) if shadows and name.name.lower() in shadows:
                return wrap(shadows[name.name.lower()].copy())
            case exp.Star() | exp.Column() if _is_for_columns(node):
                raise Unplannable("a star inside an expression")
            case exp.Column():
                found = scope.resolve([part.name for part in node.parts], aliases)
                return in_place_of_column(found) if isinstance(node.parent, exp.Div) else found
            case exp.Cast() if node.to.is_type(exp.DType.TIME):
                # SQLGlot writes it as another type.
                raise Unplannable("a time of the day")
            case exp.Placeholder() | exp.Parameter() | exp.SessionParameter():
                raise Unplannable("a parameter")
            case exp.Div() if any(map(_is_typed_literal, (node.this, node.expression))):
                # 3L has one digit where it meets a decimal; the parser gives CAST(3 AS BIGINT), which has 20.
                raise Unplannable("a division by a literal with a type")
            case exp.Exists():
                return _note(context, environment, scope, "exists", _any_row(node.this))
            case exp.In() if node.args.get("query"):
                return _in(context, environment, scope, node, again)
            case exp.Subquery() | exp.Query():
                return _note(context, environment, scope, "scalar", node)
        if function_name(node) == "exists" and isinstance(node.expressions[0], (exp.Subquery, exp.Query)):
            # EXISTS over a set operation in parentheses parses as a call.
            return _note(context, environment, scope, "exists", node.expressions[0])
        if isinstance(node, exp.Lambda):
            return _lambda(node, again)
        if isinstance(node, exp.Tuple) and not isinstance(node.parent, _COMPARING):
            raise Unplannable("a row of values, whose fields Spark names after its columns")
        if function_name(node) in _NOT_BY_ROW:
            raise Unplannable(f"{function_name(node)}()")
        if function_name(node) == "struct":
            return _named_struct(node, scope, again)
        if isinstance(node, (exp.Anonymous, exp.Distinct)) and any(map(_is_for_columns, node.expressions)):
            return _with_columns(node, scope, again)
        if isinstance(node, _COMPARISONS) and isinstance(node.expression, (exp.Any, exp.All)):
            return _quantified(context, environment, scope, node, again)
        return None

    return rewrite(expression, visit)


def _any_row(query: exp.Expr) -> exp.Expr:
    """EXISTS asks for any row: all but LIMIT 0 and an OFFSET leave that as it is."""
    limit = query.args.get("limit")
    count = limit.expression if limit is not None else None
    if query.args.get("offset") or not (isinstance(count, exp.Literal) and count.is_int and int(count.name)):
        return query
    every = query.copy()
    every.set("limit", None)
    every.set("order", None)
    return every


def _is_typed_literal(expression: exp.Expr) -> bool:
    return isinstance(expression, exp.Cast) and literal_of(expression.this) is not None


def _lambda(node: exp.Lambda, again: Callable[[exp.Expr], exp.Expr]) -> exp.Expr:
    """Resolve the columns in the body of a lambda, unless a variable could be taken for one of them."""
    variables = {variable.name.lower() for variable in node.expressions}
    body = again(node.this)
    if any(column.name.lower() in variables for column in body.find_all(exp.Column)):
        raise Unplannable("a lambda whose variable is called like a column")
    if any(is_aggregate_call(part) for part in body.walk()):
        # It becomes a column, whose name nobody chose.
        raise Unplannable("an aggregate inside a lambda")
    written = node.copy()
    written.set("this", body)
    return written


def _is_for_columns(argument: exp.Expr) -> bool:
    return is_star(argument) and not (isinstance(argument, exp.Star) and is_counted(argument))


def _with_columns(node: exp.Expr, scope: Scope, again: Callable[[exp.Expr], exp.Expr]) -> exp.Expr:
    """Write the columns that a star among arguments stands for.

    Before: hash(1, t.*)
    After:  hash(1, id_2, a)
    """
    arguments: list[exp.Expr] = []
    for argument in node.expressions:
        if is_star(argument):
            arguments += [col(name) for _, name in columns_of_star(argument, scope)]
        else:
            arguments.append(again(argument))
    written = node.copy()
    written.set("expressions", arguments)
    return written


def _named_struct(node: exp.Expr, scope: Scope, again: Callable[[exp.Expr], exp.Expr]) -> exp.Expr:
    """STRUCT names its fields after its arguments' columns, whose names in the plan are others.

    Before: STRUCT(t.id, a + 1, b AS c)
    After:  NAMED_STRUCT('id', id_2, 'col2', a + 1, 'c', b)
    """
    fields: list[exp.Expr] = []
    for place, argument in enumerate(node.expressions):
        if is_star(argument):
            for user, name in columns_of_star(argument, scope):
                fields += [exp.Literal.string(user), col(name)]
            continue
        named = argument.unnest() if isinstance(argument, exp.Paren) else argument
        is_name = isinstance(named, (exp.Alias, exp.Column, exp.Identifier))
        label = named.alias_or_name if is_name else f"col{place + 1}"
        if isinstance(argument, exp.Dot):
            label = argument.expression.name
        inner = argument.this if isinstance(argument, exp.Alias) else argument
        fields += [exp.Literal.string(label), again(inner)]
    return call("NAMED_STRUCT", *fields)


def columns_of_star(entry: exp.Expr, scope: Scope) -> Sequence[Visible]:
    """The columns that a star stands for, each with the name that users see."""
    star = entry if isinstance(entry, exp.Star) else entry.this
    if star.args.get("replace") or star.args.get("rename"):
        raise Unplannable("* REPLACE")
    qualifier = [part.name for part in entry.parts[:-1]] if isinstance(entry, exp.Column) else []
    if any(len(part.parts) > 1 for part in star.args.get("except_") or ()):
        raise Unplannable("* EXCEPT a field of a struct")
    left_out = {part.name.lower() for part in star.args.get("except_") or ()}
    return [column for column in scope.star(qualifier) if column[0].lower() not in left_out]


def _note(
    context: Context,
    environment: Environment,
    scope: Scope,
    kind: str,
    query: exp.Expr,
    values: tuple[exp.Expr, ...] = (),
    compare: Callable[[list[exp.Expr], list[exp.Expr]], exp.Expr] | None = None,
) -> exp.Expr:
    built = context.subquery(query, environment, scope)
    context.subplans.append(Subplan(kind, built, compare))  # type: ignore[arg-type]  # callers give one of its kinds
    place = exp.Literal.number(len(context.subplans) - 1)
    return exp.Anonymous(this=SUBQUERY, expressions=[place, *values])


def _in(
    context: Context,
    environment: Environment,
    scope: Scope,
    node: exp.In,
    again: Callable[[exp.Expr], exp.Expr],
) -> exp.Expr:
    values = tuple(again(value) for value in _row(node.this))
    return _note(context, environment, scope, "in", node.args["query"], values, _all_equal)


def _row(value: exp.Expr) -> list[exp.Expr]:
    while isinstance(value, exp.Paren):
        value = value.this
    return list(value.expressions) if isinstance(value, exp.Tuple) else [value]


def _all_equal(values: list[exp.Expr], columns: list[exp.Expr]) -> exp.Expr:
    if len(values) != len(columns):
        raise Unplannable("IN with another number of columns")
    equal = [exp.EQ(this=wrap(v), expression=wrap(c)) for v, c in zip(values, columns, strict=True)]
    return conjunction(equal) or exp.true()


def _quantified(
    context: Context,
    environment: Environment,
    scope: Scope,
    node: exp.Expr,
    again: Callable[[exp.Expr], exp.Expr],
) -> exp.Expr:
    """`x > ALL (q)` is false where some row of q makes `x > y` false, so it is NOT (NOT x > y) ANY."""
    quantifier, operator = node.expression, type(node)
    every = isinstance(quantifier, exp.All)

    def compare(values: list[exp.Expr], columns: list[exp.Expr]) -> exp.Expr:
        (value,), (column,) = values, columns
        test = operator(this=wrap(value), expression=wrap(column))
        return exp.Not(this=exp.Paren(this=test)) if every else test

    marked = _note(context, environment, scope, "quantified", quantifier.this, (again(node.this),), compare)
    return exp.Not(this=marked) if every else marked
