"""Hundreds of refreshes: as quick at the end as at the beginning, and nothing left behind."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.lake.many_refreshes import ROUNDS, Held, Kept

ROOT = Path(__file__).parents[2]


def test_hundreds_of_refreshes_stay_quick_and_leave_nothing(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "tests.lake.many_refreshes", str(tmp_path / "lake")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    said = json.loads(ran.stdout)
    tables = {name: Kept(**table) for name, table in said["tables"].items()}
    assert sum(table.refreshes for table in tables.values()) >= 300
    for name, table in tables.items():
        assert table.actions == ["DIFFERENTIAL"], name
        took = f"{name} took {table.early_ms:.0f} ms and now takes {table.late_ms:.0f} ms"
        assert table.late_ms < 2 * table.early_ms + 50, took
        assert table.holds, name
        assert table.files < 6 * ROUNDS, f"{name} has {table.files} files"
    assert said["counted"] == said["in_source"]
    then, now = (Held(**mark) for mark in said["held"])
    assert now.jvm - then.jvm < 32 << 20, "the JVM holds more and more"
    assert now.python - then.python < 128 << 20, "Python holds more and more"
    assert now.threads <= then.threads + 2
    assert said["views"] <= 70, "views of old versions are dropped"
    assert now.frames <= then.frames + 5, (
        "Delta keeps the states of a few tables, and nothing of ours is cached"
    )
