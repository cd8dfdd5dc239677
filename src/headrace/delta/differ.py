"""Derives the change of each operator from the changes and states of its inputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from headrace.delta.contract import at_state, require_change
from headrace.plan.nodes import Node, State
from headrace.sql.names import TableName

Family: TypeAlias = Literal["source", "linear", "bilinear", "by key", "whole"]


@dataclass(frozen=True)
class Rule:
    """Which family serves an operator, and why."""

    family: Family
    why: str


Change: TypeAlias = tuple[Node | None, Rule]
RuleFunction: TypeAlias = Callable[["Differ", Any], Change]


@dataclass
class Differ:
    """Derives changes, given which sources changed; each node's change is derived once and shared."""

    changed: frozenset[TableName]
    dispatch: Mapping[type[Node], RuleFunction]
    rules: dict[int, Rule] = field(default_factory=dict)
    _changes: dict[int, Node | None] = field(default_factory=dict)
    _states: dict[State, dict[int, Node]] = field(default_factory=lambda: {s: {} for s in State})
    _fresh: int = 0

    def change(self, node: Node) -> Node | None:
        """The plan of a node's change; None where it cannot change."""
        if id(node) not in self._changes:
            change, rule = self.dispatch[type(node)](self, node)
            self.rules[id(node)] = rule
            self._changes[id(node)] = require_change(change, node) if change is not None else None
        return self._changes[id(node)]

    def old(self, node: Node) -> Node:
        return at_state(node, State.OLD, self.changed, self._states[State.OLD])

    def new(self, node: Node) -> Node:
        return at_state(node, State.NEW, self.changed, self._states[State.NEW])

    def fresh(self, label: str) -> str:
        """A hidden column name that no other has."""
        self._fresh += 1
        return f"__hr_{label}{self._fresh}"
