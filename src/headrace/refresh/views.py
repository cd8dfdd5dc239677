"""Temporary views, and frames that Spark keeps, for the length of one refresh."""

from __future__ import annotations

import uuid
from contextlib import ExitStack

from pyspark.sql import DataFrame, SparkSession


class Views:
    """Names for frames in SQL; none is left when the block ends."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._views, self._held = ExitStack(), ExitStack()

    def add(self, frame: DataFrame) -> str:
        name = f"__hr_{uuid.uuid4().hex}"
        frame.createOrReplaceTempView(name)
        self._views.callback(self._spark.catalog.dropTempView, name)
        return name

    def hold(self, frame: DataFrame) -> DataFrame:
        """Let Spark keep the rows of a frame when it has computed them, for those who read it again."""
        self._held.callback(frame.persist().unpersist)
        return frame

    def __enter__(self) -> Views:
        return self

    def __exit__(self, *_: object) -> None:
        # Frames first: Spark plans kept ones anew when a view that they read goes.
        with self._views, self._held:
            pass
