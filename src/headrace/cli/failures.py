"""Any exception as one line: a code, what is wrong, and what to do."""

from __future__ import annotations

import re
import sys

from headrace.errors import HeadraceError

_STATE = re.compile(r"\s*SQLSTATE: \w+")
_CONDITION = re.compile(r"\[[A-Z0-9_.]+\]\s*")


def as_error(error: Exception) -> HeadraceError:
    """Turn an exception into the error that is shown for it.

    >>> print(as_error(FileNotFoundError(2, "No such file or directory", "x.sql")))
    [file_error] x.sql: No such file or directory. Check the path and its rights.
    """
    if isinstance(error, HeadraceError):
        return error
    # Without PySpark in memory the error cannot be one of Spark's, and importing it would take seconds.
    if "pyspark" in sys.modules and (known := _spark_error(error)):
        return known
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        return HeadraceError(
            "file_error", f"{where}{error.strerror or error}.", hint="Check the path and its rights."
        )
    return HeadraceError(
        "internal_error",
        f"{type(error).__name__}: {first_line(str(error))}",
        hint="This is a defect of Headrace; --debug shows where.",
    )


def _spark_error(error: Exception) -> HeadraceError | None:
    from pyspark.errors import AnalysisException, ParseException, PySparkException

    if isinstance(error, AnalysisException | ParseException):
        from headrace.refresh.failure import query_error

        known = query_error(error)
        message = first_sentences(_CONDITION.sub("", known.message, count=1))
        return HeadraceError(known.code, message, hint="Correct the statement.", position=known.position)
    if isinstance(error, PySparkException) or type(error).__module__.startswith("py4j."):
        return HeadraceError(
            "spark_error", first_line(str(error)), hint="Spark refused or failed; --debug shows all of it."
        )
    return None


def first_sentences(text: str) -> str:
    """Keep two sentences: Spark goes on to explain name resolution at length.

    >>> first_sentences("No table `a`. Verify the spelling. If you did not qualify the name, do so.")
    'No table `a`. Verify the spelling.'
    """
    return " ".join(re.split(r"(?<=[.!?])\s+(?=[A-Z])", text)[:2])


def first_line(text: str) -> str:
    """Keep the line of a long message that says what is wrong.

    >>> first_line("[DIVIDE_BY_ZERO] Division by zero. SQLSTATE: 22012\\n== SQL ==\\n…")
    'Division by zero.'
    """
    lines = [line.strip() for line in text.strip().splitlines()] or [""]
    if lines[0].startswith("An error occurred while calling") and len(lines) > 1:
        lines = lines[1:]
    return _CONDITION.sub("", _STATE.sub("", lines[0]), count=1).strip() or "no message"
