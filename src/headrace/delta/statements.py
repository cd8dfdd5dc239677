"""The statements of a change: one list for running it, for explaining it, and for a dry run.

There are up to five routes, cheapest first; which of them can be taken is known when the change is there.
Each is a short list of queries, of which later ones read what earlier ones gave.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TypeAlias

from sqlglot import parse_one

from headrace.delta.compile import ChangePlan, compile_change
from headrace.delta.contract import consolidated
from headrace.delta.first import FirstRows, first_rows
from headrace.delta.kept import KeptGroups, KeptPlan, is_kept, kept_plan
from headrace.delta.keyed import KeyedChange, keyed_change
from headrace.delta.parts import MOST_OPERATORS, Part, in_parts, operators, with_made
from headrace.delta.state import StatePlan, state_plan
from headrace.plan.build import Plan
from headrace.plan.hidden import WEIGHT
from headrace.plan.nodes import Node, State
from headrace.plan.render import Binding, render
from headrace.sql.dialect import VerbatimSpark
from headrace.sql.names import TableName, quote

Relations: TypeAlias = Mapping[str, str]
"""What stands after FROM for the results of earlier statements, by their names."""

Writer: TypeAlias = Callable[[Binding, Relations], str]

# What a route is given beside the sources: the stored rows, and the state of the touched groups, old and new.
STORED, SIDES = "stored", "sides"


class Route(StrEnum):
    """The ways from the changes of the sources to the change of the result."""

    STATE = "state of the groups"
    KEPT = "state of the groups inside the query"
    REPLACEMENT = "replacement by key"
    FIRST = "first rows in an order"
    CHANGE = "change query"


@dataclass(frozen=True)
class Statement:
    """One query of a refresh."""

    name: str
    purpose: str
    write: Writer
    parts: tuple[Statement, ...] = ()
    """What it reads several times, to be computed before it."""


@dataclass(frozen=True, eq=False)
class Statements:
    """The queries of one route; `keys` are those of the output columns that tell its groups apart."""

    route: Route
    listed: tuple[Statement, ...]
    keys: tuple[str, ...] = ()
    state: StatePlan | None = None
    touched: Node | None = None
    """The plan of the statement "keys", for who need not ask Spark for them."""
    rows: Node | None = None
    """The plan of the statement "now"."""
    first: FirstRows | None = None
    kept: KeptPlan | None = None

    def shown(self, binding: Binding) -> list[tuple[str, str]]:
        """Write all of them for reading: each purpose with its SQL, earlier results by their names."""
        every = [statement for one in self.listed for statement in (*one.parts, one)]
        relations = {name: quote(name) for name in (STORED, SIDES, *(one.name for one in every))}
        texts = ((one.purpose, one.write(binding, relations)) for one in every)
        return [(purpose, _pretty(text)) for purpose, text in texts]

    def statement(self, name: str) -> Statement:
        (found,) = (one for one in self.listed if one.name == name)
        return found

    def sql(self, name: str, binding: Binding, relations: Relations | None = None) -> str:
        """Write one statement of the list."""
        return self.statement(name).write(binding, relations or {})


def _pretty(text: str) -> str:
    return parse_one(text, dialect=VerbatimSpark).sql(VerbatimSpark, pretty=True)


def change_statements(plan: Plan, changed: frozenset[TableName]) -> Iterator[Statements]:
    """Give the routes for a change of some sources, cheapest first; none where it cannot reach the result."""
    compiled = compile_change(plan, changed)
    if compiled.empty:
        return
    kept = kept_plan(plan)
    if kept is not None:
        by_kept = _by_kept(kept, changed)
        if by_kept is not None:
            yield by_kept
    by_state = state_plan(plan)
    if by_state is not None and _is_small(by_state.input_change(changed)):
        yield _by_state(by_state, changed)
    keyed = keyed_change(plan, changed)
    if keyed is not None:
        yield _by_replacement(plan, keyed)
    first = first_rows(plan, changed)
    if first is not None:
        yield _by_first(first)
    yield _by_change(compiled)


def tried_statements(plan: Plan, changed: frozenset[TableName]) -> Iterator[Statements]:
    """Give the routes that a refresh tries, in this order; the last one can always be taken."""
    for statements in change_statements(plan, changed):
        yield statements
        if statements.route in (Route.REPLACEMENT, Route.CHANGE):
            return


def changed_with_groups(kept: KeptPlan, changed: frozenset[TableName]) -> frozenset[TableName]:
    """Name what changes for the query over its kept groups: the sources, and the groups that they change."""
    for groups in kept.groups:
        if groups.state.input_change(changed) is not None:
            changed |= {groups.source}
    return changed


def _is_small(change: Node | None) -> bool:
    """Tell whether there is a change, and one that Spark plans in one piece."""
    return change is not None and operators(change) <= MOST_OPERATORS


def _by_change(compiled: ChangePlan) -> Statements:
    assert compiled.change is not None
    columns = ", ".join(map(quote, (*compiled.columns, WEIGHT)))
    parts, root = in_parts(consolidated(compiled.change))

    def change(binding: Binding, relations: Relations) -> str:
        return f"SELECT {columns} FROM ({render(root, with_made(binding, relations))})"

    purpose = "the change of the result, with how often each row comes or goes"
    return Statements(Route.CHANGE, (Statement("change", purpose, change, _statements(parts)),))


def _writer(root: Node) -> Writer:
    return lambda binding, relations: render(root, with_made(binding, relations))


def _statements(parts: Sequence[Part]) -> tuple[Statement, ...]:
    purpose = "a part that is read several times, computed once"
    return tuple(Statement(part.name, purpose, _writer(part.node)) for part in parts)


def _by_state(state: StatePlan, changed: frozenset[TableName]) -> Statements:
    initial, added = _writers_of(state, changed)

    def shown(_: Binding, relations: Relations) -> str:
        items = ", ".join(f"{sql} AS {quote(name)}" for name, sql in state.output_sql())
        where = f" WHERE {state.having_sql()}" if state.having_sql() else ""
        return f"SELECT {items}, {WEIGHT} FROM {relations[SIDES]}{where}"

    listed = (
        Statement("state", "the state of all groups, where none is kept yet", initial),
        Statement("added", "what the change adds to each group", added),
        Statement("change", "the rows of the touched groups, before and after", shown),
    )
    return Statements(Route.STATE, listed, state.keys, state)


def _writers_of(state: StatePlan, changed: frozenset[TableName]) -> tuple[Writer, Writer]:
    """Write the whole state of groups, and what a change adds to it."""

    def initial(binding: Binding, _: Relations) -> str:
        return state.initial_sql(lambda name, _: binding(name, State.OLD))

    def added(binding: Binding, _: Relations) -> str:
        sql = state.change_sql(changed, binding)
        assert sql is not None
        return sql

    return initial, added


def _by_kept(kept: KeptPlan, changed: frozenset[TableName]) -> Statements | None:
    """Bring the groups inside the query up to date, then the query over them by the cheapest of its routes.

    Those that do not change are read as they are. None where the change of some is not for one query.
    """
    listed: list[Statement] = []
    for groups in kept.groups:
        change = groups.state.input_change(changed)
        if change is not None and not _is_small(change):
            return None
        listed += _of_groups(groups, changed)
        changed |= {groups.source} if change is not None else set()
    rest = next(tried_statements(kept.plan, changed), None)
    listed += map(_with_names, rest.listed) if rest is not None else ()
    return Statements(Route.KEPT, tuple(listed), kept=kept)


def _of_groups(groups: KeptGroups, changed: frozenset[TableName]) -> Iterator[Statement]:
    state, name = groups.state, groups.source.table
    initial, added = _writers_of(state, changed)
    yield Statement(f"{name} state", f"the state of all {name}, where none is kept yet", _named(initial))
    if state.input_change(changed) is not None:
        yield Statement(f"{name} added", f"what the change adds to each of {name}", _named(added))


def _with_names(statement: Statement) -> Statement:
    return replace(statement, write=_named(statement.write), parts=tuple(map(_with_names, statement.parts)))


def _named(write: Writer) -> Writer:
    """Name groups that are kept by what they hold; where they are is for the refresh to say."""

    def named(binding: Binding, relations: Relations) -> str:
        def bind(name: TableName, state: State) -> str:
            return quote(f"{name.table} @ {state.value}") if is_kept(name) else binding(name, state)

        return write(bind, relations)

    return named


def _by_first(first: FirstRows) -> Statements:
    below_parts, below = in_parts(first.below)
    now_parts, now = in_parts(first.now, "row_part")

    purpose = "the change of the rows that are ordered, which gives the first ones with those stored"
    listed = (
        Statement("below", purpose, _writer(below), _statements(below_parts)),
        Statement(
            "now", "the first rows of all, where stored ones went", _writer(now), _statements(now_parts)
        ),
    )
    return Statements(Route.FIRST, listed, first=first)


def _by_replacement(plan: Plan, keyed: KeyedChange) -> Statements:
    columns = ", ".join(map(quote, plan.columns))
    same = " AND ".join(f"t.{quote(key)} <=> k.{quote(key)}" for key in keyed.keys)

    def change(_: Binding, relations: Relations) -> str:
        return (
            f"SELECT {columns}, SUM({WEIGHT}) AS {WEIGHT} FROM ("
            f"SELECT {columns}, 1 AS {WEIGHT} FROM {relations['now']} UNION ALL "
            f"SELECT {columns}, -1 AS {WEIGHT} FROM {relations[STORED]} AS t "
            f"LEFT SEMI JOIN {relations['keys']} AS k ON {same}) GROUP BY {columns} HAVING SUM({WEIGHT}) <> 0"
        )

    key_parts, touched = in_parts(keyed.touched, "key_part")
    all_rows = keyed.rows_of("keys")
    row_parts, rows = in_parts(all_rows, "row_part")

    listed = (
        Statement("keys", "the keys that the change touches", _writer(touched), _statements(key_parts)),
        Statement("now", "the rows that these keys have now", _writer(rows), _statements(row_parts)),
        Statement("change", "the stored rows of these keys out, their rows of now in", change),
    )
    return Statements(Route.REPLACEMENT, listed, keyed.keys, touched=keyed.touched, rows=all_rows)
