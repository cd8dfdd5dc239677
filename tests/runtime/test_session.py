"""What the JVM of the embedded session is told."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SHOW_COLLECTORS = """
import json, sys, headrace
with headrace.connect(warehouse=sys.argv[1], driver_memory="1g") as hr:
    beans = hr.spark._jvm.java.lang.management.ManagementFactory.getGarbageCollectorMXBeans()
    print(json.dumps([bean.getName() for bean in beans]))
"""


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ("", "PS MarkSweep"),
        ("-XX:+UseG1GC", "G1 Old Generation"),
        ("-XX:TieredStopAtLevel=1 -XX:+UseSerialGC", "MarkSweepCompact"),
    ],
)
def test_few_cores_are_left_to_the_refreshes_unless_another_collector_is_asked_for(
    tmp_path: Path, asked: str, found: str
) -> None:
    if not asked and (os.cpu_count() or 1) > 4:
        found = "G1 Old Generation"
    ran = subprocess.run(
        [sys.executable, "-c", SHOW_COLLECTORS, str(tmp_path / "lake")],
        env={**os.environ, "SPARK_SUBMIT_OPTS": asked},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    assert found in json.loads(ran.stdout)
