"""Spark SQL that comes out as it went in."""

from __future__ import annotations

from typing import Any, ClassVar

import sqlglot.parser
from sqlglot.dialects.spark import Spark

from headrace.errors import HeadraceError

_SPARK = Spark.parser_class

# Functions with a grammar of their own; every other call is kept by its name and arguments.
_OWN_GRAMMAR = ("CAST", "TRY_CAST", "EXTRACT", "TRIM", "SUBSTRING", "POSITION", "OVERLAY")


def check_parser(file: str | None = sqlglot.parser.__file__) -> None:
    """Refuse SQLGlot's compiled parser: nobody can derive a dialect from it."""
    if file is not None and not file.endswith(".py"):
        raise HeadraceError(
            "compiled_sqlglot",
            "The package sqlglotc is installed: Headrace cannot extend its compiled parser.",
            hint="pip uninstall sqlglotc && pip install --force-reinstall --no-deps sqlglot",
        )


class VerbatimSpark(Spark):
    """Spark's dialect without SQLGlot's knowledge of functions, which rewrites some of them into others.

    >>> import sqlglot
    >>> sql = "SELECT PERCENTILE_CONT(0.5) WITHIN GROUP (ORDER BY a), A DIV 2"
    >>> sqlglot.parse_one(sql, dialect=VerbatimSpark).sql(dialect=VerbatimSpark)
    'SELECT PERCENTILE_CONT(0.5) WITHIN GROUP (ORDER BY a), A DIV 2'
    """

    # SQLGlot gives both classes as values of its dialect, which a type checker takes for no base.
    class Tokenizer(Spark.tokenizer_class):  # type: ignore[misc, valid-type]  # see above
        # A doubled quote is one quote, as in Spark since 4.0; SQLGlot takes it for two texts side by side.
        STRING_ESCAPES: ClassVar[list[str]] = ["\\", "'", '"']

    class Parser(_SPARK):  # type: ignore[misc, valid-type]  # see above
        FUNCTIONS: ClassVar[dict[str, Any]] = {}
        FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {
            name: _SPARK.FUNCTION_PARSERS[name] for name in _OWN_GRAMMAR
        }
