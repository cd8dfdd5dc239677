"""SQL expressions over Arrow columns, for what Arrow and Spark compute alike; the rest is left to Spark.

Integers, decimals, strings by their bytes, dates, timestamps and booleans are compared; integers and
decimals are added and multiplied, with Spark's types; texts are matched by LIKE and cut, and dates are moved;
functions are in a module of their own. A number that its type has no room for is left to Spark too, which
knows whether that is an error.
"""

from __future__ import annotations

import re
from calendar import monthrange
from collections.abc import Callable, Mapping, Sequence
from datetime import date, timedelta
from decimal import ROUND_HALF_UP, Decimal, localcontext
from functools import reduce

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from headrace.plan.literals import literal_of, literal_type
from headrace.plan.types import decimal_of, number_type
from headrace.refresh.arrow_functions import built_in, date_of, known_function, valid_text
from headrace.refresh.arrow_kinds import (
    MOST_DIGITS,
    NotInArrow,
    Value,
    alike,
    arrow_type,
    checked,
    checked_cast,
    type_name,
)

_COMPARISONS: Mapping[type[exp.Expr], Callable[[Value, Value], Value]] = {
    exp.EQ: pc.equal,
    exp.NEQ: pc.not_equal,
    exp.LT: pc.less,
    exp.LTE: pc.less_equal,
    exp.GT: pc.greater,
    exp.GTE: pc.greater_equal,
}
_ARITHMETIC: Mapping[type[exp.Expr], Callable[[Value, Value], Value]] = {
    exp.Add: pc.add_checked,
    exp.Sub: pc.subtract_checked,
    exp.Mul: pc.multiply_checked,
}
_WIDEST = 76
# How counts stand in a quotient, how wide a sum over such a count may be, how large the count, and how many
# quotients are computed here, one by one.
_COUNT_TYPE = (20, 0)
_MOST_SUMMED, _MOST_COUNTED, _MOST_DIVIDED = 25, 10**9, 100_000
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_COUNT = re.compile(r"[1-9]\d{0,5}", re.ASCII)


def value_of(expression: exp.Expr, rows: pa.Table) -> Value:
    """Compute an expression for every row; a literal stays one value."""
    match expression:
        case exp.Column():
            return rows[expression.name]
        case exp.Paren():
            return value_of(expression.this, rows)
        case exp.Boolean():
            return pa.scalar(bool(expression.this))
        case exp.Literal():
            return _literal(expression)
        case exp.Neg(this=exp.Literal(is_string=False)):
            return _number(expression)
        case exp.Cast(this=exp.Literal(is_string=True)) if _is_date(expression.to):
            return _date(expression.this)
        case exp.Cast() if _is_date(expression.to):
            return date_of(value_of(expression.this, rows))
        case exp.Add(expression=exp.Interval()) | exp.Sub(expression=exp.Interval()):
            return _moved_date(expression, rows)
        case exp.Like(expression=exp.Literal(is_string=True)):
            return _like(expression, rows)
        case exp.Substring():
            return _part(expression, rows)
        case exp.Cast(this=exp.Div(expression=exp.Cast(to=to))) if _is_decimal(to, *_COUNT_TYPE):
            return _averaged(expression, rows)
        case exp.Cast() if literal_of(expression.this) is not None:
            if literal_type(expression.this) != number_type(expression, {}):
                raise NotInArrow("a literal of another type")
            return _number(expression.this)
        case exp.And() | exp.Or():
            join = pc.and_kleene if isinstance(expression, exp.And) else pc.or_kleene
            return join(truth_of(expression.this, rows), truth_of(expression.expression, rows))
        case exp.Not():
            return pc.invert(truth_of(expression.this, rows))
        case exp.Is(expression=exp.Null()):
            return pc.is_null(column_of(expression.this, rows))
        case exp.In() if not expression.args.get("query") and not expression.args.get("unnest"):
            _refuse_chains(expression)
            # All of them are compared as one type.
            value, *others = alike(
                [value_of(one, rows) for one in (expression.this, *expression.expressions)]
            )
            return reduce(pc.or_kleene, [pc.equal(value, other) for other in others])
        case exp.Between() if not expression.args.get("symmetric"):
            _refuse_chains(expression)
            low = exp.GTE(this=expression.this, expression=expression.args["low"])
            high = exp.LTE(this=expression.this, expression=expression.args["high"])
            return pc.and_kleene(value_of(low, rows), value_of(high, rows))
        case exp.Case() if expression.this is None:
            branches = [(one.this, one.args["true"]) for one in expression.args["ifs"]]
            return _chosen(branches, expression.args.get("default"), rows)
        case exp.If():
            return _chosen([(expression.this, expression.args["true"])], expression.args.get("false"), rows)
        case exp.EQ() | exp.NEQ() | exp.LT() | exp.LTE() | exp.GT() | exp.GTE():
            _refuse_chains(expression)
            return _compared(
                _COMPARISONS[type(expression)],
                value_of(expression.this, rows),
                value_of(expression.expression, rows),
            )
        case exp.Add() | exp.Sub() | exp.Mul():
            return _computed(expression, rows)
    known = known_function(expression)
    if known is not None:
        function, arguments = known
        return function(*(value_of(argument, rows) for argument in arguments))
    if built_in(expression) in ("coalesce", "nvl", "ifnull"):
        return pc.coalesce(*alike([value_of(part, rows) for part in expression.expressions]))
    raise NotInArrow(type(expression).__name__)


def _is_decimal(type_: exp.Expr, digits: int, scale: int) -> bool:
    return decimal_of(type_.sql(dialect="spark").lower().replace(" ", "")) == (digits, scale)


def _averaged(expression: exp.Cast, rows: pa.Table) -> pa.ChunkedArray:
    """A sum of decimals divided by a count, with four more places, halves away from zero.

    Spark rounds the quotient twice, which makes no difference for so short a sum and so few values.
    """
    quotient, name = expression.this, number_type(expression, {})
    total, count = column_of(quotient.this, rows), column_of(quotient.expression.this, rows)
    kind, decimal = total.type, decimal_of(name or "")
    if decimal is None or not pa.types.is_decimal(kind) or kind.precision > _MOST_SUMMED:
        raise NotInArrow("a quotient of another kind")
    if count.type != pa.int64() or decimal[1] != kind.scale + 4 or rows.num_rows > _MOST_DIVIDED:
        raise NotInArrow("a quotient of another kind")
    with localcontext() as context:
        context.prec, context.rounding = 3 * MOST_DIGITS, ROUND_HALF_UP
        last, most = Decimal(1).scaleb(-decimal[1]), Decimal(10) ** (decimal[0] - decimal[1])
        found: list[Decimal | None] = []
        for value, number in zip(total.to_pylist(), count.to_pylist(), strict=True):
            if value is None or number is None:
                found.append(None)
                continue
            if not 0 < number <= _MOST_COUNTED:
                raise NotInArrow("a quotient by such a number")
            average = Decimal(value / number).quantize(last)
            if abs(average) >= most:
                raise NotInArrow("a quotient that does not fit")
            found.append(average)
    type_ = arrow_type(name or "")
    return pa.chunked_array([pa.array(found, type_)], type_)


def _is_date(type_: exp.Expr) -> bool:
    return isinstance(type_, exp.DataType) and type_.this is exp.DataType.Type.DATE


def _date(literal: exp.Literal) -> pa.Scalar:
    if not _DATE.fullmatch(literal.name):
        raise NotInArrow("a date written otherwise")
    try:
        return pa.scalar(date.fromisoformat(literal.name), pa.date32())
    except ValueError as error:
        raise NotInArrow(str(error)) from error


def _moved_date(expression: exp.Binary, rows: pa.Table) -> pa.Scalar:
    """A literal date some days, months or years later or earlier; the day stays within its month."""
    start, interval = value_of(expression.this, rows), expression.expression
    unit, count = str(interval.args.get("unit") or "").lower(), interval.this
    if not isinstance(count, exp.Literal) or not _COUNT.fullmatch(count.name):
        raise NotInArrow("an interval written otherwise")
    if not isinstance(start, pa.Scalar) or start.type != pa.date32():
        raise NotInArrow("a moved column")
    number = int(count.name) * (-1 if isinstance(expression, exp.Sub) else 1)
    day = start.as_py()
    if not isinstance(day, date):
        raise NotInArrow("no date to move")
    try:
        if unit == "day":
            return pa.scalar(day + timedelta(days=number), pa.date32())
        if unit not in ("month", "year"):
            raise NotInArrow("an interval of another unit")
        months = day.year * 12 + day.month - 1 + number * (12 if unit == "year" else 1)
        year, month = months // 12, months % 12 + 1
        last = monthrange(year, month)[1]
        return pa.scalar(date(year, month, min(day.day, last)), pa.date32())
    except (ValueError, OverflowError) as error:
        raise NotInArrow(str(error)) from error


def _like(expression: exp.Like, rows: pa.Table) -> Value:
    _refuse_chains(expression)
    value, pattern = value_of(expression.this, rows), expression.expression.name
    if not pa.types.is_string(value.type) or "\\" in pattern or "'" in pattern:
        raise NotInArrow("a pattern with escapes")
    found = pc.match_like(valid_text(value), pattern)
    return pc.invert(found) if expression.args.get("negate") else found


def _part(expression: exp.Substring, rows: pa.Table) -> Value:
    """Some characters from a place that is counted from 1."""
    value, places = value_of(expression.this, rows), [expression.args.get(n) for n in ("start", "length")]
    counts = [int(p.name) for p in places if isinstance(p, exp.Literal) and _COUNT.fullmatch(p.name)]
    if len(counts) < 2 or not pa.types.is_string(value.type):
        raise NotInArrow("a part of a text, found otherwise")
    first, length = counts
    return pc.utf8_slice_codeunits(value, start=first - 1, stop=first - 1 + length)


def truth_of(expression: exp.Expr, rows: pa.Table) -> Value:
    """Compute a condition, which may be unknown."""
    value = value_of(expression, rows)
    if not pa.types.is_boolean(value.type):
        raise NotInArrow("a condition that is no boolean")
    return value


def column_of(expression: exp.Expr, rows: pa.Table) -> pa.ChunkedArray:
    """Compute an expression as a column, as long as the rows."""
    value = value_of(expression, rows)
    if isinstance(value, pa.Scalar):
        return pa.chunked_array([pa.repeat(value, rows.num_rows)], value.type)
    return value


def _literal(literal: exp.Literal) -> pa.Scalar:
    if literal.is_string:
        if "\\" in literal.name or "'" in literal.name:
            raise NotInArrow("a text with escapes")
        return pa.scalar(literal.name, pa.string())
    return _number(literal)


def _number(expression: exp.Expr) -> pa.Scalar:
    literal, name = literal_of(expression), literal_type(expression)
    if literal is None or name is None:
        raise NotInArrow("a float")
    sign = "-" if isinstance(expression, exp.Neg) else ""
    text = f"{sign}{literal.name}"
    return pa.scalar(Decimal(text) if decimal_of(name) else int(text), arrow_type(name))


def _refuse_chains(expression: exp.Expr) -> None:
    """Leave `a = b < c` to Spark, which groups such chains otherwise than the parser of this tree."""
    if any(isinstance(part, (exp.Predicate, exp.Not)) for part in expression.iter_expressions()):
        raise NotInArrow("comparisons in a row")


def _chosen(branches: Sequence[tuple[exp.Expr, exp.Expr]], default: exp.Expr | None, rows: pa.Table) -> Value:
    """CASE: the first branch whose condition is true, and else the default, or NULL."""
    results, masks = [*(result for _, result in branches), default], _taken(branches, rows)
    values = [
        _where(mask, result, rows)
        for mask, result in zip(masks, results, strict=True)
        if result is not None and not isinstance(result, exp.Null)
    ]
    if not values:
        raise NotInArrow("a CASE of NULLs")
    columns = iter(alike(values))
    chosen: Value = pa.scalar(None, alike(values)[0].type)
    for mask, result in zip(masks, results, strict=True):
        if result is not None and not isinstance(result, exp.Null):
            chosen = pc.if_else(mask, next(columns), chosen)
    if isinstance(chosen, pa.Scalar):
        raise NotInArrow("a CASE of one value")
    return chosen


def _taken(branches: Sequence[tuple[exp.Expr, exp.Expr]], rows: pa.Table) -> list[pa.ChunkedArray]:
    """Which rows take each branch, and which the default."""
    masks, others = [], column_of(exp.true(), rows)
    for condition, _ in branches:
        test = truth_of(condition, rows)
        if isinstance(test, pa.Scalar):
            raise NotInArrow("a condition without columns")
        test = pc.fill_null(test, fill_value=False)
        masks.append(pc.and_(others, test))
        others = pc.and_(others, pc.invert(test))
    return [*masks, others]


def _where(mask: pa.ChunkedArray, expression: exp.Expr, rows: pa.Table) -> pa.ChunkedArray:
    """A column of which only some rows matter: a quotient may not be there for others."""
    if expression.find(exp.Div) is None:
        return column_of(expression, rows)
    found = column_of(expression, rows.filter(mask))
    places = np.cumsum(mask.to_numpy()) - 1
    return found.take(pa.array(places, mask=~mask.to_numpy()))


def _compared(compare: Callable[[Value, Value], Value], left: Value, right: Value) -> Value:
    kinds = left.type, right.type
    if not all(map(pa.types.is_decimal128, kinds)):
        return compare(*alike([left, right]))
    scale, whole = max(kind.scale for kind in kinds), max(kind.precision - kind.scale for kind in kinds)
    if whole + scale <= MOST_DIGITS:
        return compare(*alike([left, right]))
    if whole + scale >= _WIDEST:
        raise NotInArrow("numbers too wide to be compared")
    # Where no type has room for both, Spark rounds, or not, as it is set: only what comes out alike counts.
    exact = [_as_wide(side).cast(pa.decimal256(whole + scale, scale)) for side in (left, right)]
    room = pa.scalar(Decimal(10) ** (MOST_DIGITS - scale), pa.decimal256(whole + scale + 1, scale))
    if any(pc.any(pc.greater_equal(pc.abs(side), room)).as_py() for side in exact):
        raise NotInArrow("numbers that no common type has room for")
    rounded = [
        pc.round(side, ndigits=MOST_DIGITS - whole, round_mode="half_towards_infinity") for side in exact
    ]
    found, other = compare(*exact), compare(*rounded)
    if not pc.all(pc.equal(found, other), min_count=0).as_py():
        raise NotInArrow("numbers that differ in digits which Spark may leave out")
    return found


def _computed(expression: exp.Binary, rows: pa.Table) -> Value:
    types = {field.name: type_name(field.type) for field in rows.schema}
    name = number_type(expression, types)
    if name is None:
        raise NotInArrow("a number of unknown type")
    sides = [value_of(side, rows) for side in (expression.this, expression.expression)]
    operate, decimal = _ARITHMETIC[type(expression)], decimal_of(name)
    if decimal is None:
        wide = [side.cast(pa.int64()) for side in sides]
        return checked(lambda: operate(*wide).cast(arrow_type(name)))
    exact = [side if pa.types.is_decimal(side.type) else _as_decimal(side) for side in sides]
    if decimal[0] >= MOST_DIGITS:
        # No digit after the point is lost, as the type is known: only a number that is too large is refused.
        exact = [_as_wide(side) for side in exact]
    return checked(lambda: operate(*exact).cast(arrow_type(name)))


def _as_wide(value: Value) -> Value:
    return value.cast(pa.decimal256(value.type.precision, value.type.scale))


def _as_decimal(value: Value) -> Value:
    return checked_cast(value, pa.decimal128(19, 0))
