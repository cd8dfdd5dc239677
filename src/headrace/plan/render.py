"""Operators to SQL: for Spark, which runs it, and for DuckDB, in which the algebra is tried."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from sqlglot import exp

from headrace.plan.expressions import call, col, function_name
from headrace.plan.hidden import NOTHING, WEIGHT
from headrace.plan.nodes import (
    Aggregate,
    Constant,
    Filter,
    Generate,
    Join,
    Node,
    Opaque,
    Project,
    Scan,
    SetOperation,
    State,
    TopN,
    UnionAll,
    Window,
    walk,
)
from headrace.sql.dialect import VerbatimSpark
from headrace.sql.names import TableName

_LOOKS_LIKE_ALIAS = re.compile(r"t\d+", re.IGNORECASE)

Binding: TypeAlias = Callable[[TableName, State], str]
"""Gives the relation that holds a source at a state, as it stands in FROM: `` `s`.`t` VERSION AS OF 5 ``.

The change of a source has its columns and the weight."""


def render(node: Node, binding: Binding, *, dialect: str = "spark", pretty: bool = False) -> str:
    """The SQL of a plan; subplans that are used more than once become CTEs."""
    renderer = _Renderer(binding, dialect, _shared(node), _alias_prefix(node))
    query = renderer.query(node)
    for name, definition in renderer.ctes:
        query = query.with_(name, as_=definition, copy=False)
    # The tree was built for this text alone.
    return query.sql(dialect=VerbatimSpark if dialect == "spark" else dialect, pretty=pretty, copy=False)


def _shared(root: Node) -> frozenset[int]:
    uses: Counter[int] = Counter()
    for node in walk(root):
        uses.update({id(child): 1 for child in node.inputs})
    leaves = (Scan, Constant)
    return frozenset(id(n) for n in walk(root) if uses[id(n)] > 1 and not isinstance(n, leaves))


def _alias_prefix(root: Node) -> str:
    """Begin the names of relations so that none is a column's: `t1.k` is then a field of the column `t1`."""
    is_taken = any(_LOOKS_LIKE_ALIAS.fullmatch(name) for node in walk(root) for name in node.columns)
    return "__hr_t" if is_taken else "t"


@dataclass(frozen=True)
class _Block:
    """A SELECT in the making: joined relations, a filter, and, once it is closed, its columns."""

    source: exp.Expr
    joins: tuple[exp.Join, ...] = ()
    where: tuple[exp.Expr, ...] = ()
    closed: exp.Query | None = None


@dataclass
class _Renderer:
    binding: Binding
    dialect: str
    shared: frozenset[int]
    prefix: str
    ctes: list[tuple[str, exp.Query]] = field(default_factory=list)
    done: dict[int, str] = field(default_factory=dict)
    aliases: int = 0

    def query(self, node: Node) -> exp.Query:
        """The node as a query with exactly its columns, in their order."""
        block = self.block(node)
        return block.closed or _select(block, self._passed(node.columns))

    def block(self, node: Node) -> _Block:
        if id(node) in self.shared:
            return self._cte(node)
        return self._render(node)

    def _cte(self, node: Node) -> _Block:
        if id(node) not in self.done:
            block = self._render(node)
            query = block.closed or _select(block, self._passed(node.columns))
            name = f"__hr_{type(node).__name__.lower()}_{len(self.ctes) + 1}"
            self.done[id(node)] = name
            self.ctes.append((name, query))
        return _Block(self._aliased(exp.Table(this=exp.to_identifier(self.done[id(node)], quoted=True))))

    def _render(self, node: Node) -> _Block:
        match node:
            case Scan():
                return _Block(self._scan(node))
            case Constant():
                return _Block(self._constant(node))
            case Opaque():
                return _Block(self._opaque(node))
            case Project():
                items = [exp.alias_(e.copy(), n, quoted=True, copy=False) for n, e in node.items]
                return self._closed(node.child, items or self._passed(()))
            case Filter():
                block = self._open(node.child)
                return replace(block, where=(*block.where, node.condition))
            case Join():
                return self._join(node)
            case Aggregate():
                return self._aggregate(node)
            case Window():
                items = [exp.alias_(e.copy(), n, quoted=True, copy=False) for n, e in node.items]
                return self._closed(node.child, [*self._passed(node.child.columns), *items])
            case TopN():
                return self._topn(node)
            case Generate():
                return self._generate(node)
            case UnionAll():
                return _Block(exp.Null(), closed=self._union(node))
            case SetOperation():
                kind = exp.Intersect if node.kind == "intersect" else exp.Except
                left, right = self._operand(node.left), self._operand(node.right)
                return _Block(exp.Null(), closed=kind(this=left, expression=right, distinct=not node.all))
        raise TypeError(f"no way to render {type(node).__name__}")

    def _open(self, node: Node) -> _Block:
        block = self.block(node)
        return _Block(self._derived(block.closed)) if block.closed is not None else block

    def _closed(self, child: Node, items: Sequence[exp.Expr]) -> _Block:
        return _Block(exp.Null(), closed=_select(self._open(child), items))

    def _derived(self, query: exp.Query) -> exp.Expr:
        return self._aliased(exp.Subquery(this=query))

    def _aliased(self, relation: exp.Expr, columns: Sequence[str] = ()) -> exp.Expr:
        self.aliases += 1
        names = [exp.to_identifier(column, quoted=True) for column in columns]
        alias = exp.TableAlias(this=exp.to_identifier(f"{self.prefix}{self.aliases}"), columns=names)
        relation.set("alias", alias)
        return relation

    def _passed(self, columns: Sequence[str]) -> list[exp.Expr]:
        return [col(name) for name in columns] or [exp.alias_(exp.Literal.number(1), NOTHING, quoted=True)]

    def _scan(self, node: Scan) -> exp.Expr:
        items: list[exp.Expr] = [
            exp.alias_(col(column), name, quoted=True, copy=False) for name, column in node.names
        ]
        if node.state is State.CHANGE:
            items.append(col(WEIGHT))
        items = items or self._passed(())
        relation = exp.Var(this=self.binding(node.source, node.state))
        return self._derived(exp.Select(expressions=items, from_=exp.From(this=relation)))

    def _constant(self, node: Constant) -> exp.Expr:
        if isinstance(node.relation, exp.Query) and not isinstance(node.relation, exp.Values):
            return self._derived(node.relation.copy())
        return self._aliased(node.relation.copy(), node.names)

    def _opaque(self, node: Opaque) -> exp.Expr:
        def relation(name: TableName) -> str:
            state = node.state if name in node.changed else State.NEW
            return self.binding(name, state)

        text = exp.Var(this=f"({node.query.bound(relation)}\n)")
        return self._aliased(exp.Table(this=text), node.names)

    def _join(self, node: Join) -> _Block:
        block = self._open(node.left)
        if node.kind == "mark":
            return self._mark(block, node)
        right = self._open(node.right)
        plain = not right.joins and not right.where
        relation = right.source if plain else self._derived(_select(right, self._passed(node.right.columns)))
        side, kind = _JOIN_WORDS[node.kind]
        on = node.on
        if on is None and node.kind != "inner":
            on = exp.true()
        join = exp.Join(this=relation, side=side, kind="CROSS" if on is None else kind, on=on and on.copy())
        return replace(block, joins=(*block.joins, join))

    def _mark(self, block: _Block, node: Join) -> _Block:
        """A mark is true where EXISTS says so; a comparison adds: else null where one row leaves it null."""
        matched = [part for part in (node.on, node.matches) if part is not None]
        hit = self._exists(node.right, matched)
        mark = hit
        if node.matches is not None:
            null = exp.Is(this=exp.Paren(this=node.matches.copy()), expression=exp.null())
            doubt = self._exists(node.right, [*([node.on] if node.on is not None else []), null])
            mark = exp.Case(ifs=[exp.If(this=hit, true=exp.true()), exp.If(this=doubt, true=exp.null())])
            mark.set("default", exp.false())
        if self.dialect == "spark":
            mark = _held_in_place(mark)
        items = [*(col(name) for name in node.left.columns), exp.alias_(mark, node.mark, quoted=True)]
        return _Block(exp.Null(), closed=_select(block, items))

    def _exists(self, node: Node, conditions: Sequence[exp.Expr]) -> exp.Expr:
        block = self._open(node)
        block = replace(block, where=(*block.where, *conditions))
        return exp.Exists(this=_select(block, [exp.Literal.number(1)]))

    def _aggregate(self, node: Aggregate) -> _Block:
        keys = [col(key) for key in node.keys]
        values = [exp.alias_(e.copy(), n, quoted=True, copy=False) for n, e in node.aggregates]
        query = _select(self._open(node.child), [*keys, *values] or self._passed(()))
        if keys:
            query.set("group", exp.Group(expressions=[key.copy() for key in keys]))
        elif not values:
            query.set("having", exp.Having(this=exp.GTE(this=_count(), expression=exp.Literal.number(0))))
        return _Block(exp.Null(), closed=query)

    def _topn(self, node: TopN) -> _Block:
        if node.partition:
            return self._topn_by_partition(node)
        query = _select(self._open(node.child), self._passed(node.child.columns))
        query.set("order", exp.Order(expressions=[item.copy() for item in node.order]))
        if node.limit is not None:
            query.set("limit", exp.Limit(expression=exp.Literal.number(node.limit)))
        if node.offset:
            query.set("offset", exp.Offset(expression=exp.Literal.number(node.offset)))
        return _Block(self._derived(query))

    def _topn_by_partition(self, node: TopN) -> _Block:
        place = exp.Window(
            this=call("ROW_NUMBER"),
            partition_by=[col(key) for key in node.partition],
            order=exp.Order(expressions=[item.copy() for item in node.order]),
        )
        numbered = [*self._passed(node.child.columns), exp.alias_(place, "__hr_place", quoted=True)]
        block = _Block(self._derived(_select(self._open(node.child), numbered)))
        tests: list[exp.Expr] = []
        if node.limit is not None:
            last = exp.Literal.number(node.limit + node.offset)
            tests.append(exp.LTE(this=col("__hr_place"), expression=last))
        if node.offset:
            tests.append(exp.GT(this=col("__hr_place"), expression=exp.Literal.number(node.offset)))
        query = _select(replace(block, where=tuple(tests)), self._passed(node.columns))
        return _Block(exp.Null(), closed=query)

    def _generate(self, node: Generate) -> _Block:
        block = self._open(node.child)
        if block.joins or block.where:
            block = _Block(self._derived(_select(block, self._passed(node.child.columns))))
        if self.dialect == "duckdb":
            return self._generate_duckdb(node, block)
        self.aliases += 1
        columns = [exp.to_identifier(name, quoted=True) for name in node.names]
        lateral = exp.Lateral(
            this=node.function.copy(),
            view=True,
            outer=node.outer,
            alias=exp.TableAlias(this=exp.to_identifier(f"t{self.aliases}"), columns=columns),
        )
        query = _select(block, self._passed(node.columns))
        query.set("laterals", [lateral])
        return _Block(exp.Null(), closed=query)

    def _generate_duckdb(self, node: Generate, block: _Block) -> _Block:
        name = function_name(node.function) or ""
        array = node.function.args["expressions"][0]
        element = call("UNNEST", array.copy())
        items: list[exp.Expr] = [exp.alias_(element, node.names[-1], quoted=True)]
        if name.startswith("inline"):
            items = [
                exp.alias_(
                    call("STRUCT_EXTRACT_AT", element.copy(), exp.Literal.number(at)), part, quoted=True
                )
                for at, part in enumerate(node.names, start=1)
            ]
        if name.startswith("posexplode"):
            place = exp.Sub(
                this=call("GENERATE_SUBSCRIPTS", array.copy(), exp.Literal.number(1)),
                expression=exp.Literal.number(1),
            )
            items.insert(0, exp.alias_(place, node.names[0], quoted=True))
        rows = exp.Lateral(this=exp.Subquery(this=exp.Select(expressions=items)))
        outer = node.outer or name.endswith("_outer")
        join = exp.Join(this=self._aliased(rows), side="LEFT" if outer else None, on=exp.true())
        query = _select(replace(block, joins=(join,)), self._passed(node.columns))
        return _Block(exp.Null(), closed=query)

    def _union(self, node: UnionAll) -> exp.Query:
        union = self._operand(node.branches[0])
        for branch in node.branches[1:]:
            union = exp.Union(this=union, expression=self._operand(branch), distinct=False)
        return union

    def _operand(self, node: Node) -> exp.Query:
        query = self.query(node)
        plain = isinstance(query, exp.Select) and not query.args.get("order") and not query.args.get("limit")
        return (
            query
            if plain
            else exp.Select(expressions=[exp.Star()], from_=exp.From(this=self._derived(query)))
        )


_JOIN_WORDS = {
    "inner": (None, "INNER"),
    "left": ("LEFT", None),
    "semi": ("LEFT", "SEMI"),
    "anti": ("LEFT", "ANTI"),
}


def _count() -> exp.Expr:
    return call("COUNT", exp.Star())


def _select(block: _Block, items: Sequence[exp.Expr]) -> exp.Select:
    select = exp.Select(expressions=list(items), from_=exp.From(this=block.source))
    if block.joins:
        select.set("joins", list(block.joins))
    if block.where:
        select = select.where(*(condition.copy() for condition in block.where), copy=False)
    return select


# Joins that an optimizer may push into the branches of a UNION ALL on their left.
_KEEPS_LEFT = ("mark", "semi", "anti")


def _held_in_place(mark: exp.Expr) -> exp.Expr:
    """Keep Spark from moving a mark to other places of the query.

    Its optimizer loses the columns of the subquery where it computes the mark in each branch of a UNION ALL
    below it (PushProjectionThroughUnion), or draws conclusions from a filter by it in a branch of one above
    (UnionBase.rewriteConstraints): key not found. It leaves alone what it takes for random, such as the
    number of a partition, which is never negative.
    """
    never = exp.LT(this=call("SPARK_PARTITION_ID"), expression=exp.Literal.number(0))
    return exp.Case(ifs=[exp.If(this=never, true=exp.null())], default=mark)
