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
# Some decimal, likewise.
DECIMAL = "decimal"
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
            branches = [column_types(plan, branch) for branch in node.branches]
            return _known({name: _common({types.get(name) for types in branches}) for name in node.columns})
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


def _common(types: set[str | None]) -> str | None:
    """The type of a union's column, given those of its branches."""
    if len(types) == 1:
        return next(iter(types))
    if not all(type_ and _names_exact(type_) for type_ in types):
        return None
    return DECIMAL if any(type_ and type_.startswith(DECIMAL) for type_ in types) else EXACT


def _names_exact(type_: str) -> bool:
    return type_ in (EXACT, DECIMAL) or type_ in INTEGERS or decimal_of(type_) is not None


def _known(types: Mapping[str, str | None]) -> dict[str, str]:
    return {name: type_ for name, type_ in types.items() if type_ is not None}


def type_of(expression: exp.Expr, types: Mapping[str, str]) -> str | None:
    """The type of an expression over typed columns, if it is known."""
    if isinstance(expression, exp.Column):
        return types.get(expression.name)
    if not is_exact(expression, types):
        return None
    return DECIMAL if is_decimal(expression, types) else EXACT


def _aggregated(aggregate: exp.Expr, types: Mapping[str, str]) -> str | None:
    arguments = aggregate.args.get("expressions") or [None]
    match function_name(aggregate):
        case "count" | "count_if":
            return "bigint"
        case "min" | "max":
            return type_of(arguments[0], types)
        case "sum":
            return DECIMAL if is_decimal(arguments[0], types) else type_of(arguments[0], types) and EXACT
    return None


def is_exact(expression: exp.Expr, types: Mapping[str, str]) -> bool:
    """Whether a number is an integer or a decimal, so that its sums are exact; in doubt it is not.

    >>> from headrace.plan.expressions import col
    >>> is_exact(col("a"), {"a": "int"}), is_exact(col("x"), {"x": "double"}), is_exact(col("y"), {})
    (True, False, False)
    """
    match expression:
        case exp.Column():
            return _names_exact(types.get(expression.name, ""))
        case exp.Literal():
            return not expression.is_string and "e" not in expression.name.lower()
        case exp.Null():
            return True
        case exp.Distinct():
            return all(is_exact(part, types) for part in expression.expressions)
        case exp.Add() | exp.Sub() | exp.Mul() | exp.Mod():
            return is_exact(expression.this, types) and is_exact(expression.expression, types)
        case exp.Div():
            # Spark divides integers as doubles.
            return is_decimal(expression, types)
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


def is_decimal(expression: exp.Expr, types: Mapping[str, str]) -> bool:
    """Whether a number is certainly a decimal.

    >>> from headrace.plan.expressions import col
    >>> types = {"a": "int", "p": "decimal(7,2)"}
    >>> is_decimal(col("a") * col("p") / 2, types), is_decimal(col("a") / 2, types)
    (True, False)
    """
    match expression:
        case exp.Column():
            return types.get(expression.name, "").startswith(DECIMAL)
        case exp.Literal():
            return is_exact(expression, types) and "." in expression.name
        case exp.Add() | exp.Sub() | exp.Mul() | exp.Mod() | exp.Div():
            sides = (expression.this, expression.expression)
            return all(is_exact(side, types) for side in sides) and any(
                is_decimal(side, types) for side in sides
            )
        case exp.Paren() | exp.Neg():
            return is_decimal(expression.this, types)
        case exp.Case():
            results = [branch.args["true"] for branch in expression.args["ifs"]]
            results += [expression.args["default"]] if expression.args.get("default") else []
            return is_exact(expression, types) and any(is_decimal(result, types) for result in results)
        case exp.Cast():
            return expression.to.is_type("decimal")
    return is_exact(expression, types) and any(
        is_decimal(part, types) for part in expression.expressions if not _is_test(part)
    )


def _is_test(expression: exp.Expr) -> bool:
    return isinstance(expression, (exp.Predicate, exp.Connector, exp.Not))
