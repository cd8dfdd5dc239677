"""What Headrace needs from the machine: a Java to run Spark, and the jars that Spark loads."""

from __future__ import annotations

from headrace.runtime.jars import ensure_jars
from headrace.runtime.java import Java, find_java

__all__ = ["Java", "ensure_jars", "find_java"]
