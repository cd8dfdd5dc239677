"""Types of number literals, which take only as many digits as they have where they meet a decimal."""

from __future__ import annotations

from sqlglot import exp


def literal_of(expression: exp.Expr) -> exp.Literal | None:
    """The number literal that Spark reads here, with or without a sign."""
    inner = expression.this if isinstance(expression, exp.Neg) else expression
    return inner if isinstance(inner, exp.Literal) and not inner.is_string else None


def literal_type(expression: exp.Expr) -> str | None:
    """The Spark type of an integer or decimal literal; None for floats and for what is no literal.

    >>> [literal_type(exp.Literal.number(text)) for text in ("3", "3000000000", "0.05", "1e3")]
    ['int', 'bigint', 'decimal(2,2)', None]
    """
    literal = literal_of(expression)
    if literal is None or "e" in literal.name.lower():
        return None
    whole, point, fraction = literal.name.partition(".")
    if point:
        return f"decimal({max(len((whole + fraction).lstrip('0')), len(fraction), 1)},{len(fraction)})"
    # The smallest integer of a type has no positive counterpart.
    size = int(whole) - isinstance(expression, exp.Neg)
    if size < 1 << 31:
        return "int"
    return "bigint" if size < 1 << 63 else f"decimal({len(whole.lstrip('0'))},0)"


def in_place_of_column(expression: exp.Expr) -> exp.Expr:
    """What may stand for a column that has this value: a literal keeps the type that the column has.

    As the divisor of a decimal, 3 has one digit and a column of 3s ten: the quotients differ in their scale.
    """
    inner = expression
    while isinstance(inner, exp.Paren):
        inner = inner.this
    type_ = literal_type(inner)
    return expression.copy() if type_ is None else exp.cast(inner.copy(), type_)
