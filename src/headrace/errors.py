"""Every error a user can meet: a stable code, what is wrong, where, and what to do."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Position:
    """A place in a statement's text, both counted from 1."""

    line: int
    column: int

    def __str__(self) -> str:
        return f"line {self.line}, column {self.column}"


class HeadraceError(Exception):
    """An error with a stable `code`, a `hint` that says what to do and, for SQL, a `position`.

    >>> print(HeadraceError("unknown_stream_table", "No s.t here.", hint="SHOW STREAM TABLES lists them."))
    [unknown_stream_table] No s.t here. SHOW STREAM TABLES lists them.
    """

    def __init__(
        self,
        code: str,
        message: str,
        *,
        hint: str = "",
        position: Position | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.hint = hint
        self.position = position

    def __str__(self) -> str:
        place = f" ({self.position})" if self.position else ""
        hint = f" {self.hint}" if self.hint else ""
        return f"[{self.code}] {self.message}{place}{hint}"


def shift(position: Position | None, offset: Position | None) -> Position | None:
    """Move a place in the query to its place in the whole statement."""
    if position is None or offset is None:
        return position
    column = position.column + offset.column - 1 if position.line == 1 else position.column
    return Position(position.line + offset.line - 1, column)
