"""The interactive shell: statements over many lines, history, completion, a few commands of its own."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import WordCompleter
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.lexers import PygmentsLexer

import headrace
from headrace.cli.command import err, out, show_error
from headrace.cli.failures import as_error
from headrace.cli.run_sql import Style, run_script
from headrace.sql.ddl import is_complete

if TYPE_CHECKING:
    from headrace.api import Headrace

HELP = r"""A statement ends with a semicolon and may take several lines.
  \d          list the stream tables        \d name     describe one
  \history    what past refreshes did       \timing     show times, or not
  \?          this help                     \q          leave (also Ctrl-D)
Ctrl-C drops what you are typing, or stops what is running."""
_SHORTHANDS = {r"\d": "SHOW STREAM TABLES", r"\history": "SHOW REFRESH HISTORY"}
_KEYWORDS = (
    *("CREATE STREAM TABLE", "CREATE OR REPLACE STREAM TABLE", "ALTER STREAM TABLE", "DROP STREAM TABLE"),
    *("REFRESH STREAM TABLE", "DESCRIBE STREAM TABLE", "EXPLAIN STREAM TABLE", "EXPLAIN CREATE STREAM TABLE"),
    *("SHOW STREAM TABLES", "SHOW REFRESH HISTORY", "SCHEDULE", "REFRESH MODE", "DIFFERENTIAL", "IMMEDIATE"),
    *("SELECT", "FROM", "WHERE", "GROUP BY", "ORDER BY", "HAVING", "LIMIT", "JOIN", "LEFT JOIN", "VALUES"),
    *("INSERT INTO", "UPDATE", "DELETE FROM", "MERGE INTO", "CREATE TABLE", "CREATE SCHEMA", "SHOW TABLES"),
)


def run_shell(hr: Headrace, style: Style) -> int:
    """Read statements until the user leaves."""
    out().print(f"Headrace {headrace.__version__} on Spark {hr.spark.version}. \\? helps, \\q leaves.")
    session = _session(hr)
    while True:
        try:
            text = session.prompt("headrace> ").strip()
        except KeyboardInterrupt:
            continue
        except EOFError:
            return 0
        if text in (r"\q", "exit", "quit", "exit;", "quit;"):
            return 0
        style = answer(hr, text, style)


def answer(hr: Headrace, text: str, style: Style) -> Style:
    """Carry out one input; give the style for the next."""
    if text in (r"\?", "help", "help;"):
        out().print(HELP, markup=False, highlight=False)
    elif text == r"\timing":
        style = replace(style, timing=not style.timing)
        out().print(f"Times are {'shown' if style.timing else 'not shown'}.")
    elif text.startswith("\\"):
        _shorthand(hr, text, style)
    else:
        _run(hr, text, style)
    return style


def _shorthand(hr: Headrace, text: str, style: Style) -> None:
    word, _, name = text.partition(" ")
    if word == r"\d" and name.strip():
        _run(hr, f"DESCRIBE STREAM TABLE {name}", style)
    elif word in _SHORTHANDS and not name.strip():
        _run(hr, _SHORTHANDS[word], style)
    else:
        err().print(f"There is no command {word}; \\? lists them.", markup=False, highlight=False)


def _run(hr: Headrace, text: str, style: Style) -> None:
    try:
        run_script(hr, text, style)
    except KeyboardInterrupt:
        err().print("interrupted")
    except Exception as error:  # noqa: BLE001 - the shell outlives every error
        show_error(as_error(error))


def _session(hr: Headrace) -> PromptSession[str]:
    names = [str(table.name) for table in hr.catalog.all()]
    return PromptSession(
        history=_history(),
        multiline=True,
        key_bindings=_bindings(),
        lexer=PygmentsLexer.from_filename("statements.sql"),
        completer=WordCompleter([*_KEYWORDS, *names], ignore_case=True),
        complete_while_typing=False,
        prompt_continuation="       -> ",
    )


def _bindings() -> KeyBindings:
    bindings = KeyBindings()

    @bindings.add("enter")
    def enter(event: KeyPressEvent) -> None:
        """Run what is complete; go on to another line otherwise."""
        buffer = event.current_buffer
        if ends_input(buffer.text):
            buffer.validate_and_handle()
        else:
            buffer.insert_text("\n")

    return bindings


def ends_input(text: str) -> bool:
    r"""Whether Enter runs this text: a command of the shell, or complete statements.

    >>> ends_input("\\d"), ends_input("SELECT 1"), ends_input("SELECT 1;"), ends_input("help")
    (True, False, True, True)
    """
    stripped = text.strip()
    return stripped.startswith("\\") or stripped in ("help", "exit", "quit") or is_complete(text)


def history_file() -> Path:
    """Where the shell's history is kept: the user's folder for state."""
    state = os.environ.get("XDG_STATE_HOME")
    return (Path(state) if state else Path.home() / ".local" / "state") / "headrace" / "sql_history"


def _history() -> History:
    file = history_file()
    try:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        file.touch(mode=0o600)
    except OSError:
        return InMemoryHistory()
    return FileHistory(str(file))
