"""Operators to their change: the change contract, one dispatch, one module per rule family."""

from __future__ import annotations

from headrace.delta.compile import ChangePlan, Step, compile_change, query_sql
from headrace.delta.keyed import KeyedChange, keyed_change
from headrace.delta.state import StateColumn, StatePlan, state_plan
from headrace.plan.build import Plan, plan_query
from headrace.plan.nodes import State
from headrace.plan.render import Binding
from headrace.plan.repeatable import unrepeatable

__all__ = [
    "Binding",
    "ChangePlan",
    "KeyedChange",
    "Plan",
    "State",
    "StateColumn",
    "StatePlan",
    "Step",
    "compile_change",
    "keyed_change",
    "plan_query",
    "query_sql",
    "state_plan",
    "unrepeatable",
]
