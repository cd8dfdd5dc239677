"""Settings: a keyword, else the environment, else `headrace.toml`, else the default."""

from __future__ import annotations

import difflib
import json
import os
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, NoReturn

from pydantic import Field, ValidationError, field_validator
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
    TomlConfigSettingsSource,
)

from headrace.errors import HeadraceError

PREFIX = "HEADRACE_"
CONFIG_VARIABLE = "HEADRACE_CONFIG"
CONFIG_FILE = "headrace.toml"


class Settings(BaseSettings):
    """Every setting, checked and frozen; make one with `load_settings`."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, env_ignore_empty=True, extra="forbid", frozen=True, hide_input_in_errors=True
    )

    warehouse: str = Field(
        default="lake", min_length=1, description="Folder of the lake; relative to the working folder."
    )
    catalog_url: str | None = Field(
        default=None,
        repr=False,
        description="`sqlite:///path` or `postgresql://user:password@host/database`; "
        "unset: a SQLite file in the warehouse.",
    )
    enabled: bool = Field(default=True, description="Whether the service refreshes by itself.")
    scheduler_interval_ms: int = Field(
        default=1000, ge=10, description="Longest pause between two looks at what is due, in milliseconds."
    )
    min_schedule_seconds: float = Field(
        default=3, gt=0, le=86400, description="Shortest schedule a stream table may have, in seconds."
    )
    default_schedule: str = Field(
        default="1 minute", min_length=1, description="Schedule of a stream table created without one."
    )
    max_consecutive_errors: int = Field(
        default=3, ge=1, description="Failures in a row after which a stream table is suspended."
    )
    max_concurrent_refreshes: int = Field(default=4, ge=1, description="Refreshes that may run at once.")
    diamond_schedule_policy: Literal["fastest", "slowest"] = Field(
        default="fastest",
        description="When the tables of a diamond are refreshed: as soon as one of them is due, "
        "or when all of them are.",
    )
    change_ratio_threshold: float = Field(
        default=0.1,
        ge=0,
        le=1,
        description="Share of changed rows above which AUTO recomputes, "
        "until it has measured changes of about that size; "
        "it tries one where recomputing takes seconds only, or where it expects no more of it than that.",
    )
    apply: Literal["auto", "spark"] = Field(
        default="auto",
        description="Who writes a change: `auto` takes the fastest writer for its size, `spark` only Spark.",
    )
    deletion_vectors: bool = Field(
        default=True,
        description="Whether rows of stream tables may be hidden by deletion vectors, which is quicker than "
        "copying their files where these have more than a megabyte. `false` is for readers that do not know "
        "them, such as `to_pandas` of delta-rs; a table that has got some keeps them.",
    )
    history_retention_days: float = Field(
        default=30, gt=0, le=36500, description="Days for which refreshes and alerts are kept."
    )
    lease_ttl_seconds: float = Field(
        default=30,
        ge=1,
        le=3600,
        description="Seconds after which the lock of a silent process may be taken over.",
    )
    alert_webhook: str | None = Field(
        default=None,
        repr=False,
        pattern=r"^https?://",
        description="Address to which alerts are posted as JSON; unset: none.",
    )
    http_host: str = Field(
        default="127.0.0.1", min_length=1, description="Address on which the service answers requests."
    )
    http_port: int = Field(
        default=8480, ge=0, le=65535, description="Port of `/healthz` and `/metrics`; 0 takes any free one."
    )
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"] = Field(
        default="WARNING", description="Least severe message that is logged."
    )
    master: str = Field(default="local[*]", min_length=1, description="Spark master of the embedded session.")
    driver_memory: str = Field(
        default="2g",
        pattern=r"^[1-9][0-9]*[kmgtKMGT]$",
        description="Heap of the embedded Spark session, such as `2g` or `1500m`.",
    )
    spark_conf: Mapping[str, str] = Field(
        default_factory=dict, description="Further Spark settings for the embedded session."
    )
    jars_dir: str | None = Field(
        default=None, min_length=1, description="Folder of the jars; unset: a cache of the user."
    )

    @property
    def warehouse_folder(self) -> Path:
        return Path(self.warehouse).expanduser().absolute()

    @property
    def catalog_file(self) -> Path:
        """Where the catalog of an embedded lake is, unless `catalog_url` names another."""
        return self.warehouse_folder / "_headrace" / "catalog.sqlite"

    @field_validator("warehouse", "jars_dir", mode="before")
    @classmethod
    def _accept_paths(cls, value: Any) -> Any:
        return os.fspath(value) if isinstance(value, os.PathLike) else value

    @field_validator("log_level", mode="before")
    @classmethod
    def _accept_any_case(cls, value: Any) -> Any:
        return value.upper() if isinstance(value, str) else value

    @field_validator("spark_conf", mode="before")
    @classmethod
    def _accept_dotted_tables(cls, value: Any) -> Any:
        return dict(_flatten(value)) if isinstance(value, Mapping) else value

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - pydantic passes them by name
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - pydantic passes them by name
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        file = TomlConfigSettingsSource(settings_cls, toml_file=config_path())
        return (init_settings, env_settings, file)


def load_settings(**keywords: Any) -> Settings:
    """Settings from all places; a keyword that is None counts as not given.

    >>> load_settings(max_concurrent_refreshes=2).max_concurrent_refreshes
    2
    """
    given = {key: value for key, value in keywords.items() if value is not None}
    file = _read_file()
    _require_known(given, "")
    _require_known(_environment(), PREFIX)
    _require_known(file, "", place=str(config_path()))
    try:
        return Settings(**given)
    except ValidationError as error:
        problem = error.errors()[0]
        _refuse(str(problem["loc"][0]), problem["msg"], given)
    except SettingsError:
        # Of our settings only spark_conf is read as JSON.
        _refuse("spark_conf", 'it must be JSON, such as {"spark.ui.enabled": "true"}', given)


def config_path() -> Path | None:
    """The configuration file: HEADRACE_CONFIG names it, or it is `headrace.toml` in the working folder."""
    named = os.environ.get(CONFIG_VARIABLE)
    if named:
        return Path(named)
    return Path(CONFIG_FILE) if Path(CONFIG_FILE).is_file() else None


def settings_table() -> str:
    """The settings as a table in Markdown, as `docs/CONFIGURATION.md` has it."""
    lines = ["| setting | environment | default | meaning |", "|---|---|---|---|"]
    for name, field in Settings.model_fields.items():
        default = field.get_default(call_default_factory=True)
        shown = "unset" if default in (None, {}) else f"`{json.dumps(default)}`"
        lines.append(f"| `{name}` | `{PREFIX}{name.upper()}` | {shown} | {field.description} |")
    return "\n".join(lines)


def _flatten(nested: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, Any]]:
    """TOML reads `spark.ui.enabled = true` as nested tables; Spark wants the dotted name and a text.

    >>> list(_flatten({"spark": {"ui": {"enabled": True}}}))
    [('spark.ui.enabled', 'true')]
    """
    for key, value in nested.items():
        if isinstance(value, Mapping):
            yield from _flatten(value, f"{prefix}{key}.")
        elif isinstance(value, bool):
            yield f"{prefix}{key}", str(value).lower()
        else:
            yield f"{prefix}{key}", str(value) if isinstance(value, int | float) else value


def _environment() -> dict[str, str]:
    """Our variables, by the name of the setting."""
    names = [
        name for name in os.environ if name.upper().startswith(PREFIX) and name.upper() != CONFIG_VARIABLE
    ]
    return {name[len(PREFIX) :].lower(): name for name in names}


def _read_file() -> dict[str, Any]:
    path = config_path()
    if path is None:
        return {}
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise HeadraceError(
            "invalid_setting", f"{path} is not TOML: {error}.", hint='Write lines such as warehouse = "lake".'
        ) from None
    except OSError as error:
        raise HeadraceError(
            "invalid_setting",
            f"The configuration file {path} cannot be read: {error.strerror}.",
            hint=f"Correct {CONFIG_VARIABLE}, or unset it.",
        ) from None


def _require_known(names: Iterable[str], prefix: str, *, place: str = "") -> None:
    for name in names:
        if name in Settings.model_fields:
            continue
        near = difflib.get_close_matches(name.lower(), Settings.model_fields, n=1)
        shown = [prefix + (other.upper() if prefix else other) for other in (name, *near)]
        kind = "environment variable" if prefix else "setting"
        raise HeadraceError(
            "unknown_setting",
            f"There is no {kind} {shown[0]}{f', which {place} sets' if place else ''}.",
            hint=f"Did you mean {shown[1]}?" if near else "docs/CONFIGURATION.md lists all settings.",
        )


def _refuse(name: str, message: str, given: Mapping[str, Any]) -> NoReturn:
    """Say which value is wrong and where it was set; never what it is, since it may hold a password."""
    variable = _environment().get(name)
    if name in given:
        place = f"the keyword {name}"
    elif variable and os.environ[variable]:
        place = f"the environment variable {variable}"
    else:
        place = f"{name} in {config_path()}"
    field = Settings.model_fields[name]
    raise HeadraceError(
        "invalid_setting",
        f"The value of {place} is not valid: {message[:1].lower()}{message[1:]}.",
        hint=f"{name}: {field.description}",
    ) from None
