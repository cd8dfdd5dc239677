"""A script cut into its statements, as files and the shell hold them."""

from __future__ import annotations

from itertools import pairwise

from headrace.sql.tokens import Kind, Token, position_at, tokenize, unclosed_error

_BLOCKS = frozenset({"IF", "WHILE", "LOOP", "REPEAT", "FOR"})
# The END of a block follows one of these; the END of a CASE expression follows an expression.
_BEFORE_BLOCK_END = frozenset({";", "THEN", "ELSE", "DO", "LOOP", "REPEAT"})


def split_statements(script: str) -> list[tuple[str, int]]:
    """Cut a script at its semicolons into statements, each with its offset in the script.

    >>> split_statements("SELECT ';'; -- one; two\\nBEGIN SELECT 1; END; ")
    [("SELECT ';'", 0), ('BEGIN SELECT 1; END', 24)]
    """
    statements, rest = _split(script)
    if rest and rest[-1].kind is Kind.BROKEN:
        raise unclosed_error(rest[-1], position_at(script, rest[-1].start))
    spans = [*statements, rest] if rest else statements
    return [(script[span[0].start : span[-1].end], span[0].start) for span in spans]


def is_complete(script: str) -> bool:
    """Whether the script ends where a statement ends, so that a shell can run it.

    >>> [is_complete(text) for text in ("SELECT 1", "SELECT ';", "BEGIN SELECT 1;", "SELECT 1; --x")]
    [False, False, False, True]
    """
    return not _split(script)[1]


def _split(script: str) -> tuple[list[list[Token]], list[Token]]:
    """The tokens of every finished statement, and those after the last semicolon."""
    statements: list[list[Token]] = []
    statement: list[Token] = []
    blocks: list[str] = []
    tokens = tokenize(script)
    for token, following in pairwise(tokens):
        if token.is_symbol(";") and not blocks:
            if statement:
                statements.append(statement)
            statement = []
            continue
        statement.append(token)
        _follow_blocks(blocks, statement, following)
    return statements, statement


def _follow_blocks(blocks: list[str], statement: list[Token], following: Token) -> None:
    """Keep the stack of open BEGIN and CASE as the newest token of the statement leaves it.

    IF and the loops need no place on it: they close with their own name after END.
    """
    token = statement[-1]
    before = statement[-2] if len(statement) > 1 else None
    if before and before.is_symbol("."):
        return
    if token.word == "BEGIN":
        if (blocks or _may_begin_block(statement)) and _is_block_start(following):
            blocks.append("BEGIN")
    elif not blocks:
        return
    elif token.word == "CASE" and not (before and before.word == "END"):
        blocks.append("CASE")
    elif token.is_symbol(";") and blocks[-1] == "CASE":
        blocks[-1] = "CASE statement"
    elif token.word == "END" and not _ends_other_block(blocks[-1], before, following):
        blocks.pop()


def _may_begin_block(statement: list[Token]) -> bool:
    """Whether the BEGIN at the end of this text opens a script: first, after a label, or in a procedure."""
    words = [token.word for token in statement[:4]]
    labelled = len(statement) == 3 and statement[1].is_symbol(":")
    return len(statement) == 1 or labelled or (words[0] == "CREATE" and "PROCEDURE" in words)


def _is_block_start(following: Token) -> bool:
    """`BEGIN;` and `BEGIN TRANSACTION` are other systems' statements, left whole for Spark to refuse."""
    return not following.is_symbol(";") and following.word not in ("TRANSACTION", "WORK")


def _ends_other_block(innermost: str, before: Token | None, following: Token) -> bool:
    """Whether this END closes an IF or a loop; after a CASE expression the same words are an alias."""
    if following.word not in _BLOCKS:
        return False
    return innermost != "CASE" or (before is not None and (before.word or before.text) in _BEFORE_BLOCK_END)
