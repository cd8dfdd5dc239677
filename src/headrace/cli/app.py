"""The commands, in the order in which a user meets them."""

from __future__ import annotations

from typing import Annotated

import typer

import headrace
from headrace.cli.begin import demo, doctor, init
from headrace.cli.bench import bench
from headrace.cli.command import register
from headrace.cli.define import alter, create, drop
from headrace.cli.inspect import dag, history, list_, status
from headrace.cli.maintain import explain, refresh, verify
from headrace.cli.run import run
from headrace.cli.sql import sql

app = typer.Typer(
    name="headrace",
    help="Stream tables for Apache Spark: tables defined by a query, kept up to date incrementally.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

for command in (
    demo,
    init,
    sql,
    create,
    drop,
    alter,
    refresh,
    list_,
    status,
    history,
    explain,
    verify,
    dag,
    run,
    bench,
    doctor,
):
    register(app, command)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"headrace {headrace.__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    pass
