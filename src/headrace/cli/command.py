"""What all commands share: where the tables are, how errors end, and the two consoles."""

from __future__ import annotations

import functools
import inspect
import logging
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from headrace.cli.failures import as_error
from headrace.errors import HeadraceError

if TYPE_CHECKING:
    from headrace.api import Headrace
    from headrace.catalog import Catalog
    from headrace.config import Settings

Json = Annotated[bool, typer.Option("--json", help="Print JSON in place of a table.")]


@dataclass(frozen=True)
class Place:
    """Where a command works, from the options that every command has."""

    warehouse: Path | None = None
    catalog_url: str | None = None
    debug: bool = False

    def settings(self) -> Settings:
        from headrace.config import load_settings

        return load_settings(warehouse=self.warehouse, catalog_url=self.catalog_url)

    def log_as(self, settings: Settings) -> None:
        """Log what the settings ask for, and with --debug all."""
        level = logging.DEBUG if self.debug else logging.getLevelNamesMapping()[settings.log_level]
        logging.getLogger("headrace").setLevel(level)

    @contextmanager
    def connection(self) -> Iterator[Headrace]:
        """Connect, which starts Spark."""
        with working("Starting Spark"):
            import headrace

            hr = headrace.connect(warehouse=self.warehouse, catalog_url=self.catalog_url)
        with hr:
            self.log_as(hr.settings)
            yield hr

    @contextmanager
    def catalog(self) -> Iterator[Catalog]:
        """Open the catalog alone: what it knows is shown in no time, without Spark."""
        from headrace.catalog import Catalog, sqlite_url

        settings = self.settings()
        self.log_as(settings)
        url = settings.catalog_url
        if url is None:
            file = settings.catalog_file
            if not file.exists():
                raise HeadraceError(
                    "no_warehouse",
                    f"There is no Headrace warehouse in {Path(settings.warehouse).absolute()}.",
                    hint="Name another one with --warehouse; headrace init makes one here.",
                )
            url = sqlite_url(file)
        with Catalog.open(url) as catalog:
            if catalog.running():
                from headrace.refresh.recover import recover_all

                recover_all(catalog, ttl_seconds=settings.lease_ttl_seconds)
            yield catalog


def out() -> Console:
    """The console for results; made anew each time, since tests and pipes replace the streams."""
    return Console(file=sys.stdout)


def err() -> Console:
    """The console for errors, notices and progress."""
    return Console(file=sys.stderr)


@contextmanager
def working(what: str) -> Iterator[None]:
    """Show that work is going on, on a terminal only."""
    console = err()
    if not console.is_terminal:
        yield
        return
    with console.status(f"{what} …"):
        yield


def show_error(error: HeadraceError) -> None:
    err().print(f"error {error}", style="red", markup=False, highlight=False, soft_wrap=True)


_COMMON = (
    (
        "warehouse",
        Path | None,
        typer.Option("--warehouse", "-w", help="Folder of the lake; by default the one of the settings."),
    ),
    (
        "catalog_url",
        str | None,
        typer.Option("--catalog-url", help="Catalog elsewhere: postgresql://… or sqlite:///…"),
    ),
    ("config", Path | None, typer.Option("--config", help="Settings file; by default headrace.toml.")),
)
_DEBUG = typer.Option("--debug", help="Show the traceback of an error.")


def register(app: typer.Typer, function: Callable[..., int | None]) -> None:
    """Add a function as a command: its `place` becomes the common options, its result the exit code."""

    @functools.wraps(function)
    def command(
        *args: Any,
        warehouse: Path | None,
        catalog_url: str | None,
        config: Path | None,
        debug: bool,
        **options: Any,
    ) -> None:
        with _configured(config, debug=debug):
            code = _run(function, Place(warehouse, catalog_url, debug), *args, **options)
        raise typer.Exit(code)

    own = [
        parameter
        for parameter in inspect.signature(function, eval_str=True).parameters.values()
        if parameter.name != "place"
    ]
    common = [_option(name, type_, None, option) for name, type_, option in _COMMON]
    parameters = [*own, *common, _option("debug", bool, False, _DEBUG)]
    # Typer reads a command's options from its signature and its annotations.
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # typer reads it
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    app.command(name=function.__name__.rstrip("_"))(command)


def _option(name: str, type_: Any, default: Any, option: Any) -> inspect.Parameter:
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[type_, option]
    )


def _run(function: Callable[..., int | None], place: Place, *args: Any, **options: Any) -> int:
    try:
        return function(place, *args, **options) or 0
    except KeyboardInterrupt:
        err().print("interrupted")
        return 130
    except (typer.Exit, typer.Abort, typer.TyperException, BrokenPipeError):
        raise
    except Exception as error:  # noqa: BLE001 - the one place where every error becomes a line
        if place.debug:
            traceback.print_exc()
        show_error(as_error(error))
        return 1


@contextmanager
def _configured(config: Path | None, *, debug: bool) -> Iterator[None]:
    """Let the settings come from `config`, and notices go to standard error, while a command runs."""
    before = os.environ.get("HEADRACE_CONFIG")
    if config is not None:
        os.environ["HEADRACE_CONFIG"] = str(config)
    log = logging.getLogger("headrace")
    handler = logging.StreamHandler(sys.stderr)
    log.addHandler(handler)
    log.setLevel(logging.DEBUG if debug else logging.WARNING)
    try:
        yield
    finally:
        log.removeHandler(handler)
        if config is not None:
            os.environ.pop("HEADRACE_CONFIG")
            if before is not None:
                os.environ["HEADRACE_CONFIG"] = before
