"""FROM to scans and joins."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

from sqlglot import exp

from headrace.plan.context import Built, Context, Environment, extend, one_row, passing
from headrace.plan.expressions import (
    call,
    col,
    columns_in,
    conjunction,
    conjuncts,
    function_name,
    is_generator_call,
    subquery_calls,
)
from headrace.plan.nodes import Constant, Generate, Join, Named, Node, Project, Scan, UnionAll
from headrace.plan.resolve import resolve
from headrace.plan.rewrites.decorrelate import lateral_join
from headrace.plan.rewrites.pivot import pivot_relation
from headrace.plan.rewrites.subqueries import lift, lift_condition, outer_columns
from headrace.plan.scope import Relation, Scope, Unplannable, Visible
from headrace.sql.names import TableName

AnyKind: TypeAlias = Literal["inner", "left", "right", "full", "semi", "anti"]
Part: TypeAlias = tuple[Node, Scope]


def from_clause(context: Context, environment: Environment, select: exp.Select, outer: Scope | None) -> Part:
    """The joined relations of a SELECT and what their names mean."""
    source = select.args.get("from_")
    if source is None:
        return one_row(), Scope(parent=outer)
    part = _joined(context, environment, source.this, select.args.get("joins") or (), outer)
    for view in select.args.get("laterals") or ():
        part = _generate(context, environment, part, view, outer=bool(view.args.get("outer")))
    return part


def _joined(
    context: Context,
    environment: Environment,
    first: exp.Expr,
    joins: Sequence[exp.Join],
    outer: Scope | None,
) -> Part:
    part = _relation(context, environment, first, outer)
    part = _pivoted(context, environment, part, first)
    for join in [*(first.args.get("joins") or ()), *joins]:
        part = _join(context, environment, part, join, outer)
        # Spark pivots all that stands to the left, not only what was joined last.
        part = _pivoted(context, environment, part, join.this)
        part = _pivoted(context, environment, part, join)
    return part


def _pivoted(context: Context, environment: Environment, part: Part, item: exp.Expr) -> Part:
    for pivot in item.args.get("pivots") or ():
        part = _pivot(context, environment, part, pivot)
    return part


def _pivot(context: Context, environment: Environment, part: Part, pivot: exp.Pivot) -> Part:
    node, scope = part
    built = pivot_relation(context, environment, Built(node, scope.visible), pivot)
    if pivot.alias:
        relations: tuple[Relation, ...] = (Relation((pivot.alias.lower(),), built.columns),)
    else:
        left = set(built.node.columns)
        relations = tuple(
            Relation(relation.name, tuple(column for column in relation.columns if column[1] in left))
            for relation in scope.relations
        )
    return built.node, Scope(relations, built.columns, scope.parent)


def _relation(context: Context, environment: Environment, item: exp.Expr, outer: Scope | None) -> Part:
    if item.args.get("sample") or item.args.get("version"):
        raise Unplannable("a sample or a version in FROM")
    if isinstance(item, exp.Lateral):
        return _generate(context, environment, (one_row(), Scope(parent=outer)), item, outer=False)
    if isinstance(item, exp.Subquery) and isinstance(item.this, exp.Table):
        return _parenthesised(context, environment, item, outer)
    built, name = _plain_relation(context, environment, item, outer)
    columns = _renamed(built.columns, _alias_columns(item))
    return built.node, Scope((Relation(name, columns),), columns, outer)


def _parenthesised(
    context: Context, environment: Environment, item: exp.Subquery, outer: Scope | None
) -> Part:
    node, scope = _joined(context, environment, item.this, (), outer)
    if not item.alias:
        return node, scope
    columns = _renamed(scope.visible, _alias_columns(item))
    return node, Scope((Relation((item.alias.lower(),), columns),), columns, outer)


def _plain_relation(
    context: Context, environment: Environment, item: exp.Expr, outer: Scope | None
) -> tuple[Built, tuple[str, ...]]:
    alias = (item.alias.lower(),) if item.alias else ("",)
    match item:
        case exp.Values():
            return _values(context, item), alias
        case exp.Subquery():
            if isinstance(item.this, exp.Values):
                return _values(context, item.this), alias
            return context.subquery(item.this, environment, outer), alias
        case exp.Table() if isinstance(item.this, exp.Identifier):
            return _table(context, environment, item)
        case exp.Table() if function_name(item.this) == "range":
            name = context.names.fresh("id")
            return Built(Constant(_select_from(item.this, ["id"], [name]), (name,)), (("id", name),)), alias
    raise Unplannable(f"{item.key} in FROM")


def _table(context: Context, environment: Environment, item: exp.Table) -> tuple[Built, tuple[str, ...]]:
    parts = tuple(part.name for part in item.parts)
    alias = (item.alias.lower(),) if item.alias else None
    if len(parts) == 1 and (definition := environment.ctes.get(parts[0].lower())):
        built = context.subquery(definition.query, definition.environment, None)
        columns = _renamed(built.columns, definition.columns)
        return Built(built.node, columns), alias or (parts[0].lower(),)
    name = TableName.of(parts, environment.analysis.current_schema)
    spelled = alias or (name.catalog, name.schema, name.table)
    if view := environment.analysis.view_analyses.get(name):
        built = context.subquery(view.tree, Environment(view), None)
        return Built(built.node, _renamed(built.columns, environment.analysis.view_columns[name])), spelled
    return _scan(context, environment, name), spelled


def _scan(context: Context, environment: Environment, name: TableName) -> Built:
    table = environment.analysis.tables.get(name)
    if table is None:
        raise Unplannable(f"the table {name} was not resolved")
    names = tuple((context.names.fresh(column.name), column.name) for column in table.columns)
    for (plan_name, _), column in zip(names, table.columns, strict=True):
        if "map<" in column.type.lower() or "variant" in column.type.lower():
            context.unorderable.add(plan_name)
    return Built(Scan(name, names), tuple((column, name) for name, column in names))


def _values(context: Context, values: exp.Values) -> Built:
    width = len(_cells(values.expressions[0]))
    given = [column.name for column in (values.args["alias"].columns if values.args.get("alias") else ())]
    users = given or [f"col{i + 1}" for i in range(width)]
    if len(users) != width:
        raise Unplannable("VALUES with another number of names")
    names = tuple(context.names.fresh(user) for user in users)
    rows = exp.Values(
        expressions=[
            exp.Tuple(expressions=[cell.copy() for cell in _cells(row)]) for row in values.expressions
        ]
    )
    return Built(Constant(rows, names), tuple(zip(users, names, strict=True)))


def _cells(row: exp.Expr) -> list[exp.Expr]:
    return (
        list(row.expressions)
        if isinstance(row, exp.Tuple)
        else [row.this if isinstance(row, exp.Paren) else row]
    )


def _select_from(function: exp.Expr, columns: list[str], names: list[str]) -> exp.Select:
    items = [exp.alias_(col(column), name, quoted=True) for column, name in zip(columns, names, strict=True)]
    return exp.Select(expressions=items).from_(exp.Table(this=function.copy()), copy=False)


def _alias_columns(item: exp.Expr) -> tuple[str, ...]:
    alias = item.args.get("alias")
    if isinstance(alias, exp.TableAlias) and not isinstance(item, exp.Values):
        return tuple(column.name for column in alias.columns)
    return ()


def _renamed(columns: Sequence[Visible], users: Sequence[str]) -> tuple[Visible, ...]:
    if not users:
        return tuple(columns)
    if len(users) != len(columns):
        raise Unplannable("an alias with another number of columns")
    return tuple((user, name) for user, (_, name) in zip(users, columns, strict=True))


def _generate(
    context: Context, environment: Environment, part: Part, lateral: exp.Lateral, *, outer: bool
) -> Part:
    node, scope = part
    function = resolve(context, environment, lateral.this, scope)
    if not is_generator_call(function):
        raise Unplannable("a table function")
    users = [column.name for column in lateral.args["alias"].columns] if lateral.args.get("alias") else []
    users = users or list(default_generated(function))
    names = tuple(context.names.fresh(user) for user in users)
    columns = tuple(zip(users, names, strict=True))
    relation = Relation((lateral.alias.lower(),), columns)
    scope = Scope((*scope.relations, relation), scope.visible + columns, scope.parent)
    return Generate(node, function, outer, names), scope


def default_generated(function: exp.Expr) -> tuple[str, ...]:
    """The names Spark gives the columns of a generator over an array."""
    match function_name(function):
        case "explode" | "explode_outer":
            return ("col",)
        case "posexplode" | "posexplode_outer":
            return ("pos", "col")
    raise Unplannable("a generator without names for its columns")


def _join(
    context: Context, environment: Environment, left: Part, join: exp.Join, outer: Scope | None
) -> Part:
    kind = _kind(join)
    if isinstance(join.this, exp.Lateral):
        return _lateral(context, environment, left, join, kind)
    right = _relation(context, environment, join.this, outer)
    for inner in join.this.args.get("joins") or ():
        right = _join(context, environment, right, inner, outer)
    both = Scope(left[1].relations + right[1].relations, left[1].visible + right[1].visible, outer)
    using = _using(join, left[1], right[1])
    if using:
        pairs = [(_one(left[1], user), _one(right[1], user)) for user in using]
        equal = [exp.EQ(this=col(a), expression=col(b)) for a, b in pairs]
        node = _build_join(kind, left[0], right[0], conjunction(equal))
        return _merge_using(context, kind, node, using, pairs, both, left[1])
    on = join.args.get("on")
    condition = resolve(context, environment, on, both) if on is not None else None
    node = _join_on(context, kind, left[0], right[0], condition)
    return node, left[1] if kind in ("semi", "anti") else both


def _kind(join: exp.Join) -> AnyKind:
    if join.kind in ("SEMI", "ANTI"):
        return "semi" if join.kind == "SEMI" else "anti"
    match join.side:
        case "LEFT":
            return "left"
        case "RIGHT":
            return "right"
        case "FULL":
            return "full"
    if join.kind in ("", "INNER", "CROSS", "OUTER"):
        return "full" if join.kind == "OUTER" else "inner"
    raise Unplannable(f"a {join.kind} join")


def _using(join: exp.Join, left: Scope, right: Scope) -> list[str]:
    if join.method == "NATURAL":
        theirs = {user.lower() for user, _ in right.visible}
        return [user for user, _ in left.visible if user.lower() in theirs]
    return [identifier.name for identifier in join.args.get("using") or ()]


def _one(scope: Scope, user: str) -> str:
    resolved = Scope(visible=scope.visible).resolve([user])
    return resolved.name


def _merge_using(
    context: Context,
    kind: AnyKind,
    node: Node,
    using: Sequence[str],
    pairs: Sequence[tuple[str, str]],
    both: Scope,
    left: Scope,
) -> Part:
    """Make one column of each pair: the side that is never padded, or the one that is there."""
    if kind in ("semi", "anti"):
        return node, left
    merged: list[Visible] = []
    added: Named = ()
    for user, (mine, theirs) in zip(using, pairs, strict=True):
        if kind == "full":
            name = context.names.fresh(user)
            added += ((name, call("COALESCE", col(mine), col(theirs))),)
        else:
            name = theirs if kind == "right" else mine
        merged.append((user, name))
    gone = {name for pair in pairs for name in pair}
    rest = tuple(column for column in both.visible if column[1] not in gone)
    return extend(node, added), Scope(both.relations, (*merged, *rest), both.parent)


def _join_on(context: Context, kind: AnyKind, left: Node, right: Node, on: exp.Expr | None) -> Node:
    if on is None or not any(subquery_calls(on)):
        return _build_join(kind, left, right, on)
    if kind == "inner":
        return lift_condition(context, Join("inner", left, right), on)
    if kind == "full":
        raise Unplannable("a subquery in the condition of a full join")
    return _lift_to_sides(context, kind, left, right, conjuncts(on))


def _lift_to_sides(
    context: Context, kind: AnyKind, left: Node, right: Node, parts: Sequence[exp.Expr]
) -> Node:
    """Compute each subquery of an outer join's condition on the side whose columns it reads."""
    lifted: list[exp.Expr] = []
    before = left.columns + right.columns
    for part in parts:
        read = columns_in(part) | outer_columns(context, part)
        if read <= set(left.columns):
            left, (part,) = lift(context, left, [part])
        elif read <= set(right.columns):
            right, (part,) = lift(context, right, [part])
        elif any(subquery_calls(part)):
            raise Unplannable("a subquery over both sides in the condition of an outer join")
        lifted.append(part)
    joined = _build_join(kind, left, right, conjunction(lifted))
    return Project(joined, tuple((name, col(name)) for name in before if name in joined.columns))


def _build_join(kind: AnyKind, left: Node, right: Node, on: exp.Expr | None) -> Node:
    match kind:
        case "inner" | "left" | "semi" | "anti":
            return Join(kind, left, right, on)
        case "right":
            return Join("left", right, left, on)
    return full_join(left, right, on)


def full_join(left: Node, right: Node, on: exp.Expr | None) -> Node:
    """A full join is the left join and, padded with NULL, the right rows that nothing meets."""
    joined = Join("left", left, right, on)
    lonely = Join("anti", right, left, on)
    padded = tuple((name, col(name) if name in right.columns else exp.null()) for name in joined.columns)
    return UnionAll((Project(joined, passing(joined)), Project(lonely, padded)))


def _lateral(context: Context, environment: Environment, left: Part, join: exp.Join, kind: AnyKind) -> Part:
    lateral = join.this
    if kind not in ("inner", "left"):
        raise Unplannable(f"a {kind} lateral join")
    on = join.args.get("on")
    if not isinstance(lateral.this, exp.Subquery):
        if on is not None and not (isinstance(on, exp.Boolean) and on.this):
            raise Unplannable("a condition on a table function")
        return _generate(context, environment, left, lateral, outer=kind == "left")
    node, scope = left
    built = context.subquery(lateral.this.this, environment, scope)
    columns = _renamed(built.columns, _alias_columns(lateral))
    relation = Relation((lateral.alias.lower(),), columns)
    both = Scope((*scope.relations, relation), scope.visible + columns, scope.parent)
    condition = resolve(context, environment, on, both) if on is not None else None
    return lateral_join(context, node, built.node, kind, condition), both
