"""Spark types of columns, as far as they can be told without Spark."""

from __future__ import annotations

import re
from collections.abc import Mapping

from sqlglot import exp

from headrace.plan.build import Plan
from headrace.plan.expressions import function_name
from headrace.plan.nodes import Aggregate, Node, Project, Scan, UnionAll

# Some integer or decimal, whose width is not known.
EXACT = "exact"
_CHOICES = frozenset({"coalesce", "nvl", "ifnull", "if", "abs", "greatest", "least", "nullif"})
_EXACT_CASTS = ("tinyint", "smallint", "int", "bigint", "decimal")
_DECIMAL = re.compile(r"decimal\((\d+),\s*(\d+)\)\Z")
INTEGERS = frozenset({"tinyint", "smallint", "int", "integer", "bigint", "byte", "short", "long"})


def column_types(plan: Plan, node: Node) -> dict[str, str]:
    """The types of a node's columns, as far as they are known."""
    match node:
        case Scan():
            columns = {c.name: c.type.lower() for c in plan.analysis.tables[node.source].columns}
            return {name: columns[column] for name, column in node.names}
        case Project():
            below = column_types(plan, node.child)
            return _known({name: type_of(item, below) for name, item in node.items})
        case Aggregate():
            below = column_types(plan, node.child)
            keys = {key: below.get(key) for key in node.keys}
            return _known(keys | {name: _aggregated(item, below) for name, item in node.aggregates})
        case UnionAll():
            first, *others = (column_types(plan, branch) for branch in node.branches)
            return {n: t for n, t in first.items() if all(other.get(n) == t for other in others)}
    types: dict[str, str] = {}
    for child in node.inputs:
        types |= column_types(plan, child)
    return {name: type_ for name, type_ in types.items() if name in node.columns}


def decimal_of(type_: str) -> tuple[int, int] | None:
    """Precision and scale of a decimal type.

    >>> decimal_of("decimal(10,2)")
    (10, 2)
    """
    found = _DECIMAL.match(type_)
    return (int(found[1]), int(found[2])) if found else None


def _known(types: Mapping[str, str | None]) -> dict[str, str]:
    return {name: type_ for name, type_ in types.items() if type_ is not None}


def type_of(expression: exp.Expr, types: Mapping[str, str]) -> str | None:
    """The type of an expression over typed columns, if it is known."""
    if isinstance(expression, exp.Column):
        return types.get(expression.name)
    return EXACT if is_exact(expression, types) else None


def _aggregated(aggregate: exp.Expr, types: Mapping[str, str]) -> str | None:
    arguments = aggregate.args.get("expressions") or [None]
    match function_name(aggregate):
        case "count" | "count_if":
            return "bigint"
        case "min" | "max":
            return type_of(arguments[0], types)
        case "sum":
            return EXACT if is_exact(arguments[0], types) else None
    return None


def is_exact(expression: exp.Expr, types: Mapping[str, str]) -> bool:
    """Whether a number is an integer or a decimal, so that its sums are exact; in doubt it is not.

    >>> from headrace.plan.expressions import col
    >>> is_exact(col("a"), {"a": "int"}), is_exact(col("x"), {"x": "double"}), is_exact(col("y"), {})
    (True, False, False)
    """
    match expression:
        case exp.Column():
            type_ = types.get(expression.name, "")
            return type_ == EXACT or type_ in INTEGERS or decimal_of(type_) is not None
        case exp.Literal():
            return not expression.is_string and "e" not in expression.name.lower()
        case exp.Null():
            return True
        case exp.Distinct():
            return all(is_exact(part, types) for part in expression.expressions)
        case exp.Add() | exp.Sub() | exp.Mul() | exp.Mod():
            return is_exact(expression.this, types) and is_exact(expression.expression, types)
        case exp.Paren() | exp.Neg():
            return is_exact(expression.this, types)
        case exp.Case():
            results = [branch.args["true"] for branch in expression.args["ifs"]]
            results += [expression.args["default"]] if expression.args.get("default") else []
            return all(is_exact(result, types) for result in results)
        case exp.Cast():
            return expression.to.is_type(*_EXACT_CASTS)
    if function_name(expression) in _CHOICES:
        return all(is_exact(part, types) for part in expression.expressions if not _is_test(part))
    return False


def _is_test(expression: exp.Expr) -> bool:
    return isinstance(expression, (exp.Predicate, exp.Connector, exp.Not))
