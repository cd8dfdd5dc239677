"""Groups maintained by state: new = old + Δ, without reading the group's rows.

COUNT and SUM are groups in the algebraic sense: what a row adds, its deletion takes away. Beside the number
of rows, which tells when a group is gone, each SUM keeps its number of values, since the sum of none is NULL.
Only integers and decimals take part, whose sums are exact in any order; floats are recomputed by key. A query
without GROUP BY has one group, which is there even when it has no rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cached_property, lru_cache

from sqlglot import exp

from headrace.delta.differ import Differ
from headrace.delta.dispatch import RULES
from headrace.delta.keyed import root_groups, shown_keys
from headrace.plan.build import Plan
from headrace.plan.expressions import call, col, conjunction, function_name, number, substitute, wrap
from headrace.plan.hidden import WEIGHT
from headrace.plan.literals import in_place_of_column
from headrace.plan.nodes import Aggregate, Filter, Named, Node, Project
from headrace.plan.render import Binding, render
from headrace.plan.repeatable import unrepeatable_below
from headrace.plan.types import column_types, decimal_of, number_type, sum_type
from headrace.sql.dialect import VerbatimSpark
from headrace.sql.names import TableName

_KEY = "__hr_k"
ROWS = "__hr_rows"
"""How many input rows a group has; a group without any is gone."""
# A decimal this wide times a weight of ten digits fits Spark's 38 digits, whatever the values.
_WIDEST_DECIMAL = 27
# Spark shortens no scale up to this one, however many digits a product has.
_KEPT_SCALE = 6
# Averages of these are exact while their sums stay below the 53 bits of a double.
_SMALL_INTEGERS = frozenset({"tinyint", "smallint", "int", "integer", "byte", "short"})
# The average of decimals up to this wide comes out as Spark's own for groups of up to so many values: both
# round the same quotient, ours after a first rounding that is too fine to matter then.
_WIDEST_AVERAGE, _MOST_AVERAGED = 15, 10**9
# Spark averages shorter decimals by way of floats, as it does integers; these count exactly below this.
_LEAST_EXACT_AVERAGE, _EXACT_FLOATS = 12, 1 << 53


@dataclass(frozen=True)
class StateColumn:
    """One hidden number of a group: `adds` is what one input row adds to it, `type` the Spark type it has."""

    name: str
    type: str
    adds: exp.Expr


@dataclass(frozen=True, eq=False)
class StatePlan:
    """A grouped query by state: new = old + change for each column, and gone where no rows are left."""

    keys: tuple[str, ...]
    columns: tuple[StateColumn, ...]
    outputs: Named
    having: exp.Expr | None
    most: Mapping[str, Decimal]
    """Numbers of the state, whatever their sign, from which on it does not serve."""
    is_at_root: bool
    """Whether every row of the result is a group, and every key one of its columns."""
    _base: Aggregate

    def initial_sql(self, binding: Binding, *, dialect: str = "spark") -> str:
        """The state of all groups, computed in full: the keys and the state columns."""
        return render(self._grouped(self._base.child, number(1)), binding, dialect=dialect)

    @property
    def group_keys(self) -> tuple[str, ...]:
        """The keys by the names that they have below the groups."""
        return self._base.keys

    @cached_property
    def definition(self) -> str:
        """A text that tells one state from another: what is kept, of what."""
        return self.initial_sql(lambda name, _: name.sql)

    def input_change(self, changed: frozenset[TableName]) -> Node | None:
        """The change of the rows that are grouped; None where a change of these sources cannot reach them."""
        return _change_of(self._base.child, changed)

    def change_sql(
        self, changed: frozenset[TableName], binding: Binding, *, dialect: str = "spark"
    ) -> str | None:
        """What to add to the state of each touched group, or None where nothing changed."""
        change = self.input_change(changed)
        if change is None:
            return None
        return render(self._grouped(change, col(WEIGHT)), binding, dialect=dialect)

    def output_sql(self) -> tuple[tuple[str, str], ...]:
        """Each output column with its Spark SQL over keys and state columns."""
        return tuple((name, item.sql(dialect=VerbatimSpark)) for name, item in self.outputs)

    def having_sql(self) -> str | None:
        """The condition over keys and state columns under which a group is shown, if there is one."""
        return None if self.having is None else self.having.sql(dialect=VerbatimSpark)

    def _grouped(self, child: Node, weight: exp.Expr) -> Node:
        sums = tuple((column.name, call("SUM", _weighted(column, weight))) for column in self.columns)
        grouped = Aggregate(child, self._base.keys, sums)
        items: list[tuple[str, exp.Expr]] = [
            (shown, col(key)) for shown, key in zip(self.keys, self._base.keys, strict=True)
        ]
        for column in self.columns:
            # Without keys there is a group, with nothing in it, even where there are no rows.
            total = col(column.name) if self.keys else call("COALESCE", col(column.name), number(0))
            items.append((column.name, exp.cast(total, column.type)))
        return Project(grouped, tuple(items))


def _weighted(column: StateColumn, weight: exp.Expr) -> exp.Expr:
    """What rows of a weight add to a column of the state."""
    adds, decimal = wrap(column.adds), decimal_of(column.type)
    # A weight is a bigint, twenty digits to Spark: as a narrow decimal it leaves room for the value's own.
    factor = exp.cast(weight.copy(), "decimal(10,0)") if decimal else weight.copy()
    product = exp.Mul(this=adds, expression=factor)
    if decimal is None or decimal[0] <= _WIDEST_DECIMAL + 10:
        return product
    # A product that is too large is an error in ANSI mode alone, and else would be left out of the sum.
    fits = exp.LT(this=call("ABS", adds.copy()), expression=number(10 ** (28 - decimal[1])))
    too_large = call("RAISE_ERROR", exp.Literal.string("A value is too large to be kept in a sum."))
    return exp.Case(
        ifs=[
            exp.If(this=exp.EQ(this=weight.copy(), expression=number(1)), true=adds.copy()),
            exp.If(this=exp.EQ(this=weight.copy(), expression=number(-1)), true=exp.Neg(this=adds.copy())),
            exp.If(this=fits, true=product),
        ],
        default=exp.cast(too_large, column.type),
    )


@lru_cache(maxsize=1024)
def _change_of(node: Node, changed: frozenset[TableName]) -> Node | None:
    return Differ(changed, RULES).change(node)


@lru_cache(maxsize=1024)
def state_plan(plan: Plan) -> StatePlan | None:
    """The plan by state of a query that groups at its root; None where an aggregate is no group."""
    above, base = root_groups(plan.root)
    if not isinstance(base, Aggregate):
        return None
    names = shown_keys(above, base.keys)
    return None if names is None else _state(plan, base, names, above, is_at_root=True)


def groups_state(plan: Plan, base: Aggregate) -> StatePlan | None:
    """The state of groups inside a plan, which show their keys and aggregates as they are."""
    names = tuple(f"{_KEY}{place + 1}" for place in range(len(base.keys)))
    return _state(plan, base, names, [], is_at_root=False)


def _state(
    plan: Plan, base: Aggregate, names: tuple[str, ...], above: list[Node], *, is_at_root: bool
) -> StatePlan | None:
    if unrepeatable_below(plan, base.child):
        # What was added with one value might be taken away with another, and nobody would notice.
        return None
    types = column_types(plan, base.child)
    columns = [StateColumn(ROWS, "bigint", number(1))]
    most: dict[str, Decimal] = {}
    values: dict[str, exp.Expr] = {}
    for place, (name, aggregate) in enumerate(base.aggregates):
        kept = _kept(aggregate, types, str(place + 1))
        if kept is None:
            return None
        columns += kept.columns
        values[name] = kept.value
        most |= kept.most
    values = {key: col(shown) for key, shown in zip(base.keys, names, strict=True)} | values
    outputs, tests = _outputs(above, values)
    return StatePlan(names, tuple(columns), outputs, conjunction(tests), most, is_at_root, base)


def _outputs(above: list[Node], values: dict[str, exp.Expr]) -> tuple[Named, list[exp.Expr]]:
    """Carry the aggregates' values up through the row-wise operators at the root."""
    tests: list[exp.Expr] = []
    for node in reversed(above):
        if isinstance(node, Filter):
            tests.append(substitute(node.condition, values))
        elif isinstance(node, Project):
            values = {name: in_place_of_column(substitute(item, values)) for name, item in node.items}
    return tuple(values.items()), tests


def _unfiltered(aggregate: exp.Expr) -> exp.Expr:
    return aggregate.this if isinstance(aggregate, exp.Filter) else aggregate


@dataclass(frozen=True)
class _Kept:
    """The state columns of one aggregate, its value over them, and how large they may be."""

    columns: tuple[StateColumn, ...]
    value: exp.Expr
    most: Mapping[str, Decimal] = field(default_factory=dict)


def _kept(aggregate: exp.Expr, types: dict[str, str], label: str) -> _Kept | None:
    test = aggregate.expression.this if isinstance(aggregate, exp.Filter) else None
    name = function_name(_unfiltered(aggregate))
    arguments = _unfiltered(aggregate).args.get("expressions") or []
    if len(arguments) != 1 or isinstance(arguments[0], exp.Distinct):
        return None
    argument: exp.Expr = arguments[0]
    if name == "count" and isinstance(argument, (exp.Star, exp.Literal)):
        if test is None:
            return _Kept((), col(ROWS))
        name, argument, test = "count_if", test, None
    if test is not None:
        argument = exp.Case(ifs=[exp.If(this=test.copy(), true=argument.copy())])
    if name in ("count", "count_if"):
        counted = argument if name == "count_if" else _not_null(argument)
        column = StateColumn(f"__hr_n{label}", "bigint", _one_where(counted))
        return _Kept((column,), col(column.name))
    if name not in ("sum", "avg"):
        return None
    return _summed(name, argument, number_type(argument, types) or "", label)


def _summed(name: str, argument: exp.Expr, type_: str, label: str) -> _Kept | None:
    kept, decimal = sum_type(type_), decimal_of(type_)
    if kept is None or (decimal and decimal[0] > _WIDEST_DECIMAL and decimal[1] > _KEPT_SCALE):
        return None
    # A zero of the same scale and no more digits, which leaves the type as it is.
    zero = exp.Literal.number(f"0.{'0' * decimal[1]}") if decimal and decimal[1] else number(0)
    total = StateColumn(f"__hr_sum{label}", kept, call("COALESCE", argument.copy(), zero))
    count = StateColumn(f"__hr_n{label}", "bigint", _one_where(_not_null(argument)))
    value: exp.Expr = col(total.name)
    most: dict[str, Decimal] = {}
    if name == "avg":
        averaged = _averaged(value, col(count.name), type_)
        if averaged is None:
            return None
        value, largest = averaged
        most[count.name if largest is None else total.name] = largest or Decimal(_MOST_AVERAGED)
    some = exp.If(this=exp.GT(this=col(count.name), expression=number(0)), true=value)
    return _Kept((total, count), exp.Case(ifs=[some]), most)


def _averaged(total: exp.Expr, count: exp.Expr, type_: str) -> tuple[exp.Expr, Decimal | None] | None:
    """The average as Spark computes it, and the sum from which on that is not exact, if it is by floats."""
    decimal = decimal_of(type_)
    if decimal is None:
        if type_ not in _SMALL_INTEGERS:
            return None
        return exp.Div(this=exp.cast(total, "double"), expression=count), Decimal(_EXACT_FLOATS)
    digits, scale = decimal
    if digits > _WIDEST_AVERAGE:
        return None
    result = f"decimal({digits + 4},{scale + 4})"
    if digits < _LEAST_EXACT_AVERAGE:
        # The sum of the digits without their point, averaged and then moved back, all as floats.
        unscaled = exp.cast(exp.Mul(this=total, expression=number(10**scale)), "double")
        average = exp.Div(this=unscaled, expression=exp.cast(count, "double"))
        back = exp.Div(this=average, expression=exp.cast(number(10**scale), "double"))
        return exp.cast(back, result), Decimal(_EXACT_FLOATS).scaleb(-scale)
    return exp.cast(exp.Div(this=total, expression=exp.cast(count, "decimal(20,0)")), result), None


def _not_null(argument: exp.Expr) -> exp.Expr:
    return exp.Not(this=exp.Is(this=wrap(argument.copy()), expression=exp.null()))


def _one_where(condition: exp.Expr) -> exp.Expr:
    return exp.Case(ifs=[exp.If(this=condition.copy(), true=number(1))], default=number(0))
