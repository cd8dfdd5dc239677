"""`headrace dag` says which tables move otherwise than their schedule tells."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from headrace.catalog import Catalog, sqlite_url
from headrace.cli.app import app
from tests.catalog.samples import ORDERS, TOP, TOTALS, new_table, reads


@pytest.mark.parametrize(
    ("schedules", "notices"),
    [
        (("1 minute", "1 minute"), []),
        (("1 hour", "1 minute"), ["shop.totals is refreshed as for '1 minute' in place of '1 hour'"]),
        (("DOWNSTREAM", "1 minute"), []),
        (
            ("DOWNSTREAM", "DOWNSTREAM"),
            ["shop.totals has the schedule DOWNSTREAM", "shop.top has the schedule"],
        ),
    ],
)
def test_notices(tmp_path: Path, schedules: tuple[str, str], notices: list[str]) -> None:
    folder = tmp_path / "lake" / "_headrace"
    folder.mkdir(parents=True)
    with Catalog.open(sqlite_url(folder / "catalog.sqlite")) as catalog:
        catalog.add(new_table(TOTALS, schedule=schedules[0]), [reads(TOTALS, ORDERS)])
        catalog.add(new_table(TOP, schedule=schedules[1]), [reads(TOP, TOTALS, "STREAM_TABLE")])
    result = CliRunner().invoke(app, ["dag", "--warehouse", str(tmp_path / "lake")])
    assert result.exit_code == 0
    assert result.stdout.startswith("shop.orders (source)")
    said = result.stderr.splitlines()
    assert len(said) == len(notices)
    assert all(any(notice in line for line in said) for notice in notices), said
