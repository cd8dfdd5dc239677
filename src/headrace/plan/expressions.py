"""Small helpers over SQLGlot's expression trees."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

from sqlglot import exp

from headrace.plan.hidden import SUBQUERY
from headrace.sql.functions import AGGREGATES, GENERATORS

Pairs: TypeAlias = Sequence[tuple[str, str, bool]]
"""Columns that must be equal, and whether NULL equals NULL."""


def col(name: str) -> exp.Column:
    """A column by its name in the plan, which is unique, so it needs no table."""
    return exp.Column(this=exp.Identifier(this=name, quoted=True))


def number(value: int) -> exp.Expr:
    return exp.Literal.number(value) if value >= 0 else exp.Neg(this=exp.Literal.number(-value))


def call(function: str, *arguments: exp.Expr) -> exp.Anonymous:
    return exp.Anonymous(this=function, expressions=list(arguments))


def columns_in(*expressions: exp.Expr | None) -> set[str]:
    """The columns that expressions read."""
    return {
        column.name
        for expression in expressions
        if expression is not None
        for column in expression.find_all(exp.Column)
    }


def conjuncts(condition: exp.Expr | None) -> list[exp.Expr]:
    """The parts that a condition joins with AND.

    >>> from sqlglot import parse_one
    >>> [part.sql() for part in conjuncts(parse_one("a AND (b AND (c OR d))"))]
    ['a', 'b', 'c OR d']
    """
    match condition:
        case None:
            return []
        case exp.And():
            return conjuncts(condition.this) + conjuncts(condition.expression)
        case exp.Paren():
            return conjuncts(condition.this)
        case exp.Boolean() if condition.this:
            return []
    return [condition]


def conjunction(parts: Iterable[exp.Expr]) -> exp.Expr | None:
    """Join conditions with AND; none at all is no condition."""
    joined: exp.Expr | None = None
    for part in parts:
        joined = wrap(part) if joined is None else exp.And(this=joined, expression=wrap(part))
    return joined


def wrap(expression: exp.Expr) -> exp.Expr:
    """Put parentheses around what could bind otherwise in its new place."""
    return (
        exp.Paren(this=expression)
        if isinstance(expression, (exp.Binary, exp.Unary, exp.Between))
        else expression
    )


def same(left: exp.Expr, right: exp.Expr) -> exp.Expr:
    """Equality in which NULL equals NULL."""
    return exp.NullSafeEQ(this=wrap(left), expression=wrap(right))


def all_same(pairs: Iterable[tuple[str, str]]) -> exp.Expr | None:
    return conjunction(same(col(left), col(right)) for left, right in pairs)


def substitute(expression: exp.Expr, mapping: Mapping[str, exp.Expr]) -> exp.Expr:
    """Replace columns by expressions."""

    def visit(node: exp.Expr) -> exp.Expr | None:
        if isinstance(node, exp.Column) and node.name in mapping:
            return wrap(mapping[node.name].copy())
        return None

    return rewrite(expression, visit)


def rewrite(expression: exp.Expr, visit: Callable[[exp.Expr], exp.Expr | None]) -> exp.Expr:
    """Copy a tree top-down; where `visit` gives an expression it takes the place of the whole subtree."""
    if (replaced := visit(expression)) is not None:
        return replaced
    copied = type(expression)()
    copied.comments = None
    for key, value in expression.args.items():
        match value:
            case exp.Expr():
                copied.set(key, rewrite(value, visit))
            case list():
                copied.set(key, [rewrite(v, visit) if isinstance(v, exp.Expr) else v for v in value])
            case _:
                copied.set(key, value)
    return copied


def implied(conditions: Iterable[exp.Expr]) -> Iterator[exp.Expr]:
    """Conditions and what they have in common where they are alternatives.

    >>> from sqlglot import parse_one
    >>> [part.sql() for part in implied([parse_one("(a AND b) OR (b AND c)")])]
    ['(a AND b) OR (b AND c)', 'b']
    """
    for condition in conditions:
        yield condition
        if isinstance(condition, exp.Or):
            first, *others = (
                {part.sql(): part for part in conjuncts(one)} for one in _alternatives(condition)
            )
            yield from (part for sql, part in first.items() if all(sql in other for other in others))


def equal_columns(conditions: Iterable[exp.Expr]) -> list[tuple[str, str, bool]]:
    """The columns that conditions want to be equal, also where every alternative does.

    >>> from sqlglot import parse_one
    >>> equal_columns([parse_one("a = b"), parse_one("c = 1"), parse_one("(d = e AND f) OR (d = e AND g)")])
    [('a', 'b', False), ('d', 'e', False)]
    """
    pairs = []
    for part in implied(conditions):
        match part:
            case (
                exp.EQ(this=exp.Column(name=a), expression=exp.Column(name=b))
                | exp.NullSafeEQ(this=exp.Column(name=a), expression=exp.Column(name=b))
            ):
                pairs.append((a, b, isinstance(part, exp.NullSafeEQ)))
    return pairs


def perhaps_equal_columns(conditions: Iterable[exp.Expr]) -> list[tuple[str, str]]:
    """The columns that are equal, or of which one is NULL, as NOT IN compares them.

    >>> from sqlglot import parse_one
    >>> perhaps_equal_columns([parse_one("(a = b) OR ((a = b) IS NULL)"), parse_one("c = d")])
    [('a', 'b')]
    """
    pairs = []
    for condition in conditions:
        match [_bare(part) for part in _alternatives(_bare(condition))]:
            case [exp.EQ() as equal, exp.Is(this=test, expression=exp.Null())] if _bare(test) == equal:
                both = equal.this, equal.expression
                if all(isinstance(side, exp.Column) for side in both):
                    pairs.append((equal.this.name, equal.expression.name))
    return pairs


def _bare(expression: exp.Expr) -> exp.Expr:
    while isinstance(expression, exp.Paren):
        expression = expression.this
    return expression


def _alternatives(condition: exp.Expr) -> list[exp.Expr]:
    if isinstance(condition, exp.Or):
        return _alternatives(condition.this) + _alternatives(condition.expression)
    if isinstance(condition, exp.Paren) and isinstance(condition.this, exp.Or):
        return _alternatives(condition.this)
    return [condition]


def function_name(node: exp.Expr) -> str | None:
    """The name of a call, in lower case."""
    if isinstance(node, exp.Anonymous) and isinstance(node.this, str):
        return node.this.lower()
    return None


def is_aggregate_call(node: exp.Expr, aggregates: frozenset[str] = AGGREGATES) -> bool:
    """Whether this node is an aggregate with all that belongs to it: FILTER, WITHIN GROUP, IGNORE NULLS."""
    while isinstance(node, (exp.Filter, exp.WithinGroup, exp.IgnoreNulls, exp.RespectNulls)):
        node = node.this
    return function_name(node) in aggregates


def is_generator_call(node: exp.Expr) -> bool:
    return function_name(node) in GENERATORS


def subquery_calls(expression: exp.Expr) -> Iterator[exp.Anonymous]:
    """The calls that stand for subqueries."""
    for node in expression.find_all(exp.Anonymous):
        if node.this == SUBQUERY:
            yield node


def partition_also(
    items: Iterable[tuple[str, exp.Expr]], keys: Sequence[str]
) -> tuple[tuple[str, exp.Expr], ...]:
    """Partition window functions by more columns."""
    widened = []
    for name, item in items:
        window = item.copy()
        partition = window.args.get("partition_by") or ()
        window.set("partition_by", [*partition, *(col(key) for key in keys)])
        widened.append((name, window))
    return tuple(widened)
