"""A checked query to operators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from sqlglot import exp

from headrace.errors import HeadraceError
from headrace.plan.context import Built, Context, Definition, Environment
from headrace.plan.expressions import col
from headrace.plan.nodes import Node, Opaque, Project, SetOperation, UnionAll, free_columns
from headrace.plan.rewrites.aggregates import distinct
from headrace.plan.rewrites.prune import merge_projections, prune
from headrace.plan.rewrites.ties import decide_ties
from headrace.plan.scope import Scope, Unplannable, Visible
from headrace.plan.select import build_select, is_all, limit_rows
from headrace.sql.analysis import Analysis, Column
from headrace.sql.functions import AGGREGATES
from headrace.sql.names import TableName


@dataclass(frozen=True, eq=False)
class Plan:
    """A query as operators, with the names of its output columns."""

    root: Node
    analysis: Analysis
    groups: Mapping[TableName, Mapping[str, str]] = field(default_factory=dict)
    """Tables of groups that the plan reads beside the query's sources, with the types of their columns."""

    @property
    def columns(self) -> tuple[str, ...]:
        return self.root.columns

    def types_of(self, source: TableName) -> Mapping[str, str]:
        """The Spark types of a source's columns, in lower case, as far as they are known."""
        if source in self.groups:
            return self.groups[source]
        return {column.name: column.type.lower() for column in self.analysis.tables[source].columns}


def plan_query(
    analysis: Analysis,
    *,
    output: Sequence[str] | None = None,
    user_aggregates: frozenset[str] = frozenset(),
) -> Plan:
    """Plan a query; what has no operators becomes one opaque operator, which is still exact.

    `output` names the output columns as Spark does, which matters for expressions without an alias;
    `user_aggregates` are the names of registered functions that aggregate, in lower case. Plans are cached by
    definition and schema.
    """
    tables = tuple((name, table.columns) for name, table in sorted(analysis.tables.items()))
    named = None if output is None else tuple(output)
    return _plan(_Request(analysis.expanded, tables, named, user_aggregates, analysis))


@dataclass(frozen=True)
class _Request:
    """What a plan depends on, as the key of the cache; the analysis follows from the rest."""

    text: str
    tables: tuple[tuple[TableName, tuple[Column, ...]], ...]
    output: tuple[str, ...] | None
    user_aggregates: frozenset[str]
    analysis: Analysis = field(compare=False)


@lru_cache(maxsize=1024)
def _plan(request: _Request) -> Plan:
    analysis, output = request.analysis, request.output
    try:
        return Plan(_planned(analysis, output, AGGREGATES | request.user_aggregates), analysis)
    except Unplannable as reason:
        names = output or tuple(analysis.tree.named_selects)
        if "*" in names or not all(names):
            raise HeadraceError(
                "unknown_output_columns",
                f"The query is kept as text ({reason}), and the names of its columns are not known.",
                hint="Give the output columns as Spark names them.",
            ) from None
        return Plan(Opaque(analysis, names, str(reason)), analysis)


def _planned(analysis: Analysis, output: Sequence[str] | None, aggregates: frozenset[str]) -> Node:
    context = Context(build_query, aggregates=aggregates)
    built = build_query(context, analysis.tree, Environment(analysis), None)
    if unknown := free_columns(built.node):
        raise Unplannable(f"columns out of reach: {', '.join(sorted(unknown))}")
    users = tuple(output or (user for user, _ in built.columns))
    if len(users) != len(built.columns):
        raise Unplannable("another number of output columns")
    if len({user.lower() for user in users}) != len(users):
        raise Unplannable("output columns of one name")
    items = tuple((user, col(name)) for user, (_, name) in zip(users, built.columns, strict=True))
    return decide_ties(prune(merge_projections(Project(built.node, items))), context.unorderable)


def build_query(context: Context, query: exp.Expr, environment: Environment, outer: Scope | None) -> Built:
    """Plan a SELECT, a set operation, VALUES, or one of these in parentheses."""
    if with_ := query.args.get("with_"):
        if with_.recursive:
            raise Unplannable("a recursive CTE")
        for cte in with_.expressions:
            columns = tuple(column.name for column in cte.args["alias"].columns)
            environment = environment.with_cte(cte.alias, Definition(cte.this, environment, columns))
    match query:
        case exp.Select():
            return build_select(context, query, environment, outer)
        case exp.SetOperation():
            return _ordered(_set_operation(context, query, environment, outer), query)
        case exp.Subquery():
            return _ordered(build_query(context, query.this, environment, outer), query)
        case exp.Values():
            wrapped = exp.Select(expressions=[exp.Star()], from_=exp.From(this=query.copy()))
            return build_select(context, wrapped, environment, outer)
    raise Unplannable(f"a query of the kind {query.key}")


def _ordered(built: Built, query: exp.Expr) -> Built:
    """ORDER BY and LIMIT that stand after a set operation or parentheses see its output columns only."""
    if not query.args.get("limit") and not query.args.get("offset"):
        return built
    order = []
    scope = Scope(visible=built.columns)
    for entry in query.args["order"].expressions if query.args.get("order") else ():
        target = entry.this
        if is_all(target):
            resolved: list[exp.Expr] = [col(name) for _, name in built.columns]
        elif isinstance(target, exp.Literal) and not target.is_string:
            resolved = [col(built.columns[int(target.name) - 1][1])]
        elif isinstance(target, exp.Column):
            resolved = [scope.resolve([part.name for part in target.parts[-1:]])]
        else:
            raise Unplannable("ORDER BY of an expression over a set operation")
        flags = {flag: bool(entry.args.get(flag)) for flag in ("desc", "nulls_first")}
        order += [exp.Ordered(this=column, **flags) for column in resolved]
    return Built(limit_rows(built.node, query, order), built.columns)


def _set_operation(
    context: Context, query: exp.SetOperation, environment: Environment, outer: Scope | None
) -> Built:
    left = build_query(context, query.this, environment, outer)
    right = build_query(context, query.expression, environment, outer)
    chosen = _by_name(left, right) if query.args.get("by_name") else right.columns
    if len(chosen) != len(left.columns):
        raise Unplannable("a set operation over another number of columns")
    names = [context.names.fresh(user) for user, _ in left.columns]
    a, b = _as(left.node, left.columns, names), _as(right.node, chosen, names)
    columns = tuple((user, name) for (user, _), name in zip(left.columns, names, strict=True))
    unique = bool(query.args.get("distinct"))
    match query:
        case exp.Union():
            union = UnionAll((a, b))
            return Built(distinct(union) if unique else union, columns)
        case exp.Intersect():
            return Built(SetOperation("intersect", not unique, a, b), columns)
    return Built(SetOperation("except", not unique, a, b), columns)


def _as(node: Node, columns: Sequence[Visible], names: Sequence[str]) -> Node:
    return Project(node, tuple((name, col(old)) for name, (_, old) in zip(names, columns, strict=True)))


def _by_name(left: Built, right: Built) -> tuple[Visible, ...]:
    theirs = {user.lower(): (user, name) for user, name in right.columns}
    try:
        return tuple(theirs[user.lower()] for user, _ in left.columns)
    except KeyError as missing:
        raise Unplannable(f"UNION BY NAME without {missing}") from None
