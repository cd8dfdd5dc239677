"""A source that cannot be read concerns its readers alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from headrace import Headrace, HeadraceError
from headrace.scheduler import dispatch
from headrace.sources.log import DeltaLog
from tests.conftest import holds, rows
from tests.service.test_service import running, until


@contextmanager
def unreadable(hr: Headrace, table: str) -> Iterator[None]:
    """Put a file in the place of a table's log folder: root may read everything, but no folder is there."""
    log = Path(hr._refresher.sources.find(hr.qualify(table)).location) / "_delta_log"
    log.rename(log.with_name("_away"))
    log.write_text("this is no folder")
    try:
        yield
    finally:
        log.unlink()
        log.with_name("_away").rename(log)


@pytest.fixture
def hr(lake: Headrace) -> Headrace:
    for source in ("well", "ill"):
        lake.sql(f"CREATE TABLE {source} (id INT) USING delta")
        lake.sql(f"INSERT INTO {source} VALUES (1)")
    mode = "SCHEDULE '3 seconds' REFRESH MODE DIFFERENTIAL"
    for name in ("well", "ill"):
        lake.sql(f"CREATE STREAM TABLE of_{name} {mode} AS SELECT id FROM {name}")
    lake.sql("CREATE STREAM TABLE at_once SCHEDULE '1 day' REFRESH MODE IMMEDIATE AS SELECT id FROM ill")
    return lake


def test_the_readers_of_other_sources_go_on(hr: Headrace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "_FIRST_PAUSE", 0.01)
    later = datetime.now(UTC) + timedelta(minutes=1)
    hr.spark.sql("INSERT INTO well VALUES (2)")
    hr.spark.sql("INSERT INTO ill VALUES (2)")
    with unreadable(hr, "ill"):
        report = hr.run_once(at=later)
        assert report["of_well"].action == "DIFFERENTIAL"
        assert rows(hr, "SELECT * FROM of_well") == [(1,), (2,)]
        assert [one.stream_table for one in report.failed] == ["default.of_ill"]
        error = report["of_ill"].error
        assert error is not None
        assert error.code == "source_unreadable"
        with pytest.raises(HeadraceError, match="source_unreadable"):
            hr.refresh_stream_table("of_ill")
    report = hr.run_once(at=later + timedelta(minutes=1))
    assert report["of_ill"].action == "DIFFERENTIAL"
    assert rows(hr, "SELECT * FROM of_ill") == [(1,), (2,)]
    assert holds(hr, "of_ill")
    assert holds(hr, "of_well")


def test_a_service_goes_on_and_catches_up_when_the_source_can_be_read(hr: Headrace) -> None:
    with running(hr) as service:
        until(lambda: service.health()["status"] == "ok", "it must begin")
        with unreadable(hr, "ill"):
            hr.spark.sql("INSERT INTO well VALUES (2)")
            until(lambda: (2,) in rows(hr, "SELECT * FROM of_well"), "others must go on")
            assert service.health()["status"] == "ok"
        hr.spark.sql("INSERT INTO ill VALUES (3)")
        for name in ("at_once", "of_ill"):
            until(lambda name=name: (3,) in rows(hr, f"SELECT * FROM {name}"), f"{name} must follow")
    assert all(holds(hr, name) for name in ("of_well", "of_ill", "at_once"))


def test_a_stream_table_that_cannot_be_read_keeps_nobody_from_taking_over(hr: Headrace) -> None:
    name = hr.qualify("of_ill")
    lease = hr.catalog.acquire_lease(name, owner="elsewhere/1-2/3/4", ttl=timedelta(milliseconds=1))
    hr.catalog.start_refresh(name, reason="ill changed", lease=lease)
    hr.spark.sql("INSERT INTO well VALUES (2)")
    with unreadable(hr, "of_ill"), running(hr):
        until(lambda: (2,) in rows(hr, "SELECT * FROM of_well"), "others must go on")
    [interrupted] = [one for one in hr.catalog.history(name) if one.reason == "ill changed"]
    assert (interrupted.state, interrupted.error_code) == ("FAILED", "refresh_interrupted")


def test_a_log_that_cannot_be_read_is_an_error_with_a_code(tmp_path: Path) -> None:
    (tmp_path / "_delta_log").write_text("this is no folder")
    log = DeltaLog(str(tmp_path))
    for look in (log.newest_version, lambda: log.commit(3), lambda: log.version_at(datetime.now(UTC))):
        with pytest.raises(HeadraceError) as refused:
            look()
        assert refused.value.code == "source_unreadable"
