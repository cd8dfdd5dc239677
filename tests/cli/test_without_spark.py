"""Commands that need no Spark: usage, init, list, status, history, dag, doctor --quick."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from datetime import UTC, datetime
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from headrace.catalog import (
    Action,
    Catalog,
    Dependency,
    NewStreamTable,
    RefreshMode,
    RefreshState,
    SourceVersion,
    Status,
    sqlite_url,
)
from headrace.cli.app import app
from headrace.config import load_settings
from headrace.sql.names import TableName

COMMANDS = [
    *("demo", "init", "sql", "create", "drop", "alter", "refresh"),
    *("list", "status", "history", "explain", "verify", "dag", "run", "bench", "doctor"),
]
HEADRACE = Path(sys.executable).with_name("headrace")


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, [*arguments])


def failure(result: Result) -> str:
    """The one line of an error that ended a command with code 1."""
    assert result.exit_code == 1
    (line,) = result.stderr.splitlines()
    return str(line)


def new_table(name: str) -> NewStreamTable:
    return NewStreamTable(
        name=TableName("shop", name),
        query="SELECT 1 AS x",
        expanded_query="SELECT 1 AS x",
        current_schema="shop",
        columns=(("x", "int"),),
        refresh_mode=RefreshMode.AUTO,
        effective_mode="FULL",
        mode_reason="because",
        schedule="1 minute",
        location=f"/lake/{name}",
    )


@pytest.fixture
def warehouse() -> Path:
    """A warehouse whose catalog knows two stream tables and two refreshes."""
    file = Path("lake/_headrace/catalog.sqlite").absolute()
    file.parent.mkdir(parents=True)
    with Catalog.open(sqlite_url(file)) as catalog:
        orders, totals, top = (TableName("shop", name) for name in ("orders", "totals", "top"))
        catalog.add(new_table("totals"), [Dependency(totals, orders, "TABLE", ("x",))])
        catalog.add(new_table("top"), [Dependency(top, totals, "STREAM_TABLE", ("x",))])
        catalog.record_refresh(
            totals,
            state=RefreshState.COMPLETED,
            action=Action.FULL,
            reason="first load",
            rows_inserted=12345,
            started_at=datetime.now(UTC),
            duration_ms=1500.0,
            frontier={"shop.orders": SourceVersion(3, "a")},
            changes={"status": Status.ACTIVE, "data_timestamp": datetime.now(UTC)},
        )
        catalog.record_refresh(
            top,
            state=RefreshState.FAILED,
            started_at=datetime.now(UTC),
            error_code="refresh_failed",
            error="Division by zero.",
            changes={"status": Status.ERROR, "last_error": "Division by zero.", "consecutive_errors": 1},
        )
    return Path("lake")


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(command: str) -> None:
    result = run(command, "--help")
    assert result.exit_code == 0
    assert "--warehouse" in result.stdout
    assert "--debug" in result.stdout


def test_help_lists_the_commands() -> None:
    result = subprocess.run([HEADRACE, "--help"], capture_output=True, text=True, check=True)
    assert [line.split()[0] for line in result.stdout.split("Commands:")[1].splitlines() if line] == COMMANDS


def test_help_and_list_import_no_spark() -> None:
    code = (
        "import sys, headrace.cli.app, headrace.cli.inspect, headrace.catalog, headrace.config;"
        "sys.exit(any(name.split('.')[0] in ('pyspark', 'pandas', 'deltalake') for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(
    "arguments",
    [
        ["nonsense"],
        ["list", "--nonsense"],
        ["create", "t"],
        ["create", "t", "-q", "SELECT 1", "-f", "q.sql"],
        ["create", "t", "-q", "SELECT 1", "--or-replace", "--if-not-exists"],
        ["alter", "t"],
        ["alter", "t", "--suspend", "--resume"],
        ["alter", "t", "--schedule", "1m", "--mode", "FULL"],
        ["refresh"],
        ["refresh", "t", "--all"],
        ["verify"],
        ["sql", "file.sql", "-c", "SELECT 1"],
        ["sql", "-c", "SELECT 1", "--max-rows", "0"],
        ["history", "--limit", "0"],
        ["dag", "--format", "crayon"],
    ],
)
def test_usage_errors_exit_with_2_and_touch_nothing(arguments: list[str]) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert "Traceback" not in result.stderr
    assert list(Path().iterdir()) == []


def test_version() -> None:
    assert run("--version").stdout.startswith("headrace 0.")


@pytest.mark.parametrize("command", [["list"], ["status"], ["history"], ["dag"]])
def test_no_warehouse(command: list[str]) -> None:
    assert "error [no_warehouse]" in failure(run(*command))
    assert not Path("lake").exists()


def test_init_makes_a_warehouse_and_settings_that_work() -> None:
    result = run("init", "--warehouse", "my lake")
    assert result.exit_code == 0
    assert Path("my lake/_headrace/catalog.sqlite").exists()
    assert tomllib.loads(Path("headrace.toml").read_text()) == {"warehouse": "my lake"}
    assert load_settings().warehouse == "my lake"
    assert "No stream tables yet" in run("list").stdout


def test_every_line_of_the_settings_file_works_uncommented() -> None:
    run("init")
    lines = Path("headrace.toml").read_text().splitlines()
    uncommented = [line.removeprefix("# ") for line in lines if " = " in line and '"…"' not in line]
    Path("headrace.toml").write_text("\n".join(uncommented))
    assert load_settings().spark_conf
    assert len(uncommented) >= 10


def test_init_overwrites_no_settings() -> None:
    Path("headrace.toml").write_text('warehouse = "mine"')
    assert "error [config_exists]" in failure(run("init"))
    assert Path("headrace.toml").read_text() == 'warehouse = "mine"'
    assert not Path("lake").exists()


def test_init_where_the_warehouse_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert "error [warehouse_not_writable]" in failure(run("init", "--warehouse", "file/lake"))
    assert not Path("headrace.toml").exists()


def test_the_settings_file_can_be_named(warehouse: Path) -> None:
    Path("other.toml").write_text(f'warehouse = "{warehouse}"')
    warehouse_option = ["--warehouse", "nowhere"]
    assert "shop.totals" in run("list", "--config", "other.toml").stdout
    assert "no_warehouse" in failure(run("list", "--config", "other.toml", *warehouse_option))
    assert "error [invalid_setting]" in failure(run("list", "--config", "missing.toml"))
    Path("bad.toml").write_text("warehose = 'x'")
    assert "Did you mean warehouse?" in failure(run("list", "--config", "bad.toml"))


@pytest.mark.usefixtures("warehouse")
def test_list() -> None:
    lines = run("list").stdout.splitlines()
    assert lines[0].split()[:3] == ["name", "status", "refresh_mode"]
    assert [line.split()[:2] for line in lines[2:]] == [["shop.top", "ERROR"], ["shop.totals", "ACTIVE"]]
    records = json.loads(run("list", "--json").stdout)
    assert [record["name"] for record in records] == ["shop.top", "shop.totals"]
    assert records[1]["mode_reason"] == "because"


@pytest.mark.usefixtures("warehouse")
def test_status() -> None:
    assert "Division by zero." in run("status").stdout
    top, totals = json.loads(run("status", "--json").stdout)
    assert (top["status"], top["last_action"], top["consecutive_errors"]) == ("ERROR", "FAILED", 1)
    assert (totals["last_action"], totals["last_duration_ms"]) == ("FULL", 1500.0)
    assert 0 <= totals["lag_seconds"] < 60
    assert (totals["period_seconds"], totals["period_doublings"]) == (24, 0)


def test_status_tells_who_falls_behind(warehouse: Path) -> None:
    with Catalog.open(sqlite_url(warehouse.absolute() / "_headrace" / "catalog.sqlite")) as catalog:
        for duration_ms in (30_000.0, 10.0):
            catalog.record_refresh(
                TableName("shop", "totals"),
                state=RefreshState.COMPLETED,
                action=Action.DIFFERENTIAL,
                reason="shop.orders changed",
                started_at=datetime.now(UTC),
                duration_ms=duration_ms,
            )
    assert "(falls behind)" in run("status").stdout
    _, totals = json.loads(run("status", "--json").stdout)
    assert (totals["period_seconds"], totals["period_doublings"]) == (48, 1)


@pytest.mark.usefixtures("warehouse")
def test_history() -> None:
    shown = run("history").stdout
    assert "12345" in shown
    assert "first load" in shown
    assert "Division by zero." in shown
    assert len(json.loads(run("history", "--json", "--limit", "1").stdout)) == 1
    (only,) = json.loads(run("history", "SHOP.`Totals`", "--json").stdout)
    assert (only["stream_table"], only["action"]) == ("shop.totals", "FULL")
    assert "error [unknown_stream_table]" in failure(run("history", "shop.nothing"))
    assert "error [invalid_name]" in failure(run("history", "a.b.c.d"))


@pytest.mark.usefixtures("warehouse")
def test_dag() -> None:
    assert run("dag").stdout.splitlines() == [
        "shop.orders (source)",
        "└── shop.totals",
        "    └── shop.top",
    ]
    assert run("dag", "--format", "mermaid").stdout.startswith("flowchart")
    assert run("dag", "--format", "dot").stdout.startswith("digraph")
    assert json.loads(run("dag", "--json").stdout)[0] == {
        "source": "shop.orders",
        "source_type": "TABLE",
        "stream_table": "shop.totals",
    }


def test_a_corrupt_catalog_is_one_line_and_a_traceback_only_with_debug(warehouse: Path) -> None:
    file = warehouse / "_headrace" / "catalog.sqlite"
    for path in file.parent.iterdir():
        path.unlink()
    file.write_bytes(b"this is not a database, but it is long enough to look at" * 50)
    assert "error [catalog_corrupt]" in failure(run("list"))
    assert "Traceback" in run("list", "--debug").stderr
    assert file.read_bytes().startswith(b"this is not")


@pytest.mark.usefixtures("warehouse")
def test_doctor_finds_all_well() -> None:
    result = run("doctor", "--quick")
    assert (result.exit_code, result.stdout.count("failed")) == (0, 0)
    findings = json.loads(run("doctor", "--quick", "--json").stdout)
    assert [finding["name"] for finding in findings] == [
        *("python", "settings", "java", "jars", "warehouse", "catalog"),
    ]
    assert "stream tables: 2" in findings[-1]["detail"]


def test_doctor_changes_nothing_and_names_what_is_wrong(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("PATH", "/nowhere")
    result = run("doctor", "--quick", "--warehouse", "file/lake")
    assert result.exit_code == 1
    assert "failed warehouse: [warehouse_not_writable]" in result.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
