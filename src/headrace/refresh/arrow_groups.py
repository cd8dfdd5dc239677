"""Groups of Arrow rows, for the aggregates that Arrow and Spark compute alike: of integers and decimals."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal, localcontext

import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from headrace.plan.expressions import function_name
from headrace.plan.nodes import Aggregate
from headrace.refresh.arrow_kinds import NotInArrow, is_known
from headrace.refresh.arrow_values import column_of

# Far from where Arrow's sums, which do not check, would wrap around.
_MOST_INTEGER = 1 << 62
_MOST_DIGITS = 38
_AVERAGE = ("sum", "count")
_ALONE: Mapping[str, Callable[[pa.ChunkedArray], pa.Scalar]] = {
    "sum": lambda values: pc.sum(values, min_count=1),
    "count": pc.count,
    "count_distinct": pc.count_distinct,
    "min": pc.min,
    "max": pc.max,
}
# Spark averages shorter decimals by way of floats.
_LEAST_EXACT = 12


def aggregated(node: Aggregate, rows: pa.Table) -> pa.Table:
    """Group rows, NULL being a group, and compute the aggregates of each."""
    keys = {f"k{place}": rows[key] for place, key in enumerate(node.keys)}
    parts = {f"a{place}": _prepared(item, rows) for place, (_, item) in enumerate(node.aggregates)}
    only_valid = pc.CountOptions(mode="only_valid")
    options = {
        "sum": pc.ScalarAggregateOptions(min_count=1),
        "count": only_valid,
        "count_distinct": only_valid,
    }
    listed = [
        (own, function, options.get(function)) for own, part in parts.items() for function in part.functions
    ]
    values = {own: part.values for own, part in parts.items()}
    if not keys:
        return _of_all(node, parts)
    grouped = pa.table(keys | values).group_by(list(keys), use_threads=False).aggregate(listed)
    found = [part.finish([grouped[f"{own}_{one}"] for one in part.functions]) for own, part in parts.items()]
    return pa.table([*(grouped[key] for key in keys), *found], names=list(node.columns))


def _of_all(node: Aggregate, parts: Mapping[str, _Part]) -> pa.Table:
    """Aggregate all rows, which are one group even where there are none."""
    if not parts:
        raise NotInArrow("rows without columns, which Arrow does not count")
    found = []
    for part in parts.values():
        # Not by way of Python, which has no year beyond 9999.
        values = [pa.repeat(_ALONE[one](part.values), 1) for one in part.functions]
        kinds = [pa.int64() if one.startswith("count") else part.values.type for one in part.functions]
        typed = [pa.chunked_array([value.cast(kind)]) for value, kind in zip(values, kinds, strict=True)]
        found.append(part.finish(typed))
    return pa.table(found, names=list(node.columns))


@dataclass(frozen=True)
class _Part:
    """An aggregate as functions of Arrow over a column, and the type that Spark gives it."""

    functions: tuple[str, ...]
    values: pa.ChunkedArray
    type: pa.DataType

    def finish(self, found: Sequence[pa.ChunkedArray]) -> pa.ChunkedArray:
        if self.functions == _AVERAGE:
            sums, counts = found
            return _average(sums, counts, self.type)
        return found[0].cast(self.type)


def _prepared(aggregate: exp.Expr, rows: pa.Table) -> _Part:
    name, arguments = function_name(aggregate), aggregate.args.get("expressions") or []
    if name not in ("count", "sum", "avg", "min", "max") or len(arguments) != 1:
        raise NotInArrow(f"the aggregate {name}")
    (argument,) = arguments
    if isinstance(argument, exp.Distinct):
        return _distinct(name, argument, rows)
    if name == "count":
        every = isinstance(argument, (exp.Star, exp.Literal))
        ones = pa.chunked_array([pa.repeat(pa.scalar(1), rows.num_rows)], pa.int64())
        return _Part(("count",), ones if every else column_of(argument, rows), pa.int64())
    values = column_of(argument, rows)
    if name in ("min", "max"):
        # Arrow has no extremum of booleans or texts by group that is sure to be Spark's.
        kinds = pa.types.is_integer, pa.types.is_decimal, pa.types.is_date
        if not any(is_of(values.type) for is_of in kinds):
            raise NotInArrow("an extremum of another type")
        return _Part((name,), values, values.type)
    part = _summed(values)
    if name == "sum":
        return part
    kind = values.type
    if not pa.types.is_decimal(kind) or not _LEAST_EXACT <= kind.precision <= _MOST_DIGITS - 4:
        raise NotInArrow("an average that is no decimal, or that Spark computes by floats, or shortens")
    return _Part(_AVERAGE, part.values, pa.decimal128(kind.precision + 4, kind.scale + 4))


def _distinct(name: str, argument: exp.Distinct, rows: pa.Table) -> _Part:
    if name != "count" or len(argument.expressions) != 1 or argument.args.get("on") is not None:
        raise NotInArrow("an aggregate of distinct values")
    values = column_of(argument.expressions[0], rows)
    if not is_known(values.type):
        raise NotInArrow("values that are compared otherwise")
    return _Part(("count_distinct",), values, pa.int64())


def _summed(values: pa.ChunkedArray) -> _Part:
    if pa.types.is_decimal(values.type):
        digits = min(_MOST_DIGITS, values.type.precision + 10)
        wide, room = pa.decimal128(_MOST_DIGITS, values.type.scale), 10 ** (digits - values.type.scale)
        result = pa.decimal128(digits, values.type.scale)
    elif pa.types.is_integer(values.type):
        wide, room, result = pa.int64(), _MOST_INTEGER, pa.int64()
    else:
        raise NotInArrow("a sum of another type")
    exact = values.cast(wide)
    if _largest(exact) * len(exact) >= room:
        raise NotInArrow("a sum that may not fit")
    return _Part(("sum",), exact, result)


def _average(sums: pa.ChunkedArray, counts: pa.ChunkedArray, type_: pa.DataType) -> pa.ChunkedArray:
    """Divide as Spark does: to 38 places, and then to those of the result, halves away from zero."""
    with localcontext() as context:
        context.prec, context.rounding = 3 * _MOST_DIGITS, ROUND_HALF_UP
        wide, last = Decimal(1).scaleb(-_MOST_DIGITS), Decimal(1).scaleb(-type_.scale)
        averages = [
            None if total is None else (total / count).quantize(wide).quantize(last)
            for total, count in zip(sums.to_pylist(), counts.to_pylist(), strict=True)
        ]
    return pa.chunked_array([pa.array(averages, type_)], type_)


def _largest(values: pa.ChunkedArray) -> int | Decimal:
    found = pc.min_max(values)
    low, high = found["min"].as_py(), found["max"].as_py()
    return 0 if low is None else max(abs(low), abs(high))
