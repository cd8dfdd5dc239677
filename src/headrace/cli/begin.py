"""`demo`, `init`, `doctor`: the first three things to try."""

from __future__ import annotations

import json as json_module
from pathlib import Path
from typing import Annotated, Any

import typer

from headrace.cli.command import Json, Place, out
from headrace.display import json_text
from headrace.errors import HeadraceError

_DEMO_WAREHOUSE = Path("demo-lake")


def demo(
    place: Place,
    rounds: Annotated[int, typer.Option(min=1, max=100, help="How many rounds of changes.")] = 2,
    order_lines: Annotated[
        int, typer.Option(min=1000, max=50_000_000, help="Order lines of the shop.")
    ] = 200_000,
) -> int:
    """Show stream tables at work on a small shop."""
    from headrace.demo import run_demo

    warehouse = place.warehouse or _DEMO_WAREHOUSE
    return run_demo(warehouse.absolute(), order_lines=order_lines, rounds=rounds, console=out())


def init(place: Place) -> None:
    """Make a warehouse and a commented headrace.toml."""
    from headrace.catalog import Catalog, sqlite_url
    from headrace.config import CONFIG_FILE

    file = Path(CONFIG_FILE)
    if file.exists():
        raise HeadraceError(
            "config_exists",
            f"There is already a {CONFIG_FILE} in this folder; nothing was changed.",
            hint="Edit it, or run headrace init in another folder.",
        )
    settings = place.settings()
    url = settings.catalog_url or sqlite_url(_made(settings.catalog_file))
    with Catalog.open(url) as catalog:
        label = catalog.label
    given = {"warehouse": settings.warehouse, "catalog_url": place.catalog_url}
    with file.open("x", encoding="utf-8") as config:
        config.write(settings_file({key: value for key, value in given.items() if value}))
    for line in (
        f"Warehouse: {Path(settings.warehouse).absolute()}",
        f"Catalog:   {label}",
        f"Settings:  {file.absolute()}",
        "Next:      headrace sql",
    ):
        out().print(line, markup=False, highlight=False, soft_wrap=True)


def _made(file: Path) -> Path:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise HeadraceError(
            "warehouse_not_writable",
            f"The warehouse folder {file.parent.parent} cannot be made: {error.strerror}.",
            hint="Choose another folder with --warehouse.",
        ) from error
    return file


def settings_file(given: dict[str, Any]) -> str:
    """Write a settings file: what is given is set, everything else stands there as a comment.

    >>> settings_file({"warehouse": "lake"}).splitlines()[3:5]
    ['# Folder of the lake; relative to the working folder.', 'warehouse = "lake"']
    """
    from headrace.config import Settings

    lines = [
        "# Settings of Headrace. A keyword of connect() or a variable HEADRACE_… overrules a line here.",
        "",
    ]
    for name, field in Settings.model_fields.items():
        default = field.get_default(call_default_factory=True)
        lines += ["", f"# {field.description}"]
        if name in given:
            lines.append(f"{name} = {_toml(given[name])}")
        elif name == "spark_conf":
            lines.append('# spark_conf = { "spark.sql.session.timeZone" = "UTC" }')
        else:
            lines.append(f"# {name} = {_toml('…' if default is None else default)}")
    return "\n".join([*lines, ""])


def _toml(value: Any) -> str:
    # The JSON of a text, a number or a truth value is TOML as well.
    return json_module.dumps(value, ensure_ascii=False)


def doctor(
    place: Place,
    quick: Annotated[bool, typer.Option("--quick", help="Leave out the trial with Spark.")] = False,
    json: Json = False,
) -> int:
    """Check all that Headrace needs, and say what to do."""
    from headrace.cli.checks import run_checks

    findings = list(run_checks(place, quick=quick))
    if json:
        print(json_text([finding.record for finding in findings]))
    else:
        for finding in findings:
            line = f"{'ok    ' if finding.ok else 'failed'} {finding.name}: {finding.detail}"
            style = "" if finding.ok else "red"
            out().print(line, style=style, markup=False, highlight=False, soft_wrap=True)
    return 0 if all(finding.ok for finding in findings) else 1
