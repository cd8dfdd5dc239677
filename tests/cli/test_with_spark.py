"""Commands on a real lake, in one Spark."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput
from typer.testing import CliRunner, Result

from headrace import Headrace
from headrace.cli.app import app
from headrace.cli.run_sql import Style
from headrace.cli.shell import history_file, run_shell

HEADRACE = Path(sys.executable).with_name("headrace")
QUERY = "SELECT customer, count(*) AS orders, sum(amount) AS amount FROM orders GROUP BY customer"


@pytest.fixture
def warehouse(shop: Headrace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return Path(shop.settings.warehouse)


def run(*arguments: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(app, [*arguments], input=stdin)


def failure(result: Result) -> str:
    assert result.exit_code == 1, result.output
    return str(result.stderr.splitlines()[-1])


@pytest.mark.usefixtures("warehouse")
def test_a_single_run_refreshes_what_is_due() -> None:
    run("create", "totals", "-q", QUERY, "--schedule", "3s")
    run("sql", "-c", "INSERT INTO orders VALUES (9, 1, 99)")
    time.sleep(3.1)
    result = run("run", "--once", "--json")
    (done,) = json.loads(result.stdout)
    assert (done["stream_table"], done["state"], result.stderr) == ("default.totals", "COMPLETED", "")
    assert done["rows_inserted"] > 0
    assert run("verify", "totals").stdout.count("equal") == 1


def test_the_life_of_a_stream_table(warehouse: Path) -> None:
    result = run("create", "totals", "-q", QUERY, "--schedule", "90s", "--comment", "per customer")
    assert (result.exit_code, result.stdout) == (0, "default.totals was created and loaded\n")
    assert "error [name_taken]" in failure(run("create", "totals", "-q", QUERY))
    assert run("create", "totals", "-q", QUERY, "--if-not-exists").exit_code == 0
    Path("top.sql").write_text("SELECT max(amount) AS most FROM totals")
    assert run("create", "top", "-f", "top.sql", "--schedule", "DOWNSTREAM").exit_code == 0

    run("sql", "-c", "INSERT INTO orders VALUES (9, 1, 99)")
    (planned, _) = json.loads(run("refresh", "--all", "--dry-run", "--json").stdout)
    assert planned["stream_table"] == "default.totals"
    assert planned["statements"]
    assert "-- " in run("refresh", "totals", "--dry-run").stdout
    assert run("refresh", "totals", "--dry-run", "--upstream").exit_code == 2
    refreshed = json.loads(run("refresh", "--all", "--json").stdout)
    assert [result["stream_table"] for result in refreshed] == ["default.totals", "default.top"]
    assert all(result["rows_inserted"] for result in refreshed)
    assert json.loads(run("refresh", "totals", "--json").stdout)[0]["action"] == "NO_DATA"
    assert run("verify", "--all").stdout.count("equal") == 2
    assert "default.orders" in run("explain", "totals").stdout
    assert json.loads(run("explain", "totals", "--json").stdout)["stream_table"] == "default.totals"

    assert run("alter", "top", "--rename", "best").stdout == "default.top is now default.best\n"
    assert run("alter", "best", "--suspend").exit_code == 0
    assert "error [schedule_too_short]" in failure(run("alter", "best", "--schedule", "1s"))
    states = {table["name"]: table for table in json.loads(run("list", "--json").stdout)}
    assert states["default.best"]["status"] == "SUSPENDED"
    assert states["default.totals"]["schedule"] == "1 minute 30 seconds"

    assert "error [has_dependents]" in failure(run("drop", "totals"))
    assert run("drop", "totals", "--cascade").stdout == "dropped default.best, default.totals\n"
    assert run("drop", "totals", "--if-exists").exit_code == 0
    assert "error [unknown_stream_table]" in failure(run("drop", "totals"))
    assert json.loads(run("list", "--json").stdout) == []
    assert warehouse.exists()


@pytest.mark.usefixtures("warehouse")
def test_one_failure_does_not_stop_the_other_refreshes() -> None:
    run("create", "totals", "-q", QUERY)
    result = run("refresh", "nothing", "totals", "--json")
    assert result.exit_code == 1
    assert "error [unknown_stream_table]" in result.stderr
    assert [done["stream_table"] for done in json.loads(result.stdout)] == ["default.totals"]


@pytest.mark.usefixtures("warehouse")
def test_sql_from_command_file_and_pipe() -> None:
    Path("script.sql").write_text(
        "-- two; statements\nSELECT ';' AS a;\nSELECT id FROM customers ORDER BY id;\n"
    )
    plain = ["a", "-", ";", "id", "--", " 1", " 2", " 3"]
    assert run("sql", "script.sql").stdout.splitlines() == plain
    assert run("sql", stdin=Path("script.sql").read_text()).stdout.splitlines() == plain
    assert run("sql", "-", stdin="SELECT 1 AS x").stdout.splitlines() == ["x", "-", "1"]
    lines = run("sql", "--json", "script.sql").stdout.splitlines()
    assert [json.loads(line) for line in lines] == [[{"a": ";"}], [{"id": 1}, {"id": 2}, {"id": 3}]]
    assert json.loads(run("sql", "--json", "-c", "CREATE SCHEMA IF NOT EXISTS s").stdout) == []
    assert "error [file_error] missing.sql" in failure(run("sql", "missing.sql"))


@pytest.mark.usefixtures("warehouse")
def test_rows_are_bounded_on_the_screen_only() -> None:
    shown = run("sql", "-c", "SELECT id FROM range(5000) ORDER BY id").stdout.splitlines()
    assert (len(shown), shown[-1]) == (1003, "The first 1,000 rows; --max-rows shows more.")
    assert len(run("sql", "--max-rows", "2", "-c", "SELECT id FROM range(9)").stdout.splitlines()) == 5
    rows = json.loads(run("sql", "--json", "-c", "SELECT id FROM range(5000)").stdout)
    assert len(rows) == 5000
    assert (
        len(json.loads(run("sql", "--json", "--max-rows", "7", "-c", "SELECT * FROM range(9)").stdout)) == 7
    )


@pytest.mark.usefixtures("warehouse")
def test_a_script_stops_at_its_first_error_and_names_the_place() -> None:
    script = "SELECT 1 AS before;\n\n  REFRESH STREAM TABLE;\nSELECT 2 AS after;"
    result = run("sql", "-c", script)
    assert "error [syntax_error] Expected a table name" in failure(result)
    assert "(line 3, column 23)" in failure(result)
    assert "before" in result.stdout
    assert "after" not in result.stdout
    unknown = failure(run("sql", "-c", "SELECT 1;\n SELECT nothing FROM orders"))
    assert "error [unknown_column]" in unknown
    assert "(line 2, column 9)" in unknown
    assert "error [unknown_table]" in failure(run("sql", "-c", "SELECT * FROM missing"))
    assert "error [syntax_error]" in failure(run("sql", "-c", "SELEKT 1"))
    assert "Division by zero" in failure(run("sql", "-c", "SELECT 1 / 0"))
    assert "Traceback" not in run("sql", "-c", "SELECT 1 / 0").stderr
    assert "Traceback" in run("sql", "--debug", "-c", "SELECT 1 / 0").stderr


def test_the_guard_answers_through_the_command_line_too(warehouse: Path) -> None:
    run("create", "totals", "-q", QUERY)
    for write in (
        "DELETE FROM totals",
        "WITH x AS (SELECT 1) INSERT INTO `totals` TABLE x",
        "DROP TABLE totals",
    ):
        assert "error [stream_table_is_read_only]" in failure(run("sql", "-c", write))
    assert f"{warehouse}" in json.loads(run("list", "--json").stdout)[0]["location"]
    assert run("verify", "totals").exit_code == 0


@pytest.mark.usefixtures("warehouse")
def test_verify_fails_when_a_table_differs(shop: Headrace) -> None:
    run("create", "totals", "-q", QUERY)
    other = "SELECT customer, count(*) + 1 AS orders, sum(amount) AS amount FROM orders GROUP BY customer"
    shop.catalog.update(shop.qualify("totals"), query=other, expanded_query=other)
    result = run("verify", "totals", "--json")
    assert result.exit_code == 1
    assert json.loads(result.stdout) == [
        {"stream_table": "default.totals", "ok": False, "missing": 3, "extra": 3}
    ]


def test_the_shell(
    shop: Headrace, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    keys = (
        "SELECT id\rFROM customers\rWHERE id = 2;\r"
        f"CREATE STREAM TABLE totals AS {QUERY};\r"
        "\\d\r\\d totals\r\\history\r\\timing\r\\nonsense\r\\?\r"
        "SELECT nothing;\rSELECT 'still here' AS answer;\r\\q\r"
    )
    with create_pipe_input() as pipe, create_app_session(input=pipe, output=DummyOutput()):
        pipe.send_text(keys)
        assert run_shell(shop, Style(timing=True)) == 0
    shown, errors = capsys.readouterr()
    assert "1 row in" in shown
    assert "default.totals was created and loaded" in shown
    assert "ACTIVE" in shown
    assert "expanded_query" in shown
    assert "first load" in shown
    assert "Times are not shown." in shown
    assert "leave (also Ctrl-D)" in shown
    assert "still here" in shown
    assert "error [unknown_column]" in errors
    assert "no command \\nonsense" in errors
    assert "FROM customers" in history_file().read_text()


def test_another_process_sees_what_this_one_made(shop: Headrace, warehouse: Path) -> None:
    shop.create_stream_table("totals", QUERY)
    script = (
        "SELECT count(*) AS n FROM totals; INSERT INTO orders VALUES (5, 3, 5); REFRESH STREAM TABLE totals"
    )
    result = subprocess.run(
        [HEADRACE, "sql", "--json", "--warehouse", warehouse],
        input=script,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr[-2000:]
    counted, _, refreshed = (json.loads(line) for line in result.stdout.splitlines())
    assert counted == [{"n": 3}]
    assert refreshed[0]["stream_table"] == "default.totals"
    assert shop.sql("SELECT * FROM totals").count() == 4


def test_doctor_tries_a_stream_table(warehouse: Path) -> None:
    (warehouse.parent / "headrace.toml").write_text(f'warehouse = "{warehouse}"')
    result = run("doctor")
    assert result.exit_code == 0, result.output
    assert "created, refreshed and verified on Spark" in result.stdout
