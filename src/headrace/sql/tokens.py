"""Spark SQL text as tokens: words, quoted names, strings and symbols, each with its place."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from headrace.errors import HeadraceError, Position


class Kind(Enum):
    """What a token is; BROKEN is a string, name or comment that never closes."""

    WORD = "word"
    QUOTED = "quoted name"
    STRING = "string"
    SYMBOL = "symbol"
    BROKEN = "unclosed text"
    END = "the end of the statement"


@dataclass(frozen=True, slots=True)
class Token:
    """A piece of the text; `text[start:end]` is exactly what the user wrote."""

    kind: Kind
    text: str
    start: int
    end: int

    @property
    def word(self) -> str:
        """The word in capitals, for comparing with keywords; empty for anything that is not a bare word."""
        return self.text.upper() if self.kind is Kind.WORD else ""

    @property
    def value(self) -> str:
        """What the token stands for: a name without backquotes, a string without quotes and escapes."""
        if self.kind is Kind.QUOTED:
            return self.text[1:-1].replace("``", "`")
        if self.kind is Kind.STRING:
            return _string_value(self.text)
        return self.text

    def is_symbol(self, symbol: str) -> bool:
        return self.kind is Kind.SYMBOL and self.text == symbol


# Possessive repetition: an unclosed string must fail at its first quote, not at the last pair inside it.
_PIECE = re.compile(
    r"""
      (?P<skip> \s+ | --(?:\\\n|[^\r\n])* )
    | (?P<comment> /\* )
    | (?P<string> [rR]'[^']*' | [rR]"[^"]*"
                | '(?:[^'\\]++|\\.|'')*+' | "(?:[^"\\]++|\\.|"")*+"
                | \$(?P<tag>[A-Za-z]*)\$.*?\$(?P=tag)\$ )
    | (?P<quoted> `(?:[^`]++|``)*+` )
    | (?P<word> \w+ )
    | (?P<symbol> . )
    """,
    re.VERBOSE | re.DOTALL,
)
_COMMENT_EDGE = re.compile(r"/\*|\*/")
_OPENERS = {"'": "string", '"': "string", "`": "quoted name"}

_ESCAPE = r"\\u([0-9A-Fa-f]{4})|\\U([0-9A-Fa-f]{8})|\\([0-3][0-7]{2})|\\(.)"
_ESCAPES = {quote: re.compile(f"{_ESCAPE}|({quote}){quote}", re.DOTALL) for quote in "'\""}
# A backslash stays before % and _, which only LIKE gives a meaning.
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "0": "\0", "Z": "\x1a", "%": "\\%", "_": "\\_"}


def tokenize(text: str) -> list[Token]:
    """Cut a text into tokens, dropping blanks and comments; the last token is END.

    >>> [token.text for token in tokenize("SELECT `a;b` -- note\\n , 'it''s' /* x /* y */ */")]
    ['SELECT', '`a;b`', ',', "'it''s'", '']
    """
    return [*_pieces(text), Token(Kind.END, "", len(text), len(text))]


def _pieces(text: str) -> Iterator[Token]:
    at = 0
    while piece := _PIECE.match(text, at):
        kind, at = piece.lastgroup, piece.end()
        if kind == "comment":
            closed = _comment_end(text, piece.start())
            if closed is None:
                yield Token(Kind.BROKEN, text[piece.start() :], piece.start(), len(text))
                return
            at = closed
        elif kind == "symbol" and piece.group() in _OPENERS:
            yield Token(Kind.BROKEN, text[piece.start() :], piece.start(), len(text))
            return
        elif kind != "skip":
            # `lastgroup` names the outermost group that closed last, so a tagged string is still a string.
            yield Token(_KINDS[kind or ""], piece.group(), piece.start(), piece.end())


_KINDS = {"string": Kind.STRING, "quoted": Kind.QUOTED, "word": Kind.WORD, "symbol": Kind.SYMBOL}


def _comment_end(text: str, start: int) -> int | None:
    """Find where the comment that opens at `start` closes, counting the comments nested in it."""
    depth = 0
    for edge in _COMMENT_EDGE.finditer(text, start):
        depth += 1 if edge.group() == "/*" else -1
        if depth == 0:
            return edge.end()
    return None


def _string_value(text: str) -> str:
    if text[0] in "rR":
        return text[2:-1]
    if text[0] == "$":
        edge = text.index("$", 1) + 1
        return text[edge:-edge]
    return _ESCAPES[text[0]].sub(_unescape, text[1:-1])


def _unescape(escape: re.Match[str]) -> str:
    short, long, octal, char, doubled_quote = escape.groups()
    if short or long:
        return chr(int(short or long, 16))
    if octal:
        return chr(int(octal, 8))
    return doubled_quote or _ESCAPED.get(char, char)


def position_at(text: str, offset: int) -> Position:
    """The line and column of an offset.

    >>> print(position_at("SELECT\\n  x", 9))
    line 2, column 3
    """
    before = text[:offset]
    return Position(before.count("\n") + 1, offset - (before.rfind("\n") + 1) + 1)


def unclosed_error(token: Token, position: Position) -> HeadraceError:
    """The error for a BROKEN token.

    >>> print(unclosed_error(tokenize("SELECT 'abc")[1], Position(1, 8)))
    [syntax_error] A string opens here and never closes. (line 1, column 8) Close it with '.
    """
    opener = token.text[0]
    what, closer = (_OPENERS[opener], opener) if opener in _OPENERS else ("comment", "*/")
    message = f"A {what} opens here and never closes."
    return HeadraceError("syntax_error", message, hint=f"Close it with {closer}.", position=position)
