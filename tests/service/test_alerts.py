"""The alerts of a refresh are the same however it was started."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import headrace
from headrace import Headrace, HeadraceError
from tests.conftest import SMALL, holds, note_slow_change, rows
from tests.service.test_observe import Receiver


@pytest.fixture
def sums(lake: Headrace) -> Headrace:
    lake.sql("CREATE TABLE sales (id INT, amount INT) USING delta")
    lake.sql("INSERT INTO sales SELECT id, id FROM range(10)")
    query = "SELECT id, 100 DIV amount AS q FROM sales WHERE id > 0"
    for name in ("by_hand", "by_run"):
        lake.sql(f"CREATE STREAM TABLE {name} SCHEDULE '3 seconds' AS {query}")
    return lake


def alerts(hr: Headrace, kind: str) -> list[str]:
    return sorted(str(alert.stream_table) for alert in hr.catalog.alerts() if alert.kind == kind)


def test_recomputing_in_place_of_changing_is_told_once(sums: Headrace) -> None:
    for name in ("by_hand", "by_run"):
        note_slow_change(sums, name)
    for number in (11, 12):
        before = rows(sums, "SELECT * FROM by_hand")
        sums.sql(f"INSERT INTO sales VALUES ({number}, 5)")
        result = sums.refresh_stream_table("by_hand")
        report = sums.run_once(at=datetime.now(UTC) + timedelta(minutes=1))
        assert (result.action, report["by_run"].action) == ("FULL", "FULL"), result.reason
        assert alerts(sums, "fell_back_to_full") == ["default.by_hand", "default.by_run"]
        assert rows(sums, "SELECT * FROM by_hand") == rows(sums, "SELECT * FROM by_run") != before
        assert holds(sums, "by_hand")
        assert holds(sums, "by_run")


def test_a_run_that_leaves_a_table_too_old_says_so(sums: Headrace) -> None:
    later = datetime.now(UTC) + timedelta(minutes=1)
    sums.sql("INSERT INTO sales VALUES (20, 0)")
    with pytest.raises(HeadraceError, match="DIVIDE_BY_ZERO"):
        sums.refresh_stream_table("by_hand")
    sums.sql("DROP STREAM TABLE by_run")
    time.sleep(3)
    assert not sums.run_once(at=later).ok
    assert alerts(sums, "lag_exceeded") == ["default.by_hand"]
    assert not sums.run_once(at=later + timedelta(minutes=1)).ok
    assert alerts(sums, "lag_exceeded") == ["default.by_hand"]
    sums.sql("DELETE FROM sales WHERE id = 20")
    assert sums.run_once(at=later + timedelta(minutes=2)).ok
    assert alerts(sums, "lag_exceeded") == ["default.by_hand"]
    assert holds(sums, "by_hand")


def test_alerts_go_to_the_address_in_the_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    receiver = Receiver()
    monkeypatch.setenv("HEADRACE_ALERT_WEBHOOK", receiver.url)
    try:
        with headrace.connect(warehouse=tmp_path / "lake", spark_conf=SMALL) as hr:
            hr.sql("CREATE TABLE gone (id INT) USING delta")
            hr.sql("CREATE STREAM TABLE ids AS SELECT id FROM gone")
            hr.sql("DROP TABLE gone")
            with pytest.raises(HeadraceError, match="gone"):
                hr.refresh_stream_table("ids")
            [known] = hr.catalog.alerts()
    finally:
        receiver.close()
    [posted] = receiver.posted
    assert (posted["alert_id"], posted["kind"], posted["stream_table"]) == (
        known.id,
        "refresh_failed",
        "default.ids",
    )
    assert posted["message"] == known.message
