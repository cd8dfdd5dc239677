"""Stars in a query: those that count rows, and those that stand for columns."""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp


def is_star(argument: exp.Expr) -> bool:
    """Tell whether something is a star, by itself or behind the name of a table."""
    return isinstance(argument, exp.Star) or (
        isinstance(argument, exp.Column) and isinstance(argument.this, exp.Star)
    )


def is_counted(star: exp.Star) -> bool:
    """Know the star of `COUNT(*)`, which stands for rows and not for columns.

    >>> from sqlglot import parse_one
    >>> texts = ("COUNT(*)", "COUNT(DISTINCT *)", "COUNT(t.*)", "COUNT(*, a)", "hash(*)")
    >>> [is_counted(parse_one(text, dialect="spark").find(exp.Star)) for text in texts]
    [True, False, False, False, False]
    """
    parent = star.parent
    if isinstance(parent, exp.Count):
        return not parent.expressions
    if not isinstance(parent, exp.Anonymous):
        return False
    return parent.name.lower() == "count" and len(parent.expressions) == 1


def stars_for_columns(query: exp.Expr) -> Iterator[exp.Star]:
    """Find the stars that stand for columns."""
    return (star for star in query.find_all(exp.Star) if not is_counted(star))
