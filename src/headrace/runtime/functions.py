"""Functions that the user registered in the session: which aggregate, which do not repeat their value."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession

from headrace.runtime.session import has_jvm

_AGGREGATES = frozenset({"PythonUDAF", "ScalaUDAF", "ScalaAggregator", "HiveUDAFFunction"})
_NAMES = ("name", "udfName", "aggregatorName")


@dataclass(frozen=True)
class UserFunctions:
    """The registered functions that a query calls, by name in lower case."""

    aggregates: frozenset[str] = frozenset()
    non_deterministic: frozenset[str] = frozenset()


def user_functions(spark: SparkSession, query: str) -> UserFunctions:
    """Ask Spark what the registered functions of a query are; a Spark Connect session does not tell."""
    if not has_jvm(spark):
        return UserFunctions()
    plan = json.loads(spark.sql(query)._jdf.queryExecution().analyzed().toJSON())
    found = list(_calls(plan))
    return UserFunctions(
        frozenset(_name(call) for call in found if _kind(call) in _AGGREGATES),
        frozenset(_name(call) for call in found if call.get("udfDeterministic") is False),
    )


def _calls(part: Any) -> Iterator[dict[str, Any]]:
    if isinstance(part, dict):
        if _kind(part) in _AGGREGATES or "udfDeterministic" in part:
            yield part
        part = list(part.values())
    if isinstance(part, list):
        for item in part:
            yield from _calls(item)


def _kind(node: dict[str, Any]) -> str:
    return str(node.get("class", "")).rpartition(".")[2]


def _name(call: dict[str, Any]) -> str:
    return next((str(call[key]) for key in _NAMES if call.get(key)), "").lower()
