"""Spark SQL that comes out as it went in."""

from __future__ import annotations

from typing import Any, ClassVar

from sqlglot.dialects.spark import Spark

_SPARK = Spark.parser_class

# Functions with a grammar of their own; every other call is kept by its name and arguments.
_OWN_GRAMMAR = ("CAST", "TRY_CAST", "EXTRACT", "TRIM", "SUBSTRING", "POSITION", "OVERLAY")


class VerbatimSpark(Spark):
    """Spark's dialect without SQLGlot's knowledge of functions, which rewrites some of them into others.

    >>> import sqlglot
    >>> sql = "SELECT PERCENTILE_CONT(0.5) WITHIN GROUP (ORDER BY a), A DIV 2"
    >>> sqlglot.parse_one(sql, dialect=VerbatimSpark).sql(dialect=VerbatimSpark)
    'SELECT PERCENTILE_CONT(0.5) WITHIN GROUP (ORDER BY a), A DIV 2'
    """

    class Tokenizer(Spark.tokenizer_class):  # type: ignore[misc, valid-type]
        # A doubled quote is one quote, as in Spark since 4.0; SQLGlot takes it for two texts side by side.
        STRING_ESCAPES: ClassVar[list[str]] = ["\\", "'", '"']

    class Parser(_SPARK):  # type: ignore[misc, valid-type]
        FUNCTIONS: ClassVar[dict[str, Any]] = {}
        FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {
            name: _SPARK.FUNCTION_PARSERS[name] for name in _OWN_GRAMMAR
        }
