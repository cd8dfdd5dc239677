"""Temporary views, and frames that Spark keeps, for the length of one refresh."""

from __future__ import annotations

import uuid

from pyspark.sql import DataFrame, SparkSession


class Views:
    """Names for frames in SQL; none is left when the block ends."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._names: list[str] = []
        self._held: list[DataFrame] = []

    def add(self, frame: DataFrame) -> str:
        name = f"__hr_{uuid.uuid4().hex}"
        frame.createOrReplaceTempView(name)
        self._names.append(name)
        return name

    def hold(self, frame: DataFrame) -> DataFrame:
        """Let Spark keep the rows of a frame when it has computed them, for those who read it again."""
        self._held.append(frame.persist())
        return frame

    def __enter__(self) -> Views:
        return self

    def __exit__(self, *_: object) -> None:
        for name in self._names:
            self._spark.catalog.dropTempView(name)
        for frame in self._held:
            frame.unpersist()
