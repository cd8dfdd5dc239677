"""Settings: which place wins, and what is said of what is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from headrace.config import Settings, load_settings, settings_table
from headrace.errors import HeadraceError

DOCUMENT = Path(__file__).parents[2] / "docs" / "CONFIGURATION.md"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder without a file, and an environment without our variables."""
    for name in Settings.model_fields:
        monkeypatch.delenv(f"HEADRACE_{name.upper()}", raising=False)
    monkeypatch.delenv("HEADRACE_CONFIG", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def refusal(**keywords: Any) -> HeadraceError:
    with pytest.raises(HeadraceError) as raised:
        load_settings(**keywords)
    assert raised.value.hint
    return raised.value


def test_the_defaults() -> None:
    settings = load_settings()
    assert (settings.warehouse, settings.catalog_url, settings.enabled) == ("lake", None, True)
    assert (settings.scheduler_interval_ms, settings.min_schedule_seconds) == (1000, 3)
    assert (settings.max_consecutive_errors, settings.max_concurrent_refreshes) == (3, 4)
    assert (settings.change_ratio_threshold, settings.apply) == (0.1, "auto")
    assert (settings.default_schedule, settings.history_retention_days) == ("1 minute", 30)
    assert (settings.lease_ttl_seconds, settings.driver_memory) == (30, "2g")
    assert (settings.spark_conf, settings.master, settings.jars_dir) == ({}, "local[*]", None)


def test_keyword_then_environment_then_file_then_default(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "headrace.toml").write_text('warehouse = "f"\nmaster = "f"\ndefault_schedule = "f"\n')
    monkeypatch.setenv("HEADRACE_WAREHOUSE", "e")
    monkeypatch.setenv("HEADRACE_MASTER", "e")
    settings = load_settings(warehouse="k")
    assert (settings.warehouse, settings.master, settings.default_schedule) == ("k", "e", "f")
    assert settings.driver_memory == "2g"


def test_none_and_an_empty_variable_count_as_not_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_WAREHOUSE", "e")
    monkeypatch.setenv("HEADRACE_CATALOG_URL", "")
    settings = load_settings(warehouse=None)
    assert (settings.warehouse, settings.catalog_url) == ("e", None)


def test_the_file_may_be_elsewhere(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "headrace.toml").write_text('warehouse = "here"\n')
    (folder / "my settings.toml").write_text('warehouse = "there"\n')
    assert load_settings().warehouse == "here"
    monkeypatch.setenv("HEADRACE_CONFIG", str(folder / "my settings.toml"))
    assert load_settings().warehouse == "there"


def test_values_are_read_in_their_usual_forms(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_ENABLED", "off")
    monkeypatch.setenv("HEADRACE_LOG_LEVEL", "debug")
    settings = load_settings(warehouse=folder / "my lake")
    assert (settings.enabled, settings.log_level) == (False, "DEBUG")
    assert settings.warehouse == str(folder / "my lake")


def test_spark_settings_of_all_places_are_joined(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "headrace.toml").write_text(
        '[spark_conf]\nspark.ui.enabled = true\n"spark.a" = "file"\nspark.sql.shuffle.partitions = 4\n'
    )
    monkeypatch.setenv("HEADRACE_SPARK_CONF", '{"spark.a": "environment", "spark.b": "environment"}')
    assert load_settings(spark_conf={"spark.b": "keyword", "spark.ui.enabled": "false"}).spark_conf == {
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "4",
        "spark.a": "environment",
        "spark.b": "keyword",
    }


def test_an_unknown_keyword_is_refused() -> None:
    error = refusal(warehose="x")
    assert (error.code, error.hint) == ("unknown_setting", "Did you mean warehouse?")
    assert refusal(zzzzzz=1).hint == "docs/CONFIGURATION.md lists all settings."


def test_an_unknown_variable_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_CATALOG", "sqlite:///x")
    error = refusal()
    assert error.code == "unknown_setting"
    assert "HEADRACE_CATALOG" in error.message
    assert error.hint == "Did you mean HEADRACE_CATALOG_URL?"


def test_an_unknown_key_in_the_file_is_refused(folder: Path) -> None:
    (folder / "headrace.toml").write_text("max_concurent_refreshes = 2\n")
    error = refusal()
    assert error.code == "unknown_setting"
    assert "headrace.toml" in error.message
    assert error.hint == "Did you mean max_concurrent_refreshes?"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("apply", "rust"),
        ("change_ratio_threshold", "1.5"),
        ("driver_memory", "lots"),
        ("enabled", "perhaps"),
        ("history_retention_days", "inf"),
        ("lease_ttl_seconds", "nan"),
        ("log_level", "loud"),
        ("max_concurrent_refreshes", "0"),
        ("max_consecutive_errors", "-1"),
        ("min_schedule_seconds", "0"),
        ("scheduler_interval_ms", "soon"),
        ("spark_conf", "{not json"),
    ],
)
def test_a_bad_value_is_refused_with_its_place(
    folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    error = refusal(**{name: value})
    assert error.code == "invalid_setting"
    assert f"the keyword {name}" in error.message
    (folder / "headrace.toml").write_text(f'{name} = "{value}"\n')
    assert f"{name} in headrace.toml" in refusal().message
    monkeypatch.setenv(f"HEADRACE_{name.upper()}", value)
    assert f"the environment variable HEADRACE_{name.upper()}" in refusal().message


def test_a_bad_value_that_is_outranked_does_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_APPLY", "rust")
    assert load_settings(apply="spark").apply == "spark"


@pytest.mark.parametrize("text", [b"warehouse = ", b"\xff\xfe", b"= 1"])
def test_a_file_that_is_not_toml_is_refused(folder: Path, text: bytes) -> None:
    (folder / "headrace.toml").write_bytes(text)
    error = refusal()
    assert error.code == "invalid_setting"
    assert "headrace.toml is not TOML" in error.message


def test_a_named_file_must_be_there(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.setenv("HEADRACE_CONFIG", "missing.toml")
    error = refusal()
    assert error.code == "invalid_setting"
    assert "missing.toml cannot be read" in error.message
    monkeypatch.setenv("HEADRACE_CONFIG", str(folder))
    assert refusal().code == "invalid_setting"


def test_secrets_are_not_shown() -> None:
    url = "postgresql://me:secret@host/db"
    assert "secret" not in repr(load_settings(catalog_url=url))
    assert "secret" not in str(refusal(catalog_url=[url]))


def test_settings_are_frozen() -> None:
    with pytest.raises(ValidationError):
        load_settings().warehouse = "other"


def test_the_documentation_has_the_table() -> None:
    assert settings_table() in DOCUMENT.read_text(encoding="utf-8")
