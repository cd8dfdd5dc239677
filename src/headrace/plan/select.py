"""One SELECT to operators, in the order in which SQL evaluates its clauses."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sqlglot import exp

from headrace.plan.context import Built, Context, Environment
from headrace.plan.expressions import col, is_generator_call
from headrace.plan.from_clause import default_generated, from_clause
from headrace.plan.nodes import Generate, Named, Node, Project, TopN, at_most_one_row
from headrace.plan.resolve import columns_of_star, resolve
from headrace.plan.rewrites.aggregates import Grouping, aggregate, distinct, has_aggregate, read_grouping
from headrace.plan.rewrites.subqueries import lift, lift_condition
from headrace.plan.rewrites.windows import inline_named_windows, lift_windows
from headrace.plan.scope import Scope, Unplannable
from headrace.sql.stars import is_star


@dataclass(frozen=True)
class Item:
    """One entry of a SELECT list: its name for the user, and its expression."""

    user: str
    expression: exp.Expr
    users: tuple[str, ...] = ()


@dataclass(frozen=True)
class Selecting:
    """The parts of a SELECT that are evaluated over its rows."""

    items: list[Item]
    having: exp.Expr | None
    qualify: exp.Expr | None
    order: list[exp.Expr]

    @property
    def expressions(self) -> list[exp.Expr]:
        tests = [test for test in (self.having, self.qualify) if test is not None]
        return [item.expression for item in self.items] + tests + self.order

    def over(self, expressions: Sequence[exp.Expr]) -> Selecting:
        """The same parts with their expressions rewritten."""
        left = list(expressions)
        items = [Item(item.user, left.pop(0), item.users) for item in self.items]
        having = left.pop(0) if self.having is not None else None
        qualify = left.pop(0) if self.qualify is not None else None
        return Selecting(items, having, qualify, left)


def build_select(
    context: Context, select: exp.Select, environment: Environment, outer: Scope | None
) -> Built:
    """Plan one SELECT."""
    _require_known_clauses(select)
    select = inline_named_windows(select)
    node, scope = from_clause(context, environment, select, outer)
    if where := select.args.get("where"):
        node = lift_condition(context, node, resolve(context, environment, where.this, scope))
    items, aliases = _items(context, environment, select, scope)
    parts = _parts(context, environment, select, scope, items, aliases)
    node, parts = _grouped(context, environment, select, scope, node, parts, aliases)
    if parts.having is not None:
        node = lift_condition(context, node, parts.having)
    node, rewritten = lift_windows(context, node, parts.over(parts.expressions).expressions)
    parts = parts.over(rewritten)
    if parts.qualify is not None:
        node = lift_condition(context, node, parts.qualify)
    return _projected(context, select, node, parts)


def _require_known_clauses(select: exp.Select) -> None:
    known = {
        *("expressions", "from_", "joins", "laterals", "where", "group", "having", "qualify", "windows"),
        *("distinct", "order", "limit", "offset", "with_", "hint", "kind", "operation_modifiers"),
    }
    for clause, value in select.args.items():
        if value and clause not in known:
            raise Unplannable(f"the clause {clause}")
    if select.args.get("kind"):
        raise Unplannable("SELECT AS")


def _items(
    context: Context, environment: Environment, select: exp.Select, scope: Scope
) -> tuple[list[Item], dict[str, exp.Expr]]:
    """The SELECT list with stars expanded; an alias may be used by what stands after it."""
    items: list[Item] = []
    aliases: dict[str, exp.Expr] = {}
    for entry in select.expressions:
        if is_star(entry):
            items += [Item(user, col(name)) for user, name in columns_of_star(entry, scope)]
            continue
        inner = entry.this if isinstance(entry, (exp.Alias, exp.Aliases)) else entry
        expression = resolve(context, environment, inner, scope, aliases)
        if isinstance(entry, exp.Aliases):
            items.append(Item("", expression, tuple(part.name for part in entry.expressions)))
            continue
        user = entry.alias if isinstance(entry, exp.Alias) else _default_name(entry)
        items.append(Item(user, expression))
        if isinstance(entry, exp.Alias):
            aliases.setdefault(user.lower(), expression)
    return items, aliases


def _default_name(entry: exp.Expr) -> str:
    match entry:
        case exp.Column():
            return entry.name
        case exp.Dot():
            return str(entry.expression.name)
        case exp.Paren():
            return _default_name(entry.this)
    return ""


def _parts(
    context: Context,
    environment: Environment,
    select: exp.Select,
    scope: Scope,
    items: list[Item],
    aliases: dict[str, exp.Expr],
) -> Selecting:
    names = {item.user.lower(): item.expression for item in reversed(items) if item.user}

    def test(clause: str, shadows: dict[str, exp.Expr]) -> exp.Expr | None:
        found = select.args.get(clause)
        if found is None:
            return None
        return resolve(context, environment, found.this, scope, aliases, shadows=shadows)

    order = []
    if select.args.get("order") and (select.args.get("limit") or select.args.get("offset")):
        for entry in select.args["order"].expressions:
            if is_all(entry.this):
                order += [_ordered(entry, item.expression) for item in items]
                continue
            target = _order_target(context, environment, entry.this, scope, items, aliases, names)
            order.append(_ordered(entry, target))
    having = test("having", {name: item for name, item in names.items() if name not in _group_names(select)})
    return Selecting(items, having, test("qualify", {}), order)


def _group_names(select: exp.Select) -> set[str]:
    """The columns of GROUP BY, which HAVING means before names of the SELECT list.

    They may be written as themselves, by their place or their name in the SELECT list, or as ALL.
    """
    group = select.args.get("group")
    if group is None:
        return set()
    items = [(entry.alias.lower(), entry.unalias()) for entry in select.expressions]
    columns = [(alias, item.name.lower()) for alias, item in items if isinstance(item, exp.Column)]
    if group.args.get("all"):
        return {name for _, name in columns}
    shown = {alias: name for alias, name in columns if alias}
    keys = [key for part in group.args.values() if isinstance(part, list) for key in part]
    names = {column.name.lower() for key in keys for column in _columns_of_key(key)}
    places = [int(key.name) for key in group.expressions if isinstance(key, exp.Literal) and key.is_int]
    by_place = {items[place - 1][1] for place in places if 0 < place <= len(items)}
    names |= {item.name.lower() for item in by_place if isinstance(item, exp.Column)}
    return names | {shown[alias] for alias in names & shown.keys()}


def _columns_of_key(key: exp.Expr) -> Iterator[exp.Column]:
    """Yield the columns that are keys as they are, by themselves or in sets of keys."""
    match key:
        case exp.Column():
            yield key
        case exp.Paren():
            yield from _columns_of_key(key.this)
        case exp.Tuple() | exp.GroupingSets() | exp.Rollup() | exp.Cube():
            for part in key.expressions:
                yield from _columns_of_key(part)


def is_all(target: exp.Expr) -> bool:
    """Whether ORDER BY names ALL, which is every column of the output."""
    return isinstance(target, exp.Var) and target.name.upper() == "ALL"


def _ordered(entry: exp.Expr, target: exp.Expr) -> exp.Expr:
    return exp.Ordered(
        this=target, desc=bool(entry.args.get("desc")), nulls_first=bool(entry.args.get("nulls_first"))
    )


def _order_target(
    context: Context,
    environment: Environment,
    target: exp.Expr,
    scope: Scope,
    items: list[Item],
    aliases: dict[str, exp.Expr],
    names: dict[str, exp.Expr],
) -> exp.Expr:
    """ORDER BY means a place in the SELECT list, a name of it, or else a column below it."""
    if isinstance(target, exp.Literal) and not target.is_string:
        return items[int(target.name) - 1].expression
    if isinstance(target, exp.Column) and len(target.parts) == 1 and target.name.lower() in names:
        return names[target.name.lower()]
    return resolve(context, environment, target, scope, aliases, shadows=names)


def _grouped(
    context: Context,
    environment: Environment,
    select: exp.Select,
    scope: Scope,
    node: Node,
    parts: Selecting,
    aliases: dict[str, exp.Expr],
) -> tuple[Node, Selecting]:
    group = select.args.get("group")
    if (
        group is None
        and not any(has_aggregate(context, e) for e in parts.expressions)
        and parts.having is None
    ):
        return node, parts
    grouping = Grouping(())
    if group is not None and group.args.get("all"):
        keys = [i.expression for i in parts.items if not has_aggregate(context, i.expression)]
        grouping = Grouping(tuple(keys))
    elif group is not None:

        def key(entry: exp.Expr) -> exp.Expr:
            if isinstance(entry, exp.Literal) and not entry.is_string:
                if not entry.name.isdigit() or not 0 < int(entry.name) <= len(parts.items):
                    raise Unplannable(f"GROUP BY {entry.name}")
                return parts.items[int(entry.name) - 1].expression
            same = _same_item(select, parts, entry) if entry.find(exp.Query) else None
            return same or _plain(resolve(context, environment, entry, scope, aliases))

        grouping = read_grouping(group.expressions, group, key)
    grouped, rewritten = aggregate(context, node, grouping, parts.expressions)
    return grouped, parts.over(rewritten)


def _same_item(select: exp.Select, parts: Selecting, entry: exp.Expr) -> exp.Expr | None:
    """The item of SELECT that is written like a key: two subqueries are two plans, though written alike."""
    written = [item.unalias().sql() for item in select.expressions]
    if len(written) != len(parts.items) or entry.sql() not in written:
        return None
    return parts.items[written.index(entry.sql())].expression


def _plain(expression: exp.Expr) -> exp.Expr:
    while isinstance(expression, exp.Paren):
        expression = expression.this
    return expression


def _projected(context: Context, select: exp.Select, node: Node, parts: Selecting) -> Built:
    node, rewritten = lift(context, node, [*(i.expression for i in parts.items), *parts.order])
    parts = Selecting(parts.items, None, None, parts.order).over(rewritten)
    node, users, items = _generated(context, node, parts.items)
    unique = bool(select.args.get("distinct"))
    if unique and select.args["distinct"].args.get("on"):
        raise Unplannable("DISTINCT ON")
    hidden: Named = ()
    order: list[exp.Expr] = []
    texts = {_plain(expression).sql(): name for name, expression in reversed(items)}
    for entry in parts.order:
        name = texts.get(_plain(entry.this).sql())
        if name is None:
            if unique:
                raise Unplannable("ORDER BY of something that DISTINCT drops")
            name = context.names.fresh("order")
            hidden += ((name, entry.this),)
        order.append(_ordered(entry, col(name)))
    node = Project(node, items + hidden)
    if unique:
        node = distinct(node)
    limited = limit_rows(node, select, order)
    if hidden:
        limited = Project(limited, tuple((name, col(name)) for name, _ in items))
    return Built(limited, tuple(zip(users, (name for name, _ in items), strict=True)))


def _generated(context: Context, node: Node, items: Sequence[Item]) -> tuple[Node, list[str], Named]:
    """Compute generators of the SELECT list below it, and give every item a column of its own."""
    users: list[str] = []
    named: Named = ()
    for place, item in enumerate(items):
        if is_generator_call(item.expression):
            given = item.users or ((item.user,) if item.user else default_generated(item.expression))
            names = tuple(context.names.fresh(user) for user in given)
            node = Generate(node, item.expression, False, names)
            users += given
            named += tuple((context.names.fresh(name), col(name)) for name in names)
            continue
        if item.users:
            raise Unplannable("several names for one expression")
        user = item.user or f"col{place + 1}"
        users.append(user)
        named += ((context.names.fresh(user), item.expression),)
    return node, users, named


def limit_rows(node: Node, query: exp.Expr, order: Sequence[exp.Expr]) -> Node:
    """ORDER BY with LIMIT and OFFSET; without them an order means nothing."""
    limit, offset = _count(query, "limit"), _count(query, "offset")
    if limit is None and not offset:
        return node
    if not order and limit and not offset and at_most_one_row(node):
        return node
    if not order:
        raise Unplannable("LIMIT without ORDER BY")
    return TopN(node, tuple(order), limit, offset or 0)


def _count(query: exp.Expr, clause: str) -> int | None:
    found = query.args.get(clause)
    if found is None:
        return None
    value = found.expression
    if isinstance(value, exp.Literal) and value.is_int:
        return int(value.name)
    if isinstance(value, exp.Column) and value.name.upper() == "ALL":
        return None
    raise Unplannable(f"{clause.upper()} with an expression")
