"""The command line, `headrace`: every command is a function in one of these modules."""

from __future__ import annotations


def main() -> None:
    """Run the command line."""
    from headrace.cli.app import app

    app()
