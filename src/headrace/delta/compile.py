"""A plan and the set of changed sources to the query of its change."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property, lru_cache

from headrace.delta.contract import consolidated
from headrace.delta.differ import Differ, Rule
from headrace.delta.dispatch import RULES
from headrace.delta.kept import kept_plan
from headrace.delta.keyed import root_groups
from headrace.delta.state import state_plan
from headrace.plan.build import Plan
from headrace.plan.nodes import Node, Scan, State, sources, walk
from headrace.plan.render import Binding, render
from headrace.sql.names import TableName


@dataclass(frozen=True)
class Step:
    """One operator of the explanation: its depth, what serves it and why, and the state it can use."""

    depth: int
    operator: str
    family: str
    why: str
    state: str = "none"

    def __str__(self) -> str:
        return f"{'  ' * self.depth}{self.operator}  [{self.family}: {self.why}]"


@dataclass(frozen=True, eq=False)
class ChangePlan:
    """The change of a query, given which of its sources changed."""

    plan: Plan
    changed: frozenset[TableName]
    change: Node | None
    rules: dict[int, Rule] = field(repr=False)

    @property
    def empty(self) -> bool:
        """Whether nothing the query reads changed."""
        return self.change is None

    @property
    def columns(self) -> tuple[str, ...]:
        return self.plan.columns

    @cached_property
    def reads(self) -> frozenset[tuple[TableName, State]]:
        """What the binding will be asked for."""
        if self.change is None:
            return frozenset()
        found = {(n.source, n.state) for n in walk(self.change) if isinstance(n, Scan)}
        if not found:
            names = sources(self.plan.root)
            found = {(name, state) for name in names for state in (State.OLD, State.NEW)}
        return frozenset(found)

    def sql(self, binding: Binding, *, dialect: str = "spark", pretty: bool = False) -> str:
        """The query of the change: the output columns and the net weight, which is never 0."""
        if self.change is None:
            raise ValueError("nothing changed, so there is no query")
        return render(consolidated(self.change), binding, dialect=dialect, pretty=pretty)

    def explain(self) -> list[Step]:
        """Every operator with the rule family that serves it, root first."""
        at_root, inside = state_plan(self.plan), kept_plan(self.plan)
        states = {id(groups.node): groups.state for groups in inside.groups} if inside is not None else {}
        if at_root is not None:
            states[id(root_groups(self.plan.root)[1])] = at_root
        named = {key: ", ".join(column.name for column in state.columns) for key, state in states.items()}
        return _steps(self.plan.root, self.rules, named, 0)


def _steps(node: Node, rules: dict[int, Rule], state: dict[int, str], depth: int) -> list[Step]:
    rule = rules.get(id(node), Rule("bilinear", "part of the join above"))
    steps = [Step(depth, _described(node), rule.family, rule.why, state.get(id(node), "none"))]
    for child in node.inputs:
        steps += _steps(child, rules, state, depth + 1)
    return steps


def _described(node: Node) -> str:
    match node:
        case Scan():
            return f"Scan {node.source}"
    kind = getattr(node, "kind", "")
    return f"{type(node).__name__}{' ' + kind if kind else ''}"


@lru_cache(maxsize=1024)
def compile_change(plan: Plan, changed: frozenset[TableName]) -> ChangePlan:
    """Derive the change of a plan's result from the changes of some of its sources."""
    differ = Differ(changed, RULES)
    change = differ.change(plan.root)
    return ChangePlan(plan, changed, change, differ.rules)


def query_sql(plan: Plan, binding: Binding, *, dialect: str = "spark", pretty: bool = False) -> str:
    """The query itself as the plan computes it, ties decided, over the sources' new state."""
    return render(plan.root, binding, dialect=dialect, pretty=pretty)
