"""GROUP BY and aggregates inside expressions to one aggregate with a column for each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot import exp

from headrace.plan.context import Context, extend
from headrace.plan.expressions import call, col, function_name, is_aggregate_call, number, rewrite
from headrace.plan.nodes import Aggregate, Constant, Join, Named, Node
from headrace.plan.rewrites.subqueries import lift
from headrace.plan.scope import Unplannable


@dataclass(frozen=True)
class Grouping:
    """The expressions that GROUP BY names, and the sets of them that are grouped by."""

    keys: tuple[exp.Expr, ...]
    sets: tuple[tuple[int, ...], ...] | None = None


def has_aggregate(context: Context, expression: exp.Expr) -> bool:
    """Whether an expression holds an aggregate that is no window function."""
    return bool(_aggregate_calls(context, expression))


def _aggregate_calls(context: Context, expression: exp.Expr) -> list[exp.Expr]:
    found: list[exp.Expr] = []

    def visit(node: exp.Expr) -> exp.Expr | None:
        if isinstance(node, exp.Window):
            _visit_window(node, lambda part: found.extend(_aggregate_calls(context, part)))
            return node
        if is_aggregate_call(node, context.aggregates):
            found.append(node)
            return node
        return None

    rewrite(expression, visit)
    return found


def _visit_window(window: exp.Window, see) -> None:  # type: ignore[no-untyped-def]  # a local function
    function = window.this
    while isinstance(function, (exp.IgnoreNulls, exp.RespectNulls, exp.Filter)):
        if isinstance(function, exp.Filter):
            see(function.expression)
        function = function.this
    parts = [*function.args.get("expressions", ()), *(window.args.get("partition_by") or ())]
    for part in [*parts, window.args.get("order"), window.args.get("spec")]:
        if isinstance(part, exp.Expr):
            see(part)


def aggregate(
    context: Context, node: Node, grouping: Grouping, expressions: Sequence[exp.Expr]
) -> tuple[Node, list[exp.Expr]]:
    """Group the node, and rewrite expressions over the groups.

    Before: SELECT a + 1, SUM(b) * 2 FROM t GROUP BY a + 1
    After:  SELECT key, sum * 2
            FROM (SELECT key, SUM(b) AS sum FROM (SELECT *, a + 1 AS key FROM t) GROUP BY key)
    """
    node, keys = lift(context, node, grouping.keys)
    calls = [part for expression in expressions for part in _aggregate_calls(context, expression)]
    distinct = list({part.sql(): part for part in calls}.values())
    node, lifted = lift(context, node, distinct)
    node, names = _key_columns(context, node, keys)
    if grouping.sets is not None:
        return _grouping_sets(context, node, grouping, names, distinct, lifted, expressions)
    columns = [(part.sql(), context.names.fresh(_label(part))) for part in distinct]
    grouped = Aggregate(
        node,
        tuple(dict.fromkeys(names)),
        tuple((name, item) for (_, name), item in zip(columns, lifted, strict=True)),
    )
    by_key = {key.sql(): name for key, name in zip(grouping.keys, names, strict=True)}
    return grouped, [_over_groups(e, by_key, dict(columns)) for e in expressions]


def _label(part: exp.Expr) -> str:
    while isinstance(part, (exp.Filter, exp.WithinGroup, exp.IgnoreNulls, exp.RespectNulls)):
        part = part.this
    return function_name(part) or "value"


def _key_columns(context: Context, node: Node, keys: Sequence[exp.Expr]) -> tuple[Node, list[str]]:
    """A column for each key: its own if it is one, else a new one."""
    names: list[str] = []
    added: Named = ()
    for key in keys:
        while isinstance(key, exp.Paren):
            key = key.this
        if isinstance(key, exp.Column) and key.name in node.columns:
            names.append(key.name)
        else:
            names.append(context.names.fresh("key"))
            added += ((names[-1], key),)
    return extend(node, added), names


def _over_groups(expression: exp.Expr, keys: dict[str, str], aggregates: dict[str, str]) -> exp.Expr:
    def visit(node: exp.Expr) -> exp.Expr | None:
        if isinstance(node, exp.Ordered):
            # Its text may be that of its key, and it says more: where NULL goes.
            return None
        # The function of a window is no aggregate, even if the same call is one elsewhere.
        in_window = isinstance(node.parent, exp.Window) and node.arg_key == "this"
        text = node.sql()
        if text in keys:
            return col(keys[text])
        if text in aggregates and not in_window:
            return col(aggregates[text])
        return None

    return rewrite(expression, visit)


def _grouping_sets(
    context: Context,
    node: Node,
    grouping: Grouping,
    names: Sequence[str],
    calls: Sequence[exp.Expr],
    lifted: Sequence[exp.Expr],
    expressions: Sequence[exp.Expr],
) -> tuple[Node, list[exp.Expr]]:
    """Repeat each row once for each grouping set, with the keys that the set leaves out as NULL.

    Before: GROUP BY GROUPING SETS ((a), ())
    After:  GROUP BY a_2, grouping_set, grouping_id
            over the rows CROSS JOIN VALUES (0, 0), (1, 1) AS (grouping_set, grouping_id)
    """
    assert grouping.sets is not None
    which, bits = context.names.fresh("grouping_set"), context.names.fresh("grouping_id")
    rows = [
        exp.Tuple(expressions=[number(i), number(_grouping_id(len(names), kept))])
        for i, kept in enumerate(grouping.sets)
    ]
    repeated = Join("inner", node, Constant(exp.Values(expressions=rows), (which, bits)))
    nulled = [context.names.fresh(name) for name in names]
    items = tuple(
        (new, _kept(name, place, which, grouping.sets))
        for place, (name, new) in enumerate(zip(names, nulled, strict=True))
    )
    columns = [(part.sql(), context.names.fresh(_label(part))) for part in calls]
    grouped = Aggregate(
        extend(repeated, items),
        (*dict.fromkeys(nulled), which, bits),
        tuple((name, item) for (_, name), item in zip(columns, lifted, strict=True)),
    )
    by_key = {key.sql(): name for key, name in zip(grouping.keys, nulled, strict=True)}
    with_ids = [_grouping_functions(expression, grouping.keys, bits) for expression in expressions]
    return grouped, [_over_groups(e, by_key, dict(columns)) for e in with_ids]


def _grouping_id(width: int, kept: Sequence[int]) -> int:
    return sum(1 << (width - 1 - place) for place in range(width) if place not in kept)


def _kept(name: str, place: int, which: str, sets: Sequence[Sequence[int]]) -> exp.Expr:
    holding = [number(i) for i, kept in enumerate(sets) if place in kept]
    if not holding:
        # Keeps the type of the column, which a bare NULL would lose.
        return exp.Case(ifs=[exp.If(this=exp.false(), true=col(name))])
    test = exp.In(this=col(which), expressions=holding)
    return exp.Case(ifs=[exp.If(this=test, true=col(name))])


def _grouping_functions(expression: exp.Expr, keys: Sequence[exp.Expr], bits: str) -> exp.Expr:
    """GROUPING(a) is one bit of the grouping id, GROUPING_ID() all of them."""
    texts = [key.sql() for key in keys]

    def bit(argument: exp.Expr) -> exp.Expr:
        text = argument.unnest().sql()
        if text not in texts:
            raise Unplannable("GROUPING of something that is no key")
        shift = len(texts) - 1 - texts.index(text)
        high = call("FLOOR", exp.Div(this=col(bits), expression=number(1 << shift)))
        return exp.Mod(this=exp.Paren(this=high), expression=number(2))

    def visit(node: exp.Expr) -> exp.Expr | None:
        match function_name(node):
            case "grouping":
                return exp.cast(bit(node.expressions[0]), "tinyint")
            case "grouping_id":
                if not node.expressions or [e.unnest().sql() for e in node.expressions] == texts:
                    return exp.cast(col(bits), "bigint")
                raise Unplannable("GROUPING_ID of some of the keys")
        return None

    return rewrite(expression, visit)


def distinct(node: Node) -> Node:
    """DISTINCT is grouping by all columns."""
    return Aggregate(node, node.columns)


def read_grouping(sets_of: Sequence[exp.Expr], group: exp.Group, resolve_key) -> Grouping:  # type: ignore[no-untyped-def]  # a local function
    """The keys and sets of a GROUP BY clause; several groupings beside each other multiply."""
    keys: list[exp.Expr] = []
    texts: list[str] = []

    def place(item: exp.Expr) -> int:
        key = resolve_key(item)
        if key.sql() not in texts:
            texts.append(key.sql())
            keys.append(key)
        return texts.index(key.sql())

    def tuple_places(item: exp.Expr) -> tuple[int, ...]:
        if isinstance(item, exp.Tuple):
            return tuple(place(part) for part in item.expressions)
        while isinstance(item, exp.Paren):
            item = item.this
        return (place(item),)

    product: list[tuple[int, ...]] = [()]
    plain = True
    trailing = [*(group.args.get("rollup") or ()), *(group.args.get("cube") or ())]
    trailing += group.args.get("grouping_sets") or ()
    if trailing:
        # GROUP BY a, b WITH ROLLUP, or a, b GROUPING SETS (…): first all keys, then which sets of them.
        for item in sets_of:
            tuple_places(item)
    for item in () if trailing else sets_of:
        options, is_set = _options(item, tuple_places)
        plain &= not is_set
        product = [(*left, *right) for left in product for right in options]
    for part in trailing:
        plain = False
        items = part.expressions or list(sets_of)
        options = _sets(part, items, tuple_places)
        product = [(*left, *right) for left in product for right in options]
    if plain:
        return Grouping(tuple(keys))
    return Grouping(tuple(keys), tuple(tuple(dict.fromkeys(kept)) for kept in product))


def _options(item: exp.Expr, places) -> tuple[list[tuple[int, ...]], bool]:  # type: ignore[no-untyped-def]  # a local function
    if isinstance(item, (exp.Rollup, exp.Cube, exp.GroupingSets)):
        return _sets(item, item.expressions, places), True
    return [places(item)], False


def _sets(kind: exp.Expr, items: Sequence[exp.Expr], places) -> list[tuple[int, ...]]:  # type: ignore[no-untyped-def]  # a local function
    match kind:
        case exp.Rollup():
            parts = [places(item) for item in items]
            return [sum(parts[:length], ()) for length in range(len(parts), -1, -1)]
        case exp.Cube():
            parts = [places(item) for item in items]
            masks = range((1 << len(parts)) - 1, -1, -1)
            return [
                sum((p for i, p in enumerate(parts) if mask >> (len(parts) - 1 - i) & 1), ())
                for mask in masks
            ]
    found: list[tuple[int, ...]] = []
    for item in items:
        found += _options(item, places)[0]
    return found
