"""The clauses that statements share: schedule, refresh mode, options, query."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass

from headrace.errors import HeadraceError, Position
from headrace.sql.cursor import Cursor
from headrace.sql.statements import REFRESH_MODES, OptionValue
from headrace.sql.tokens import Kind, position_at
from headrace.sql.writes import find_writes

# Every option of CREATE STREAM TABLE … WITH (…), and the type of its value.
STREAM_TABLE_OPTIONS: dict[str, type[OptionValue]] = {"initialize": bool}

_BOOLEANS = {"true": True, "false": False}
_QUERY_STARTS = ("SELECT", "WITH", "FROM", "VALUES", "TABLE")


@dataclass(frozen=True)
class QueryText:
    """A query inside a statement, from its first word to its last."""

    text: str
    offset: int
    position: Position


def suggest(word: str, known: Sequence[str]) -> str:
    """Name the known word that was probably meant, if there is one.

    >>> suggest("initialise", ["initialize"])
    'Did you mean initialize?'
    """
    close = difflib.get_close_matches(word, known, n=1)
    return f"Did you mean {close[0]}?" if close else ""


def sees_schedule(cursor: Cursor) -> bool:
    return cursor.sees("SCHEDULE") or cursor.sees("TARGET_LAG")


def read_schedule(cursor: Cursor) -> str:
    """Read a schedule into the text that the scheduler understands.

    >>> read_schedule(Cursor("SCHEDULE CRON '0 6 * * *' TIME ZONE 'Europe/Rome'"))
    "CRON '0 6 * * *' TIME ZONE 'Europe/Rome'"
    >>> read_schedule(Cursor("target_lag = '90s'"))
    '90s'
    """
    lag = cursor.advance().word == "TARGET_LAG"
    if lag:
        cursor.expect_symbol("=")
    if cursor.accept("DOWNSTREAM"):
        return "DOWNSTREAM"
    if cursor.token.kind is Kind.STRING:
        return cursor.advance().value
    if lag:
        raise cursor.expected("a duration in quotes", "DOWNSTREAM")
    if not cursor.accept("CRON"):
        raise cursor.expected("a duration in quotes", "CRON", "DOWNSTREAM")
    cron = f"CRON {_quoted(cursor.string('a cron expression in quotes'))}"
    if not cursor.accept("TIME"):
        return cron
    cursor.expect("ZONE")
    return f"{cron} TIME ZONE {_quoted(cursor.string('a time zone in quotes'))}"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def read_refresh_mode(cursor: Cursor) -> str:
    mode = cursor.accept_any(*REFRESH_MODES)
    if not mode:
        raise cursor.expected(*REFRESH_MODES, hint=suggest(cursor.token.word, REFRESH_MODES))
    return mode


def read_query(cursor: Cursor) -> QueryText:
    """Read the query up to the end of the statement; what is inside it is for the analysis to judge."""
    if not (cursor.token.is_symbol("(") or cursor.token.word in _QUERY_STARTS):
        raise cursor.expected("a query")
    start = end = cursor.token.start
    while cursor.token.kind is not Kind.END and not cursor.token.is_symbol(";"):
        if cursor.token.kind is Kind.BROKEN:
            raise cursor.expected("a query")
        end = cursor.advance().end
    text = cursor.text[start:end]
    if writes := find_writes(text):
        raise HeadraceError(
            "syntax_error",
            f"The query of a stream table can only read, but this one writes ({writes[0].verb}).",
            hint="Write a SELECT.",
            position=position_at(cursor.text, start),
        )
    return QueryText(text, start, position_at(cursor.text, start))


def with_options(cursor: Cursor) -> dict[str, OptionValue]:
    """Read the options of a stream table and check their names and types."""
    known = sorted(STREAM_TABLE_OPTIONS)
    options: dict[str, OptionValue] = {}
    for key, (value, position) in _read_pairs(cursor).items():
        if key not in STREAM_TABLE_OPTIONS:
            raise HeadraceError(
                "unknown_option",
                f"A stream table has no option {key!r}.",
                hint=suggest(key, known) or f"The options are: {', '.join(known)}.",
                position=position,
            )
        options[key] = _typed(key, value, position)
    return options


def _typed(key: str, value: OptionValue, position: Position) -> OptionValue:
    wanted = STREAM_TABLE_OPTIONS[key]
    if wanted is bool and isinstance(value, str):
        value = _BOOLEANS.get(value.lower(), value)
    if type(value) is not wanted:
        kind = "true or false" if wanted is bool else f"a value of type {wanted.__name__}"
        raise HeadraceError(
            "invalid_option",
            f"The option {key} cannot be {value!r}.",
            hint=f"Give {key} = {kind}.",
            position=position,
        )
    return value


def read_options(cursor: Cursor) -> dict[str, OptionValue]:
    """Read `(key value, key = value, …)`, names in lower case.

    >>> read_options(Cursor("(url 'jdbc:x', 'Fetch' = 10)"))
    {'url': 'jdbc:x', 'fetch': 10}
    """
    return {key: value for key, (value, _) in _read_pairs(cursor).items()}


def _read_pairs(cursor: Cursor) -> dict[str, tuple[OptionValue, Position]]:
    cursor.expect_symbol("(")
    pairs: dict[str, tuple[OptionValue, Position]] = {}
    while not pairs or cursor.accept_symbol(","):
        position, key = cursor.position, _option_name(cursor)
        if key in pairs:
            raise HeadraceError(
                "syntax_error",
                f"The option {key} is given twice.",
                hint="Keep one of the two.",
                position=position,
            )
        cursor.accept_symbol("=")
        pairs[key] = (_option_value(cursor), position)
    if not cursor.accept_symbol(")"):
        raise cursor.expected(",", ")")
    return pairs


def _option_name(cursor: Cursor) -> str:
    if cursor.token.kind is Kind.STRING:
        return cursor.advance().value.lower()
    parts = [cursor.identifier("the name of an option")]
    while cursor.accept_symbol("."):
        parts.append(cursor.identifier("the rest of the option's name"))
    return ".".join(parts).lower()


def _option_value(cursor: Cursor) -> OptionValue:
    if cursor.token.kind is Kind.STRING:
        return cursor.advance().value
    sign = "-" if cursor.accept_symbol("-") else ""
    token = cursor.token
    if token.text.isascii() and token.text.isdigit():
        cursor.advance()
        return _number(cursor, sign + token.text)
    if not sign and token.text.lower() in _BOOLEANS:
        return _BOOLEANS[cursor.advance().text.lower()]
    raise cursor.expected("a string in quotes", "a number", "true", "false")


def _number(cursor: Cursor, whole: str) -> int | float:
    fraction = cursor.ahead(1).text
    if cursor.token.is_symbol(".") and fraction.isascii() and fraction.isdigit():
        cursor.index += 2
        return float(f"{whole}.{fraction}")
    return int(whole)
