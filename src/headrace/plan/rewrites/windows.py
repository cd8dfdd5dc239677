"""Window functions inside expressions to columns, one operator for each way of partitioning."""

from __future__ import annotations

from collections.abc import Sequence, Set

from sqlglot import exp

from headrace.plan.context import Context, extend
from headrace.plan.expressions import col, function_name, rewrite
from headrace.plan.nodes import Named, Node, Window
from headrace.plan.rewrites.subqueries import lift
from headrace.plan.scope import Unplannable
from headrace.sql.functions import FRAME_START_WINDOWS, ORDER_SENSITIVE_WINDOWS, UNFRAMED_WINDOWS


def inline_named_windows(select: exp.Select) -> exp.Select:
    """Write out what WINDOW names.

    >>> from sqlglot import parse_one
    >>> query = parse_one("SELECT SUM(a) OVER w FROM t WINDOW w AS (PARTITION BY b)", dialect="spark")
    >>> inline_named_windows(query).sql("spark")
    'SELECT SUM(a) OVER (PARTITION BY b) FROM t'
    """
    named = {window.name.lower(): window for window in select.args.get("windows") or ()}
    if not named:
        return select
    copied = select.copy()
    copied.set("windows", None)
    for window in list(copied.find_all(exp.Window)):
        if not (alias := window.args.get("alias")):
            continue
        base = named.get(alias.name.lower())
        if base is None or base.args.get("alias"):
            raise Unplannable("a window defined by another window")
        window.set("alias", None)
        for part in ("partition_by", "order", "spec"):
            given = base.args.get(part)
            if given and not window.args.get(part):
                copies = [item.copy() for item in given] if isinstance(given, list) else given.copy()
                window.set(part, copies)
    return copied


def has_window(expression: exp.Expr) -> bool:
    return expression.find(exp.Window) is not None


def lift_windows(
    context: Context, node: Node, expressions: Sequence[exp.Expr]
) -> tuple[Node, list[exp.Expr]]:
    """Compute every window function as a column below the expressions.

    Before: SELECT a - LAG(a) OVER (PARTITION BY b ORDER BY c) FROM t
    After:  SELECT a - lag FROM (SELECT *, LAG(a) OVER (PARTITION BY b ORDER BY c) AS lag FROM t)
    """
    windows = {w.sql(): w for expression in expressions for w in expression.find_all(exp.Window)}
    if not windows:
        return node, list(expressions)
    if any(list(window.find_all(exp.Window))[1:] for window in windows.values()):
        raise Unplannable("a window function inside a window function")
    node, lifted = lift(context, node, list(windows.values()))
    node, by_partition = _by_partition(context, node, lifted)
    names: dict[str, str] = {}
    for window, text in zip(lifted, windows, strict=True):
        names[text] = context.names.fresh(_label(window))
    base = node
    for partition, members in by_partition.items():
        items: Named = tuple(
            (names[text], _decided(window, base, context.unorderable))
            for text, window in zip(windows, lifted, strict=True)
            if any(window is member for member in members)
        )
        node = Window(node, partition, items)

    def visit(part: exp.Expr) -> exp.Expr | None:
        return col(names[part.sql()]) if isinstance(part, exp.Window) else None

    return node, [rewrite(expression, visit) for expression in expressions]


def _label(window: exp.Expr) -> str:
    return function_name(_function(window)) or "window"


def _function(window: exp.Expr) -> exp.Expr:
    function = window.this
    while isinstance(function, (exp.IgnoreNulls, exp.RespectNulls, exp.Filter)):
        function = function.this
    return function  # type: ignore[no-any-return]


def _by_partition(
    context: Context, node: Node, windows: Sequence[exp.Expr]
) -> tuple[Node, dict[tuple[str, ...], list[exp.Expr]]]:
    """Make every partition expression a column, and sort the windows by their partitions."""
    columns: dict[str, str] = {}
    added: Named = ()
    groups: dict[tuple[str, ...], list[exp.Expr]] = {}
    for window in windows:
        keys = []
        for item in window.args.get("partition_by") or ():
            if isinstance(item, exp.Column):
                keys.append(item.name)
                continue
            if item.sql() not in columns:
                columns[item.sql()] = context.names.fresh("key")
                added += ((columns[item.sql()], item),)
            keys.append(columns[item.sql()])
        window.set("partition_by", [col(key) for key in keys])
        groups.setdefault(tuple(sorted(set(keys))), []).append(window)
    return extend(node, added), groups


def _decided(window: exp.Expr, node: Node, unorderable: Set[str]) -> exp.Expr:
    """End the order with all columns where ties would leave the value open.

    A RANGE frame, also the one that ORDER BY implies, takes in all peers of a row: more columns would change
    its meaning, except for a function that looks at the frame's first row only.
    """
    name = function_name(_function(window))
    order, spec = window.args.get("order"), window.args.get("spec")
    rows = spec is not None and str(spec.args.get("kind") or "").upper() == "ROWS"
    implied_range = spec is None and order is not None
    unordered = order is None and spec is None and name in ORDER_SENSITIVE_WINDOWS
    starts = name in FRAME_START_WINDOWS and implied_range
    if not (rows or unordered or starts or name in UNFRAMED_WINDOWS):
        return window
    decided = window.copy()
    given = [item.copy() for item in order.expressions] if order is not None else []
    decided.set("order", exp.Order(expressions=given + tie_breakers(node, given, unorderable)))
    if order is None and spec is None and name not in UNFRAMED_WINDOWS:
        decided.set("spec", _whole_partition())
    return decided


def _whole_partition() -> exp.WindowSpec:
    return exp.WindowSpec(
        kind="ROWS",
        start="UNBOUNDED",
        start_side="PRECEDING",
        end="UNBOUNDED",
        end_side="FOLLOWING",
    )


def tie_breakers(node: Node, order: Sequence[exp.Expr], unorderable: Set[str]) -> list[exp.Expr]:
    """The columns that the order does not name yet, as its end."""
    named = {item.this.name for item in order if isinstance(item.this, exp.Column)} | unorderable
    return [
        exp.Ordered(this=col(name), desc=False, nulls_first=True)
        for name in node.columns
        if name not in named
    ]
