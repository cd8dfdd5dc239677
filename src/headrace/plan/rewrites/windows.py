"""Window functions inside expressions to columns, one operator for each way of partitioning."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from headrace.plan.context import Context, extend
from headrace.plan.expressions import col, function_name, rewrite
from headrace.plan.nodes import Named, Node, Window
from headrace.plan.rewrites.subqueries import lift
from headrace.plan.scope import Unplannable


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
    for partition, members in by_partition.items():
        items: Named = tuple(
            (names[text], window)
            for text, window in zip(windows, lifted, strict=True)
            if any(window is member for member in members)
        )
        node = Window(node, partition, items)

    def visit(part: exp.Expr) -> exp.Expr | None:
        return col(names[part.sql()]) if isinstance(part, exp.Window) else None

    return node, [rewrite(expression, visit) for expression in expressions]


def _label(window: exp.Expr) -> str:
    return function_name(window_function(window)) or "window"


def window_function(window: exp.Expr) -> exp.Expr:
    """The function of a window, without what modifies it."""
    function = window.this
    while isinstance(function, (exp.IgnoreNulls, exp.RespectNulls, exp.Filter)):
        function = function.this
    return function  # type: ignore[no-any-return]  # SQLGlot types no arguments


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
