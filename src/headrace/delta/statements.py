"""The statements of a change: one list for running it, for explaining it, and for a dry run.

There are up to three routes, cheapest first; which of them can be taken is known when the change is there.
Each is a short list of queries, of which later ones read what earlier ones gave.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from sqlglot import parse_one

from headrace.delta.compile import compile_change
from headrace.delta.keyed import KeyedChange, keyed_change
from headrace.delta.state import StatePlan, state_plan
from headrace.plan.build import Plan
from headrace.plan.hidden import WEIGHT
from headrace.plan.nodes import State
from headrace.plan.render import Binding
from headrace.sql.dialect import VerbatimSpark
from headrace.sql.names import TableName, quote

Relations: TypeAlias = Mapping[str, str]
"""What stands after FROM for the results of earlier statements, by their names."""

# What a route is given beside the sources: the stored rows, and the state of the touched groups, old and new.
STORED, SIDES = "stored", "sides"


class Route(StrEnum):
    """The ways from the changes of the sources to the change of the result."""

    STATE = "state of the groups"
    REPLACEMENT = "replacement by key"
    CHANGE = "change query"


@dataclass(frozen=True)
class Statement:
    """One query of a refresh."""

    name: str
    purpose: str
    write: Callable[[Binding, Relations], str]


@dataclass(frozen=True, eq=False)
class Statements:
    """The queries of one route; `keys` are those of the output columns that tell its groups apart."""

    route: Route
    listed: tuple[Statement, ...]
    keys: tuple[str, ...] = ()
    state: StatePlan | None = None

    def shown(self, binding: Binding) -> list[tuple[str, str]]:
        """Write all of them for reading: each purpose with its SQL, earlier results by their names."""
        relations = {name: quote(name) for name in (STORED, SIDES, *(one.name for one in self.listed))}
        texts = ((one.purpose, one.write(binding, relations)) for one in self.listed)
        return [(purpose, _pretty(text)) for purpose, text in texts]

    def sql(self, name: str, binding: Binding, relations: Relations | None = None) -> str:
        """Write one statement of the list."""
        (statement,) = (one for one in self.listed if one.name == name)
        return statement.write(binding, relations or {})


def _pretty(text: str) -> str:
    return parse_one(text, dialect=VerbatimSpark).sql(VerbatimSpark, pretty=True)


def change_statements(plan: Plan, changed: frozenset[TableName]) -> Iterator[Statements]:
    """Give the routes for a change of some sources, cheapest first; none where it cannot reach the result."""
    compiled = compile_change(plan, changed)
    if compiled.empty:
        return
    by_state = state_plan(plan)
    if by_state is not None and by_state.input_change(changed) is not None:
        yield _by_state(by_state, changed)
    keyed = keyed_change(plan, changed)
    if keyed is not None:
        yield _by_replacement(plan, keyed)
    columns = ", ".join(map(quote, (*plan.columns, WEIGHT)))
    purpose = "the change of the result, with how often each row comes or goes"
    whole = Statement(
        "change", purpose, lambda binding, _: f"SELECT {columns} FROM ({compiled.sql(binding)})"
    )
    yield Statements(Route.CHANGE, (whole,))


def _by_state(state: StatePlan, changed: frozenset[TableName]) -> Statements:
    def initial(binding: Binding, _: Relations) -> str:
        return state.initial_sql(lambda name, _: binding(name, State.OLD))

    def added(binding: Binding, _: Relations) -> str:
        sql = state.change_sql(changed, binding)
        assert sql is not None
        return sql

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

    listed = (
        Statement("keys", "the keys that the change touches", lambda binding, _: keyed.keys_sql(binding)),
        Statement(
            "now",
            "the rows that these keys have now",
            lambda binding, relations: keyed.rows_sql(binding, keys=relations["keys"]),
        ),
        Statement("change", "the stored rows of these keys out, their rows of now in", change),
    )
    return Statements(Route.REPLACEMENT, listed, keyed.keys)
