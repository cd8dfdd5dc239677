"""Functions that the user registered in the session: which aggregate, which do not repeat their value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession

from headrace.runtime.analyzed import analyzed_plan, kind_of, nodes_of

_AGGREGATES = frozenset({"PythonUDAF", "ScalaUDAF", "ScalaAggregator", "HiveUDAFFunction"})
_NAMES = ("name", "udfName", "aggregatorName")


@dataclass(frozen=True)
class UserFunctions:
    """The registered functions that a query calls, by name in lower case."""

    aggregates: frozenset[str] = frozenset()
    non_deterministic: frozenset[str] = frozenset()


def user_functions(spark: SparkSession, query: str) -> UserFunctions:
    """Ask Spark what the registered functions of a query are; a Spark Connect session does not tell."""
    nodes = list(nodes_of(analyzed_plan(spark, query)))
    return UserFunctions(
        frozenset(_name(node) for node in nodes if kind_of(node) in _AGGREGATES),
        frozenset(_name(node) for node in nodes if node.get("udfDeterministic") is False),
    )


def _name(call: dict[str, Any]) -> str:
    return next((str(call[key]) for key in _NAMES if call.get(key)), "").lower()
