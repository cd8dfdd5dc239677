"""Spark's and storage's errors as ours: a stable code, what is wrong, and what to do."""

from __future__ import annotations

import re

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, ParseException, PySparkException

from headrace.catalog import StreamTable
from headrace.errors import HeadraceError, Position
from headrace.sql.names import TableName

# Spark's error conditions that a user can act on, as the codes our users know.
_CODES = {
    "TABLE_OR_VIEW_NOT_FOUND": "unknown_table",
    "UNRESOLVED_COLUMN": "unknown_column",
    "UNRESOLVED_ROUTINE": "unknown_function",
    "AMBIGUOUS_REFERENCE": "ambiguous_column",
    "SCHEMA_NOT_FOUND": "unknown_schema",
    "PARSE_SYNTAX_ERROR": "syntax_error",
}
# After these a retry alone helps nobody: the table goes to ERROR until the cause is gone.
NEEDS_A_PERSON = frozenset(
    {
        "storage_missing",
        "source_missing",
        "unsupported_source",
        "schema_changed",
        "unknown_table",
        "unknown_column",
    }
)
_PLACE = re.compile(r";?\s*\(?line (\d+),? pos (\d+)\)?")


def query_error(error: PySparkException, *, offset: Position | None = None) -> HeadraceError:
    """Turn what Spark says of a query into an error with the place in the user's own text."""
    condition = (error.getCondition() or "").split(".")[0]
    fallback = "syntax_error" if isinstance(error, ParseException) else "invalid_query"
    message = _first_lines(str(error))
    return HeadraceError(
        _CODES.get(condition, fallback),
        message,
        hint="Correct the statement and try again; nothing was created or changed.",
        position=_place(str(error), offset),
    )


def as_headrace_error(error: Exception, name: TableName) -> HeadraceError:
    """Say which stream table failed and why, in one line."""
    if isinstance(error, HeadraceError):
        return error
    if isinstance(error, AnalysisException):
        known = query_error(error)
        return HeadraceError(
            known.code, f"Refreshing {name} failed: {known.message}", hint=_resume_hint(name)
        )
    return HeadraceError(
        "refresh_failed", f"Refreshing {name} failed: {root_cause(error)}", hint=_resume_hint(name)
    )


def storage_missing(table: StreamTable) -> HeadraceError:
    if not table.location:
        return HeadraceError(
            "storage_missing",
            f"{table.name} has no storage: whoever created it ended before it was made.",
            hint=f"DROP STREAM TABLE {table.name} forgets it; then create it again.",
        )
    return HeadraceError(
        "storage_missing",
        f"The Delta table that stores {table.name} is gone: it was dropped or its files were removed.",
        hint=f"REFRESH STREAM TABLE {table.name} FULL builds it anew; DROP STREAM TABLE forgets it.",
    )


def _resume_hint(name: TableName) -> str:
    return f"Its contents are as before. Correct the cause, then REFRESH STREAM TABLE {name}."


def root_cause(error: Exception) -> str:
    """Give the innermost message: Spark wraps the row's own error in those of its task and its job."""
    if not isinstance(error, Py4JJavaError):
        return _first_lines(str(error))
    cause = error.java_exception
    while cause.getCause() is not None:
        cause = cause.getCause()
    return _first_lines(str(cause.getMessage() or cause.toString()))


def _first_lines(text: str) -> str:
    """Keep what a person reads of Spark's message and drop the plan and the trace.

    >>> _first_lines("[X] No column `a`. SQLSTATE: 42703; line 1 pos 7;\\n'Project ['a]")
    '[X] No column `a`.'
    """
    kept = re.split(r"\n\s*at |\n'|\n==|\nJVM stacktrace", text)[0]
    kept = re.sub(r"\s*SQLSTATE: \w+", "", kept)
    kept = _PLACE.sub("", kept)
    return " ".join(kept.replace(";", "; ").split()).rstrip("; ")


def _place(text: str, offset: Position | None) -> Position | None:
    found = _PLACE.search(text)
    if found is None:
        return None
    line, column = int(found[1]), int(found[2]) + 1
    if offset is None:
        return Position(line, column)
    return Position(line + offset.line - 1, column + offset.column - 1 if line == 1 else column)
