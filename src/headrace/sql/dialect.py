"""Spark SQL that comes out as it went in."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import Any, ClassVar

import sqlglot.parser
from sqlglot import Token, TokenType, exp
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


_NAMES = {(TokenType.WINDOW, TokenType.L_PAREN), (TokenType.INTERVAL, TokenType.L_BRACKET)}


def _as_name(token: Token) -> Token:
    return Token(
        TokenType.VAR, token.text, token.line, token.col, token.start, token.end, list(token.comments)
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
        # A column may have the name of CURRENT_DATE, or of ARRAY, behind which SQLGlot expects elements.
        NO_PAREN_FUNCTIONS: ClassVar[dict[Any, Any]] = {}
        ARRAY_CONSTRUCTORS: ClassVar[dict[str, Any]] = {}

        def parse(self, raw_tokens: Sequence[Token], sql: str | None = None) -> list[exp.Expr | None]:
            """Read WINDOW before a parenthesis as a function, and INTERVAL before a bracket as a column."""
            tokens = [
                _as_name(token) if after and (token.token_type, after.token_type) in _NAMES else token
                for token, after in zip_longest(raw_tokens, raw_tokens[1:])
            ]
            found: list[exp.Expr | None] = super().parse(tokens, sql)
            return found

        def _parse_interval(self, *args: Any, **options: Any) -> exp.Expr | None:
            """Keep together what is one interval of several units: SQLGlot adds them up."""
            found: exp.Expr | None = super()._parse_interval(*args, **options)
            return exp.Paren(this=found) if isinstance(found, exp.Add) else found
