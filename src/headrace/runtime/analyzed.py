"""A query as Spark has analysed it, with every name resolved."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from pyspark.sql import SparkSession

from headrace.runtime.session import has_jvm


def analyzed_plan(spark: SparkSession, query: str) -> Any:
    """Give the plan as Spark writes it down; a Spark Connect session gives none."""
    if not has_jvm(spark):
        return None
    return json.loads(spark.sql(query)._jdf.queryExecution().analyzed().toJSON())


def nodes_of(part: Any) -> Iterator[dict[str, Any]]:
    """Yield every operator and expression of a plan, those inside others and inside subqueries too.

    >>> [node["class"] for node in nodes_of([{"class": "a", "list": [[{"class": "b"}]]}])]
    ['a', 'b']
    """
    if isinstance(part, dict):
        if "class" in part:
            yield part
        part = list(part.values())
    if isinstance(part, list):
        for item in part:
            yield from nodes_of(item)


def kind_of(node: dict[str, Any]) -> str:
    """Name the class of a node without its package."""
    return str(node["class"]).rpartition(".")[2]
