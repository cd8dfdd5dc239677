"""What happened to a source: its history, its identity, its used columns."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace import Headrace
from headrace.sources.check import SourceEvent, SourceFinding, check_source
from tests.sources.exact import at, newest, source_of

TYPES = {"id": "int", "v": "string", "n": "int"}


def finding(hr: Headrace, old: int, columns: tuple[str, ...] = ("id", "n")) -> SourceFinding:
    source = source_of(hr, "t")
    return check_source(source, at(source, old), at(source, newest(source)), columns, TYPES)


@pytest.fixture
def t(lake: Headrace) -> Headrace:
    lake.sql(
        "CREATE TABLE t (id INT, v STRING, n INT) USING delta TBLPROPERTIES "
        "('delta.columnMapping.mode' = 'name', 'delta.enableTypeWidening' = 'true')"
    )
    lake.sql("INSERT INTO t SELECT id, 'x', 0 FROM range(0, 10, 1, 1)")
    return lake


def test_data_and_history(t: Headrace) -> None:
    assert finding(t, 1).event is SourceEvent.UNCHANGED
    t.sql("DELETE FROM t WHERE id = 5")
    assert finding(t, 1).event is SourceEvent.DATA_CHANGED
    t.sql("RESTORE TABLE t TO VERSION AS OF 1")
    restored = finding(t, 2)
    assert (restored.event, restored.is_incremental, restored.old_readable) == (
        SourceEvent.RESTORED,
        True,
        True,
    )
    # What came back to where it was has not changed, however it got there.
    assert finding(t, 1).event is SourceEvent.UNCHANGED
    source = source_of(t, "t")
    old = at(source, 2)
    t.spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    t.sql("VACUUM t RETAIN 0 HOURS")
    lost = check_source(source, old, at(source, newest(source)), ("id",), TYPES)
    assert (lost.event, lost.old_readable) == (SourceEvent.HISTORY_LOST, False)
    assert "vacuumed" in lost.detail
    Path(source.location, "_delta_log", f"{3:020d}.json").unlink()
    assert "gone from its log" in check_source(source, old, at(source, 5), ("id",), TYPES).detail


def test_used_columns(t: Headrace) -> None:
    t.sql("ALTER TABLE t ADD COLUMN more STRING")
    t.sql("ALTER TABLE t DROP COLUMN v")
    assert finding(t, 1).event is SourceEvent.UNCHANGED
    assert finding(t, 1, ("v",)).event is SourceEvent.COLUMN_DROPPED
    t.sql("ALTER TABLE t ADD COLUMN v STRING")
    again = finding(t, 1, ("v",))
    assert (again.event, again.columns) == (SourceEvent.TYPE_CHANGED, ("v",))
    t.sql("ALTER TABLE t ALTER COLUMN n TYPE BIGINT")
    widened = finding(t, 1)
    assert (widened.event, widened.detail) == (SourceEvent.TYPE_WIDENED, "column n was int and is bigint")
    assert not widened.is_incremental
    t.sql("ALTER TABLE t RENAME COLUMN id TO nr")
    renamed = finding(t, 1)
    assert (renamed.event, renamed.detail) == (SourceEvent.COLUMN_RENAMED, "column id is now called nr")


def test_created_anew(t: Headrace) -> None:
    source = source_of(t, "t")
    old = at(source, 1)
    t.sql("DROP TABLE t")
    t.sql("CREATE TABLE t (id INT, v STRING, n INT) USING delta")
    source = source_of(t, "t")
    assert check_source(source, old, at(source, 0), ("id",), TYPES).event is SourceEvent.RECREATED
    t.sql("CREATE OR REPLACE TABLE t (id STRING) USING delta")
    changed = check_source(source, at(source, 0), at(source, 1), ("id",), TYPES)
    assert (changed.event, changed.detail) == (SourceEvent.TYPE_CHANGED, "column id was int and is string")
