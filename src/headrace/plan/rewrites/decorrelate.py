"""Subqueries that read columns of the outer query, to joins.

The common case pulls the correlated conditions up into the join. The general case evaluates the subquery for
all outer values at once: it is joined with their distinct set, the *domain*, and every operator inside keeps
the domain's columns apart, as a grouping key, a partition or a passing column.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from headrace.plan.context import Context, passing
from headrace.plan.expressions import (
    all_same,
    col,
    columns_in,
    conjunction,
    conjuncts,
    is_aggregate_call,
    partition_also,
    substitute,
)
from headrace.plan.nodes import (
    Aggregate,
    Filter,
    Generate,
    Join,
    JoinKind,
    Named,
    Node,
    Project,
    SetOperation,
    TopN,
    UnionAll,
    Window,
    free_columns,
)
from headrace.plan.rewrites.empty_groups import filled
from headrace.plan.scope import Unplannable


@dataclass(frozen=True)
class Pulled:
    """A subquery without its correlated conditions, and these."""

    node: Node
    conditions: tuple[exp.Expr, ...]


def pull_conditions(node: Node, *, duplicates_matter: bool = True) -> Pulled | None:
    """Take correlated conditions out of filters and inner joins that have only projections above them.

    Before: SELECT b FROM u WHERE u.k = outer.k AND u.c > 1
    After:  SELECT b, k FROM u WHERE u.c > 1, and the condition u.k = outer.k
    """
    free = free_columns(node)
    if not free:
        return Pulled(node, ())
    match node:
        case Filter():
            below = pull_conditions(node.child, duplicates_matter=duplicates_matter)
            return _split_filter(below, conjuncts(node.condition), free) if below else None
        case Project():
            if columns_in(*node.expressions) & free:
                return None
            below = pull_conditions(node.child, duplicates_matter=duplicates_matter)
            return _keep_needed(node, below) if below else None
        case Join(kind="inner"):
            left = pull_conditions(node.left, duplicates_matter=duplicates_matter)
            right = pull_conditions(node.right, duplicates_matter=duplicates_matter)
            if left is None or right is None:
                return None
            joined = Pulled(Join("inner", left.node, right.node), left.conditions + right.conditions)
            return _split_filter(joined, conjuncts(node.on), free)
        case Join() if not free_columns(node.right) and not columns_in(*node.expressions) & free:
            left = pull_conditions(node.left, duplicates_matter=duplicates_matter)
            return Pulled(replace(node, left=left.node), left.conditions) if left else None
        case Aggregate(aggregates=()) if not duplicates_matter:
            child = Project(node.child, tuple((key, col(key)) for key in node.keys))
            return pull_conditions(child, duplicates_matter=False)
    return None


def _split_filter(below: Pulled, parts: Sequence[exp.Expr], free: set[str]) -> Pulled:
    stays = conjunction(part for part in parts if not columns_in(part) & free)
    goes = tuple(part for part in parts if columns_in(part) & free)
    node = Filter(below.node, stays) if stays is not None else below.node
    return Pulled(node, below.conditions + goes)


def _keep_needed(project: Project, below: Pulled) -> Pulled:
    needed = columns_in(*below.conditions) & set(below.node.columns)
    extra = tuple((name, col(name)) for name in sorted(needed - set(project.columns)))
    return Pulled(Project(below.node, project.items + extra), below.conditions)


def lateral_join(context: Context, left: Node, inner: Node, kind: JoinKind, on: exp.Expr | None) -> Node:
    """Join a relation with a subquery that reads its columns."""
    if pulled := pull_conditions(inner):
        return Join(kind, left, pulled.node, conjunction([*conjuncts(on), *pulled.conditions]))
    bound = bind_to_domain(context, left, inner)
    return Join(kind, left, bound.node, conjunction([*conjuncts(on), *bound.conditions]))


def bind_to_domain(context: Context, outer: Node, inner: Node) -> Pulled:
    """Evaluate a correlated subquery for all outer values at once; the conditions find each row's own."""
    used = [name for name in outer.columns if name in free_columns(inner)]
    domain = {name: context.names.fresh(name) for name in used}
    values = Aggregate(
        Project(outer, tuple((new, col(old)) for old, new in domain.items())), tuple(domain.values())
    )
    bound = _bind(context, inner, values, domain)
    condition = all_same(domain.items())
    return Pulled(bound, (condition,) if condition is not None else ())


def _bind(context: Context, node: Node, domain: Node, names: dict[str, str]) -> Node:
    """The node's rows for every row of the domain, whose columns are added."""
    if not free_columns(node) & set(names):
        return Join("inner", domain, node)

    def there(expression: exp.Expr) -> exp.Expr:
        return substitute(expression, {old: col(new) for old, new in names.items()})

    def named(items: Named) -> Named:
        return tuple((name, there(expression)) for name, expression in items)

    keys = tuple(names.values())
    match node:
        case Filter():
            return Filter(_bind(context, node.child, domain, names), there(node.condition))
        case Project():
            child = _bind(context, node.child, domain, names)
            return Project(child, (*named(node.items), *((key, col(key)) for key in keys)))
        case Generate():
            return replace(
                node, child=_bind(context, node.child, domain, names), function=there(node.function)
            )
        case Window():
            child = _bind(context, node.child, domain, names)
            return Window(child, node.partition + keys, partition_also(named(node.items), keys))
        case TopN():
            child = _bind(context, node.child, domain, names)
            order = tuple(there(item) for item in node.order)
            return replace(node, child=child, order=order, partition=node.partition + keys)
        case Aggregate(keys=()):
            grouped = Aggregate(_bind(context, node.child, domain, names), keys, named(node.aggregates))
            return _with_empty_groups(context, grouped, domain, node)
        case Aggregate():
            child = _bind(context, node.child, domain, names)
            return Aggregate(child, node.keys + keys, named(node.aggregates))
        case UnionAll():
            return UnionAll(
                tuple(_aligned(_bind(context, b, domain, names), b.columns + keys) for b in node.branches)
            )
        case SetOperation():
            left = _aligned(_bind(context, node.left, domain, names), node.columns + keys)
            right = _aligned(_bind(context, node.right, domain, names), node.columns + keys)
            return SetOperation(node.kind, node.all, left, right)
        case Join():
            return _bind_join(context, node, domain, names)
    raise Unplannable(f"a correlated {type(node).__name__}")


def _bind_join(context: Context, node: Join, domain: Node, names: dict[str, str]) -> Node:
    mapping = {old: col(new) for old, new in names.items()}
    on = substitute(node.on, mapping) if node.on is not None else None
    matches = substitute(node.matches, mapping) if node.matches is not None else None
    left = _bind(context, node.left, domain, names)
    right = node.right
    if free_columns(right) & set(names):
        second = {old: context.names.fresh(old) for old in names}
        again = Project(domain, tuple((second[old], col(new)) for old, new in names.items()))
        right = _bind(context, right, again, second)
        pairs = [(names[old], second[old]) for old in names]
        on = conjunction([*conjuncts(on), *conjuncts(all_same(pairs))])
        if node.kind in ("inner", "left"):
            keep = [name for name in (*left.columns, *right.columns) if name not in second.values()]
            joined = Join(node.kind, left, right, on)
            return Project(joined, tuple((name, col(name)) for name in keep))
    return replace(node, left=left, right=right, on=on, matches=matches)


def _aligned(node: Node, columns: tuple[str, ...]) -> Node:
    return Project(node, tuple((name, col(name)) for name in columns))


def _with_empty_groups(context: Context, grouped: Aggregate, domain: Node, original: Aggregate) -> Node:
    """An aggregate without GROUP BY has a row for no input rows too: give the domain's lonely rows one."""
    if not all(is_aggregate_call(item, context.aggregates) for _, item in original.aggregates):
        raise Unplannable("an aggregate that is no aggregate call")
    inner = {key: context.names.fresh(key) for key in grouped.keys}
    renamed = {name: context.names.fresh(name) for name, _ in original.aggregates}
    found = context.names.fresh("found")
    items = [(inner[key], col(key)) for key in grouped.keys]
    items += [(renamed[name], col(name)) for name, _ in original.aggregates]
    right = Project(grouped, (*items, (found, exp.true())))
    joined = Join("left", domain, right, all_same(inner.items()))
    values = tuple((name, filled(col(renamed[name]), item, col(found))) for name, item in original.aggregates)
    return Project(joined, passing(domain) + values)
