"""Spark types of columns, as far as they can be told without Spark."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from sqlglot import exp

from headrace.plan.build import Plan
from headrace.plan.expressions import function_name
from headrace.plan.literals import literal_of, literal_type
from headrace.plan.nodes import Aggregate, Node, Project, Scan, SetOperation, UnionAll

# Some integer or decimal, whose width is not known.
EXACT = "exact"
# Some decimal, likewise.
DECIMAL = "decimal"
_CHOICES = frozenset({"coalesce", "nvl", "ifnull", "if", "abs", "greatest", "least", "nullif"})
_EXACT_CASTS = ("tinyint", "smallint", "int", "bigint", "decimal")
_DECIMAL = re.compile(r"decimal\((\d+),\s*(\d+)\)\Z")
# Digits that an integer takes as a decimal.
_DIGITS = {
    **dict.fromkeys(("tinyint", "byte"), 3),
    **dict.fromkeys(("smallint", "short"), 5),
    **dict.fromkeys(("int", "integer"), 10),
    **dict.fromkeys(("bigint", "long"), 20),
}
INTEGERS = frozenset(_DIGITS)
_MOST_DIGITS = 38
# Spark never shortens a scale to less than this, whatever its settings.
_LEAST_SCALE = 6


def column_types(plan: Plan, node: Node) -> dict[str, str]:
    """The types of a node's columns, as far as they are known."""
    match node:
        case Scan():
            columns = plan.types_of(node.source)
            return _known({name: columns.get(column) for name, column in node.names})
        case Project():
            below = column_types(plan, node.child)
            return _known({name: type_of(item, below) for name, item in node.items})
        case Aggregate():
            below = column_types(plan, node.child)
            keys = {key: below.get(key) for key in node.keys}
            return _known(keys | {name: _aggregated(item, below) for name, item in node.aggregates})
        case UnionAll() | SetOperation():
            branches = [column_types(plan, branch) for branch in node.inputs]
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
    known = number_type(expression, types)
    if known is not None or not is_exact(expression, types):
        return known
    return DECIMAL if is_decimal(expression, types) else EXACT


def number_type(expression: exp.Expr, types: Mapping[str, str]) -> str | None:
    """The very type of an integer or a decimal, by Spark's rules; None where these leave a doubt.

    >>> from headrace.plan.expressions import col
    >>> types = {"price": "decimal(15,2)", "off": "decimal(15,2)", "n": "int"}
    >>> number_type(col("price") * (1 - col("off")), types), number_type(col("n") + 1, types)
    ('decimal(32,4)', 'int')
    """
    match expression:
        case exp.Column():
            type_ = types.get(expression.name, "")
            return type_ if type_ in INTEGERS or decimal_of(type_) else None
        case exp.Literal() | exp.Neg(this=exp.Literal()):
            return literal_type(expression)
        case exp.Paren() | exp.Neg():
            return number_type(expression.this, types)
        case exp.Add() | exp.Sub() | exp.Mul():
            return _computed(expression, types)
        case exp.Case():
            results = [branch.args["true"] for branch in expression.args["ifs"]]
            return _widest([*results, expression.args.get("default") or exp.null()], types)
        case exp.If():
            return _widest([expression.args["true"], expression.args.get("false") or exp.null()], types)
        case exp.Cast():
            name = expression.to.sql(dialect="spark").lower().replace(" ", "")
            return name if name in INTEGERS or decimal_of(name) else None
    if function_name(expression) in ("coalesce", "nvl", "ifnull"):
        return _widest(expression.expressions, types)
    return None


def _computed(expression: exp.Binary, types: Mapping[str, str]) -> str | None:
    sides = [_unwrapped(expression.this), _unwrapped(expression.expression)]
    named = [number_type(side, types) for side in sides]
    if any(name is None for name in named):
        return None
    left, right = (name for name in named if name is not None)
    if left in INTEGERS and right in INTEGERS:
        return max(left, right, key=lambda name: _DIGITS[name])
    (p1, s1), (p2, s2) = (
        _side_as_decimal(side, name) for side, name in zip(sides, (left, right), strict=True)
    )
    if isinstance(expression, exp.Mul):
        return _bounded(p1 + p2 + 1, s1 + s2)
    scale = max(s1, s2)
    return _bounded(max(p1 - s1, p2 - s2) + scale + 1, scale)


def _unwrapped(expression: exp.Expr) -> exp.Expr:
    return _unwrapped(expression.this) if isinstance(expression, exp.Paren) else expression


def _side_as_decimal(side: exp.Expr, name: str) -> tuple[int, int]:
    """The decimal that a side of an operator becomes; a literal takes no more digits than it has."""
    literal = literal_of(side)
    return (len(str(int(literal.name))), 0) if literal is not None and name in INTEGERS else as_decimal(name)


def as_decimal(name: str) -> tuple[int, int]:
    """Precision and scale of a number's type where it meets a decimal.

    >>> as_decimal("int"), as_decimal("decimal(7,2)")
    ((10, 0), (7, 2))
    """
    return decimal_of(name) or (_DIGITS[name], 0)


def _widest(expressions: Sequence[exp.Expr], types: Mapping[str, str]) -> str | None:
    """The common type of alternatives, of which NULL has none."""
    named = [number_type(part, types) for part in expressions if not isinstance(_unwrapped(part), exp.Null)]
    known = [name for name in named if name is not None]
    if not known or len(known) < len(named):
        return None
    if all(name in INTEGERS for name in known):
        return max(known, key=lambda name: _DIGITS[name])
    widths = [as_decimal(name) for name in known]
    scale = max(s for _, s in widths)
    digits = max(p - s for p, s in widths) + scale
    return f"decimal({digits},{scale})" if digits <= _MOST_DIGITS else None


def _bounded(digits: int, scale: int) -> str | None:
    """A decimal within Spark's bound; how it shortens a longer scale than this depends on a setting."""
    if digits <= _MOST_DIGITS:
        return f"decimal({digits},{scale})"
    return f"decimal({_MOST_DIGITS},{scale})" if scale <= _LEAST_SCALE else None


def _aggregated(aggregate: exp.Expr, types: Mapping[str, str]) -> str | None:
    arguments = aggregate.args.get("expressions") or [None]
    match function_name(aggregate):
        case "count" | "count_if":
            return "bigint"
        case "min" | "max":
            return type_of(arguments[0], types)
        case "sum":
            return sum_type(type_of(arguments[0], types) or "")
    return None


def sum_type(type_: str) -> str | None:
    """The type of the sum of values of a type.

    >>> sum_type("int"), sum_type("decimal(15,2)"), sum_type("double")
    ('bigint', 'decimal(25,2)', None)
    """
    decimal = decimal_of(type_)
    if decimal is not None:
        return f"decimal({min(decimal[0] + 10, _MOST_DIGITS)},{decimal[1]})"
    return "bigint" if type_ in INTEGERS else type_ if type_ in (EXACT, DECIMAL) else None


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
