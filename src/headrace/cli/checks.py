"""The checks of `doctor`: each finds one thing right, or says what to do."""

from __future__ import annotations

import platform
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.cli.command import Place, working
from headrace.cli.failures import as_error
from headrace.display import duration
from headrace.errors import HeadraceError

if TYPE_CHECKING:
    from headrace.api import Headrace


@dataclass(frozen=True)
class Finding:
    """What one check found."""

    name: str
    ok: bool
    detail: str

    @property
    def record(self) -> dict[str, Any]:
        return asdict(self)


def run_checks(place: Place, *, quick: bool = False) -> Iterator[Finding]:
    """Run the checks in order; each stands alone, so that one failure does not hide another."""
    checks: list[tuple[str, Callable[[Place], str]]] = [
        ("python", _python),
        ("settings", _settings),
        ("java", _java),
        ("jars", _jars),
        ("warehouse", _warehouse),
        ("catalog", _catalog),
    ]
    if not quick:
        checks.append(("stream table on Delta", _round_trip))
    for name, check in checks:
        try:
            with working(f"Checking {name}"):
                finding = Finding(name, True, check(place))
        except Exception as error:  # noqa: BLE001 - a failure is what a check looks for
            finding = Finding(name, False, str(as_error(error)))
        yield finding


def _python(_: Place) -> str:
    return f"{platform.python_version()} in {sys.prefix}"


def _settings(place: Place) -> str:
    from headrace.config import config_path

    place.settings()
    path = config_path()
    return f"from {path.absolute()}" if path else "defaults; there is no headrace.toml here"


def _java(_: Place) -> str:
    from headrace.runtime.java import find_java

    java = find_java()
    return f"{java.version} in {java.home}"


def _jars(place: Place) -> str:
    from headrace.runtime.jars import ensure_jars

    jars = ensure_jars(place.settings().jars_dir)
    return f"{len(jars)} in {jars[0].parent}"


def _warehouse(place: Place) -> str:
    folder = Path(place.settings().warehouse).expanduser().absolute()
    nearest = next(parent for parent in (folder, *folder.parents) if parent.exists())
    if not nearest.is_dir():
        raise HeadraceError(
            "warehouse_not_writable", f"{nearest} is not a folder.", hint="Choose another with --warehouse."
        )
    try:
        # Rights alone do not tell: a full or read-only disk shows when something is written.
        with tempfile.TemporaryFile(dir=nearest):
            pass
    except OSError as error:
        raise HeadraceError(
            "warehouse_not_writable",
            f"{nearest} cannot be written: {error.strerror}.",
            hint="Choose another folder with --warehouse, or give this user the right to write there.",
        ) from error
    return str(folder) if folder.exists() else f"{folder} will be made at the first use"


def _catalog(place: Place) -> str:
    settings = place.settings()
    if settings.catalog_url is None and not settings.catalog_file.exists():
        return f"{settings.catalog_file} will be made at the first use"
    with place.catalog() as catalog:
        tables = len(catalog.all())
        return f"{catalog.label}, stream tables: {tables}"


def _round_trip(_: Place) -> str:
    """Create, refresh and verify a stream table in a warehouse of its own."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="headrace-doctor-") as folder, _trial_lake(Path(folder)) as hr:
        hr.sql("CREATE TABLE trial (k INT, v INT) USING delta")
        hr.sql("INSERT INTO trial VALUES (1, 1), (2, 2)")
        hr.create_stream_table("trial_sum", "SELECT k, sum(v) AS total FROM trial GROUP BY k")
        hr.sql("INSERT INTO trial VALUES (2, 3)")
        hr.refresh_stream_table("trial_sum")
        if not hr.verify("trial_sum").ok:
            raise HeadraceError(
                "trial_differs", "A stream table differed from its query.", hint="Report this with --debug."
            )
        spark = hr.spark.version
    return f"created, refreshed and verified on Spark {spark} in {duration(time.monotonic() - began)}"


def _trial_lake(folder: Path) -> Headrace:
    import headrace
    from headrace.catalog import sqlite_url

    # The settings may name a shared catalog, where a trial has no business.
    return headrace.connect(warehouse=folder / "lake", catalog_url=sqlite_url(folder / "catalog.sqlite"))
