"""Functions of texts, whole numbers, dates and times over Arrow columns, where Arrow and Spark give the same.

Each takes the values of its arguments. What it does not know, such as letters that languages write in
capitals each in its own way, or hours in another zone than UTC, it leaves to Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from headrace.plan.expressions import function_name
from headrace.refresh.arrow_kinds import NotInArrow, Value, alike, checked

_UTC = frozenset({"utc", "etc/utc", "gmt", "etc/gmt", "z", "+00:00", "zulu"})
_PERIODS = {
    **dict.fromkeys(("year", "yyyy", "yy"), "year"),
    "quarter": "quarter",
    **dict.fromkeys(("month", "mm", "mon"), "month"),
    "week": "week",
}
_SPANS = {**_PERIODS, **dict.fromkeys(("day", "dd"), "day"), "hour": "hour", "minute": "minute"}
# Whether a user's own functions come before the built-in ones of their name.
_ORDER = "spark.sql.functionResolution.sessionOrder"
_ZONE = "spark.sql.session.timeZone"
# The days of the years 1 to 9999: Arrow wraps years around that are far beyond.
_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896

_settings: ContextVar[Callable[[str], str]] = ContextVar("settings", default=lambda _: "")


@contextmanager
def in_session(setting: Callable[[str], str]) -> Iterator[None]:
    """Let functions mean what a session's settings say, which are asked for when one is met."""
    token = _settings.set(setting)
    try:
        yield
    finally:
        _settings.reset(token)


def built_in(expression: exp.Expr) -> str:
    """The name of the built-in function that an expression calls; none where a user's own may come first."""
    name = (function_name(expression) or "").lower()
    return "" if name and _settings.get()(_ORDER).lower() == "first" else name


def known_function(expression: exp.Expr) -> tuple[Callable[..., Value], Sequence[exp.Expr]] | None:
    """Give the function that an expression calls, and its arguments; None where it is none of those here."""
    match expression:
        case exp.Mod() | exp.DPipe():
            return _OPERATORS[type(expression)], (expression.this, expression.expression)
        case exp.Trim() if not any(expression.args.get(key) for key in ("expression", "position")):
            return _FUNCTIONS["trim", 1], (expression.this,)
        case exp.Extract(this=exp.Var()) if expression.name.lower() in _PARTS:
            return _PARTS[expression.name.lower()], (expression.expression,)
        case exp.Anonymous():
            name, arguments = built_in(expression), expression.expressions
            function = _FUNCTIONS.get((name, len(arguments))) or _OF_MANY.get(name)
            return (function, arguments) if function is not None and arguments else None
    return None


def date_of(value: Value) -> Value:
    """The day of a time, or a date itself."""
    days = value
    if value.type != pa.date32():
        days = pc.floor_temporal(_clock(value), unit="day").cast(pa.date32())
    number = days.cast(pa.int32())
    if pc.any(pc.or_(pc.less(number, _FIRST_DAY), pc.greater(number, _LAST_DAY))).as_py():
        raise NotInArrow("a day of a year beyond 9999")
    return days


def _clock(value: Value) -> Value:
    """What a clock shows at a time."""
    if not pa.types.is_timestamp(value.type):
        raise NotInArrow("a time of another kind")
    if value.type.tz is not None and (value.type.tz != "UTC" or _settings.get()(_ZONE).lower() not in _UTC):
        raise NotInArrow("a time in another zone")
    return value.cast(pa.timestamp(value.type.unit))


def _text(value: Value) -> Value:
    if not pa.types.is_string(value.type):
        raise NotInArrow("a text of another kind")
    return value


def valid_text(value: Value) -> Value:
    """Refuse bytes that are no text, of which Spark counts letters in its own way."""
    return checked(lambda: _text(value).cast(pa.binary()).cast(pa.string()))


def _integer(value: Value) -> Value:
    if not pa.types.is_signed_integer(value.type):
        raise NotInArrow("a number of another kind")
    return value


def _in_ascii(change: Callable[[Value], Value], value: Value) -> Value:
    """Change letters of which there is no doubt what they become."""
    if not pc.all(pc.string_is_ascii(_text(value)), min_count=0).as_py():
        raise NotInArrow("letters beyond ASCII")
    return change(value)


def _length(value: Value) -> Value:
    return pc.utf8_length(valid_text(value)).cast(pa.int32())


def _trimmed(trim: Callable[..., Value], value: Value) -> Value:
    return trim(_text(value), characters=" ")


def _joined(*values: Value) -> Value:
    return pc.binary_join_element_wise(*map(_text, values), "", null_handling="emit_null")


def _remainder(value: Value, divisor: Value) -> Value:
    """What is left of a division, with the sign of what is divided."""
    left, right = alike([_integer(value), _integer(divisor)])
    if pc.any(pc.equal(right, 0)).as_py():
        raise NotInArrow("a remainder of nothing")
    # A quotient is cut off here as in Spark; that of the lowest number by -1 has no room, and leaves nothing.
    one, minus = pa.scalar(1, right.type), pa.scalar(-1, right.type)
    divisors = pc.if_else(pc.equal(right, minus), one, right)
    return pc.subtract(left, pc.multiply(pc.divide(left, divisors), divisors))


def _absolute(value: Value) -> Value:
    return checked(lambda: pc.abs_checked(_integer(value)))


def _null_if(value: Value, other: Value) -> Value:
    same = pc.fill_null(pc.equal(*alike([value, other])), fill_value=False)
    return pc.if_else(same, pa.scalar(None, value.type), value)


def _extreme(choose: Callable[..., Value], *values: Value) -> Value:
    found = alike(values)
    if pa.types.is_boolean(found[0].type) or pa.types.is_timestamp(found[0].type):
        raise NotInArrow("the larger of such values")
    return choose(*found, skip_nulls=True)


def _part_of_date(part: Callable[[Value], Value], value: Value) -> Value:
    return part(date_of(value)).cast(pa.int32())


def _part_of_time(part: Callable[[Value], Value], value: Value) -> Value:
    return part(_clock(value)).cast(pa.int32())


def _first_day(value: Value, unit: Value) -> Value:
    return pc.floor_temporal(date_of(value), unit=_named(unit, _PERIODS))


def _start(unit: Value, value: Value) -> Value:
    """The first moment of a period; that of a time without a zone is in the session's zone by then."""
    if not pa.types.is_timestamp(value.type) or value.type.tz is None:
        raise NotInArrow("a time of another kind")
    date_of(value)
    return pc.floor_temporal(_clock(value), unit=_named(unit, _SPANS)).cast(value.type)


def _named(unit: Value, names: Mapping[str, str]) -> str:
    name = names.get(str(unit.as_py()).lower()) if isinstance(unit, pa.Scalar) else None
    if name is None:
        raise NotInArrow("a period of another kind")
    return name


def _days_between(end: Value, start: Value) -> Value:
    return pc.subtract(date_of(end).cast(pa.int32()), date_of(start).cast(pa.int32()))


_PARTS: Mapping[str, Callable[[Value], Value]] = {
    "year": partial(_part_of_date, pc.year),
    "quarter": partial(_part_of_date, pc.quarter),
    "month": partial(_part_of_date, pc.month),
    "day": partial(_part_of_date, pc.day),
    "hour": partial(_part_of_time, pc.hour),
    "minute": partial(_part_of_time, pc.minute),
}
# By name and number of arguments: some names take more of them, and then mean more.
_FUNCTIONS: Mapping[tuple[str, int], Callable[..., Value]] = {
    **dict.fromkeys((("upper", 1), ("ucase", 1)), partial(_in_ascii, pc.ascii_upper)),
    **dict.fromkeys((("lower", 1), ("lcase", 1)), partial(_in_ascii, pc.ascii_lower)),
    **dict.fromkeys((("length", 1), ("len", 1), ("char_length", 1), ("character_length", 1)), _length),
    ("trim", 1): partial(_trimmed, pc.utf8_trim),
    ("ltrim", 1): partial(_trimmed, pc.utf8_ltrim),
    ("rtrim", 1): partial(_trimmed, pc.utf8_rtrim),
    ("mod", 2): _remainder,
    ("abs", 1): _absolute,
    ("nullif", 2): _null_if,
    **{(name, 1): part for name, part in _PARTS.items()},
    ("dayofmonth", 1): partial(_part_of_date, pc.day),
    ("dayofyear", 1): partial(_part_of_date, pc.day_of_year),
    **dict.fromkeys((("to_date", 1), ("date", 1)), date_of),
    ("trunc", 2): _first_day,
    ("date_trunc", 2): _start,
    **dict.fromkeys((("datediff", 2), ("date_diff", 2)), _days_between),
}
_OF_MANY: Mapping[str, Callable[..., Value]] = {
    "concat": _joined,
    "greatest": partial(_extreme, pc.max_element_wise),
    "least": partial(_extreme, pc.min_element_wise),
}
_OPERATORS: Mapping[type[exp.Expr], Callable[..., Value]] = {exp.Mod: _remainder, exp.DPipe: _joined}
