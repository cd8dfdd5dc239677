"""How many Spark jobs a piece of work started."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from pyspark.sql import SparkSession

from headrace.runtime.session import has_jvm


@dataclass
class JobCount:
    """Filled in when the work is done."""

    count: int = 0


@contextmanager
def count_jobs(spark: SparkSession, description: str) -> Iterator[JobCount]:
    """Count the jobs of this thread's work; a Spark Connect session does not tell, and counts none."""
    jobs = JobCount()
    if not has_jvm(spark):
        yield jobs
        return
    context, group = spark.sparkContext, f"headrace-{uuid.uuid4().hex}"
    context.setJobGroup(group, description)
    try:
        yield jobs
    finally:
        jobs.count = len(context.statusTracker().getJobIdsForGroup(group))
        context._jsc.clearJobGroup()
