"""Finds the row that a query failed on, where one expression over one source is to blame."""

from __future__ import annotations

import re
from collections.abc import Iterator

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import Row, SparkSession
from sqlglot import exp

from headrace.errors import HeadraceError
from headrace.sql.analysis import Analysis
from headrace.sql.dialect import VerbatimSpark
from headrace.sql.names import TableName, quote

_BY_ZERO = frozenset({"DIVIDE_BY_ZERO", "REMAINDER_BY_ZERO"})
_CAST = frozenset({"CAST_INVALID_INPUT", "CAST_OVERFLOW", "NUMERIC_VALUE_OUT_OF_RANGE"})
_OVERFLOW = frozenset({"ARITHMETIC_OVERFLOW", "BINARY_ARITHMETIC_OVERFLOW"})
_TRIES: dict[type[exp.Expr], str] = {exp.Add: "try_add", exp.Sub: "try_subtract", exp.Mul: "try_multiply"}
# A diagnosis must not cost more than the refresh that failed.
_MOST_EXPRESSIONS = 20
_MOST_SHOWN = 300


_CONDITION = re.compile(r"\[([A-Z_]+)")


def name_poisoned_row(spark: SparkSession, analysis: Analysis, known: HeadraceError) -> HeadraceError:
    """Add the expression and a row that it fails on to an error, where they can be found."""
    found = _CONDITION.search(known.message)
    if found is None:
        return known
    for source, expression, poison in _suspects(analysis, found[1]):
        row = _first(spark, source, poison)
        if row is not None:
            place = f"The expression is {expression}; a row of {source} that it fails on is {_shown(row)}."
            return HeadraceError(known.code, f"{known.message} {place}", hint=known.hint)
    return known


def _suspects(analysis: Analysis, condition: str) -> Iterator[tuple[TableName, str, str]]:
    """Yield expressions that can fail so, each with a source of all its columns and the rows it fails on."""
    left = _MOST_EXPRESSIONS
    for node in analysis.tree.walk():
        poison = _poison(node, condition)
        if poison is None:
            continue
        columns = {column.name.lower() for column in node.find_all(exp.Column)}
        for source, used in analysis.sources.items():
            if columns and columns <= {name.lower() for name in used} and left:
                left -= 1
                yield source, _sql(node), _sql(_unqualified(poison))


def _poison(node: exp.Expr, condition: str) -> exp.Expr | None:
    """Give the condition under which an expression fails in this way.

    >>> import sqlglot
    >>> _sql(_poison(sqlglot.parse_one("a DIV b", dialect=VerbatimSpark), "DIVIDE_BY_ZERO"))
    'b = 0'
    >>> _sql(_poison(sqlglot.parse_one("a + b", dialect=VerbatimSpark), "ARITHMETIC_OVERFLOW"))
    'TRY_ADD(a, b) IS NULL AND NOT a IS NULL AND NOT b IS NULL'
    """
    if condition in _BY_ZERO and isinstance(node, exp.Div | exp.IntDiv | exp.Mod):
        return exp.EQ(this=node.expression.copy(), expression=exp.Literal.number(0))
    if condition in _CAST and isinstance(node, exp.Cast) and not isinstance(node, exp.TryCast):
        tried = exp.TryCast(this=node.this.copy(), to=node.to.copy())
        return exp.and_(_is_null(tried), exp.not_(_is_null(node.this)))
    if condition in _OVERFLOW and type(node) in _TRIES:
        tried_sum = exp.func(_TRIES[type(node)], node.this.copy(), node.expression.copy())
        return exp.and_(
            _is_null(tried_sum), exp.not_(_is_null(node.this)), exp.not_(_is_null(node.expression))
        )
    return None


def _is_null(value: exp.Expr) -> exp.Expr:
    return exp.Is(this=value.copy(), expression=exp.Null())


def _unqualified(condition: exp.Expr) -> exp.Expr:
    """Leave the columns' own names: the source stands alone in the search."""
    return condition.transform(
        lambda node: exp.column(node.name, quoted=True) if isinstance(node, exp.Column) else node
    )


def _sql(node: exp.Expr | None) -> str:
    return node.sql(dialect=VerbatimSpark) if node is not None else ""


def _first(spark: SparkSession, source: TableName, poison: str) -> Row | None:
    try:
        rows = spark.sql(f"SELECT * FROM {source.sql} WHERE {poison} LIMIT 1").collect()
    except (PySparkException, Py4JError):
        # The search may fail on the very row, in another part of the expression.
        return None
    return rows[0] if rows else None


def _shown(row: Row) -> str:
    values = ", ".join(f"{quote(name)} = {value!r}" for name, value in row.asDict().items())
    return values if len(values) <= _MOST_SHOWN else values[: _MOST_SHOWN - 1] + "…"
