"""The Spark session: one of our own for an embedded lake, or the user's, checked for Delta."""

from __future__ import annotations

import logging
import os
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark import SparkContext
from pyspark.sql import SparkSession

from headrace.config import Settings
from headrace.errors import HeadraceError
from headrace.runtime.jars import ensure_jars
from headrace.runtime.java import find_java

DELTA_EXTENSION = "io.delta.sql.DeltaSparkSessionExtension"
DELTA_CATALOG = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
_JVM_VARIABLES = ("SPARK_SUBMIT_OPTS", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS")
_FEW_CORES = 4
_LOG_CONFIGURATION = Path(__file__).with_name("log4j2.properties")


def embedded_session(settings: Settings, warehouse: Path) -> SparkSession:
    """Open a local session whose tables live in `warehouse`; sessions of one process share one JVM."""
    context = SparkContext._active_spark_context or _start_context(settings)
    if DELTA_EXTENSION not in (context.getConf().get("spark.sql.extensions") or ""):
        raise HeadraceError(
            "spark_session_exists",
            "This process already runs a Spark session without Delta.",
            hint="Pass it configured for Delta as connect(spark=…), or stop it first.",
        )
    # A JVM session of its own has its own catalog: two lakes in one process do not see each other's names.
    options = context._jvm.java.util.HashMap()  # type: ignore[union-attr]  # a running context has its JVM
    for key, value in _session_options(settings, warehouse).items():
        options.put(key, value)
    session_class = SparkSession._get_j_spark_session_class(context._jvm)
    return SparkSession(context, session_class(context._jsc.sc(), options))


def check_session(spark: SparkSession) -> None:
    """Refuse a user's session in which Delta is not configured, naming each missing line."""
    missing = []
    if DELTA_EXTENSION not in (spark.conf.get("spark.sql.extensions", "") or ""):
        missing.append(f"spark.sql.extensions={DELTA_EXTENSION}")
    if spark.conf.get("spark.sql.catalog.spark_catalog", "") != DELTA_CATALOG:
        missing.append(f"spark.sql.catalog.spark_catalog={DELTA_CATALOG}")
    if not _has_delta_classes(spark):
        missing.append("spark.jars.packages=io.delta:delta-spark_4.2_2.13:4.4.0")
    if missing:
        raise HeadraceError(
            "delta_not_configured",
            "The Spark session is not configured for Delta Lake: " + "; ".join(missing) + " is missing.",
            hint="Set these before the session starts, or let headrace.connect(warehouse=…) make one.",
        )


def has_jvm(spark: SparkSession) -> bool:
    """Tell whether the session runs in our process; a Spark Connect session has no JVM handle."""
    return getattr(spark, "_jsparkSession", None) is not None


def _has_delta_classes(spark: SparkSession) -> bool:
    if not has_jvm(spark):
        return True
    loader = spark._jvm.org.apache.spark.util.Utils  # type: ignore[union-attr]  # has_jvm was asked
    return bool(loader.classIsLoadable(DELTA_CATALOG))


def _start_context(settings: Settings) -> SparkContext:
    # PySpark starts the Java of JAVA_HOME, which may be older than the one we found.
    os.environ["JAVA_HOME"] = str(find_java().home)
    # PySpark logs every analysis error as JSON; we raise it with a code and a hint instead.
    logging.getLogger("SQLQueryContextLogger").disabled = True
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    # User-defined functions run in the Python that defined them, with its packages.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName("headrace").master(settings.master)
    for key, value in _context_options(settings).items():
        builder = builder.config(key, value)
    if settings.log_level.upper() == "DEBUG":
        context = builder.getOrCreate().sparkContext
    else:
        with _quiet_launch():
            context = builder.getOrCreate().sparkContext
    context.setLogLevel("OFF" if settings.log_level.upper() != "DEBUG" else "WARN")
    return context


@contextmanager
def _quiet_launch() -> Iterator[None]:
    """Keep what the launcher and the JVM say while they start from the terminal, unless they fail.

    They print about modules, jars and log levels before our log configuration is read. What the JVM writes
    to its standard error afterwards comes through.
    """
    reading, writing = os.pipe()
    terminal = os.dup(2)
    said: list[bytes] = []
    started = threading.Event()

    def forward() -> None:
        with open(reading, "rb", buffering=0) as output:
            while text := output.read(1 << 16):
                if started.is_set():
                    os.write(terminal, text)
                else:
                    said.append(text)

    threading.Thread(target=forward, name="headrace-jvm-stderr", daemon=True).start()
    sys.stderr.flush()
    os.dup2(writing, 2)
    os.close(writing)
    try:
        yield
    except BaseException:
        os.write(terminal, b"".join(said))
        raise
    finally:
        started.set()
        os.dup2(terminal, 2)


def _context_options(settings: Settings) -> dict[str, str]:
    """List what the JVM must know at its start."""
    return {
        "spark.jars": ",".join(str(jar) for jar in ensure_jars(settings.jars_dir)),
        "spark.sql.extensions": DELTA_EXTENSION,
        "spark.sql.catalog.spark_catalog": DELTA_CATALOG,
        "spark.sql.catalogImplementation": "in-memory",
        "spark.driver.memory": settings.driver_memory,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": " ".join(_java_options()),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        # Spark's memory of past stages and plans for pages that nobody opens here; a thousand fill a heap.
        "spark.ui.retainedStages": "100",
        "spark.ui.retainedTasks": "1000",
        "spark.sql.ui.retainedExecutions": "20",
        # A service refreshes many plans in turn; beyond so many, Spark would compile each one anew.
        "spark.sql.codegen.cache.maxEntries": "2000",
        "spark.scheduler.mode": "FAIR",
        **{
            key: value
            for key, value in settings.spark_conf.items()
            if not key.startswith(("spark.sql.", "spark.databricks."))
        },
    }


def _java_options() -> Iterator[str]:
    """List what our JVM is told, beside what the environment tells every JVM."""
    yield f"-Dlog4j2.configurationFile={_LOG_CONFIGURATION.as_uri()}"
    told = " ".join(os.environ.get(name, "") for name in _JVM_VARIABLES)
    # Where cores are few, a collector that works beside the program takes them from the refreshes. A JVM that
    # is told of two collectors does not start.
    if (os.cpu_count() or 1) <= _FEW_CORES and not re.search(r"-XX:\+Use\w*GC\b", told):
        yield "-XX:+UseParallelGC"


def _session_options(settings: Settings, warehouse: Path) -> dict[str, str]:
    """List what one lake's session needs; Delta's own defaults are made for big clusters."""
    cores = os.cpu_count() or 2
    return {
        "spark.sql.warehouse.dir": str(warehouse),
        "spark.sql.shuffle.partitions": str(cores),
        "spark.databricks.delta.snapshotPartitions": "2",
        "spark.databricks.delta.writeChecksumFile.enabled": "false",
        "spark.sql.sources.parallelPartitionDiscovery.parallelism": str(cores),
        # Up to so many files that are named one by one are looked at here, not by a job of Spark's.
        "spark.sql.sources.parallelPartitionDiscovery.threshold": "1000",
        **{
            key: value
            for key, value in settings.spark_conf.items()
            if key.startswith(("spark.sql.", "spark.databricks."))
        },
    }
