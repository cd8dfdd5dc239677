"""A reader of tokens that takes what it recognises and says exactly what it missed."""

from __future__ import annotations

from headrace.errors import HeadraceError, Position
from headrace.sql.names import split_name
from headrace.sql.statements import NameParts
from headrace.sql.tokens import Kind, Token, position_at, tokenize, unclosed_error

# Bare words that begin the next clause: taken as a name they would hide that the name is missing.
_NEVER_NAMES = frozenset({"AS", "SELECT", "FROM", "WITH", "SET", "WHERE"})


class Cursor:
    """A place among the tokens of one statement; `usage` is the syntax that hints show."""

    def __init__(self, text: str, *, usage: str = "") -> None:
        self.text = text
        self.tokens = tokenize(text)
        self.index = 0
        self.usage = usage

    @property
    def token(self) -> Token:
        return self.tokens[self.index]

    def ahead(self, count: int) -> Token:
        """The token `count` places on, or END."""
        return self.tokens[min(self.index + count, len(self.tokens) - 1)]

    @property
    def position(self) -> Position:
        return position_at(self.text, self.token.start)

    def advance(self) -> Token:
        token = self.token
        if token.kind is not Kind.END:
            self.index += 1
        return token

    def sees(self, *words: str) -> bool:
        """Whether the next tokens are these keywords, in any letter case."""
        return all(self.ahead(place).word == word for place, word in enumerate(words))

    def accept(self, *words: str) -> bool:
        """Take these keywords if they are next.

        >>> Cursor("if Not EXISTS t").accept("IF", "NOT", "EXISTS")
        True
        """
        if not self.sees(*words):
            return False
        self.index += len(words)
        return True

    def accept_any(self, *words: str) -> str:
        """Take the next word if it is one of these, and say which; empty if it is none."""
        word = self.token.word
        if word not in words:
            return ""
        self.index += 1
        return word

    def accept_symbol(self, symbol: str) -> bool:
        if not self.token.is_symbol(symbol):
            return False
        self.index += 1
        return True

    def expect(self, *words: str) -> None:
        for word in words:
            if not self.accept(word):
                raise self.expected(word)

    def expect_symbol(self, symbol: str) -> None:
        if not self.accept_symbol(symbol):
            raise self.expected(symbol)

    def string(self, what: str) -> str:
        if self.token.kind is not Kind.STRING:
            raise self.expected(what)
        return self.advance().value

    def sees_identifier(self) -> bool:
        token = self.token
        return token.kind is Kind.QUOTED or (token.kind is Kind.WORD and token.word not in _NEVER_NAMES)

    def identifier(self, what: str) -> str:
        if not self.sees_identifier():
            raise self.expected(what)
        position, part = self.position, self.advance().value
        if not part:
            raise HeadraceError(
                "invalid_name", "A name cannot be empty.", hint=self._usage_hint(), position=position
            )
        return part

    def name(self, what: str = "a table name") -> NameParts:
        """Take a dotted name.

        >>> Cursor("shop . `Order Lines` AS").name()
        ('shop', 'Order Lines')
        """
        parts = list(self._first_part(what))
        while self.accept_symbol("."):
            parts.append(self.identifier("the next part of the name"))
        return tuple(parts)

    def _first_part(self, what: str) -> NameParts:
        constant = self.ahead(2)
        if not (self.sees("IDENTIFIER") and self.ahead(1).is_symbol("(") and constant.kind is Kind.STRING):
            return (self.identifier(what),)
        self.index += 2
        position = self.position
        parts = split_name(self.advance().value, position=position)
        self.expect_symbol(")")
        return parts

    def finish(self) -> None:
        """Require that nothing but semicolons is left."""
        ended = False
        while self.accept_symbol(";"):
            ended = True
        if self.token.kind is not Kind.END:
            raise self.expected(Kind.END.value, hint="Send one statement at a time." if ended else "")

    def expected(self, *wanted: str, hint: str = "") -> HeadraceError:
        """The error for what stands here in place of what was wanted.

        >>> print(Cursor("DROP it", usage="DROP STREAM TABLE name").expected("STREAM"))
        [syntax_error] Expected STREAM, found DROP. (line 1, column 1) Write: DROP STREAM TABLE name
        """
        if self.token.kind is Kind.BROKEN:
            return unclosed_error(self.token, self.position)
        choice = " or ".join(filter(None, [", ".join(wanted[:-1]), wanted[-1]]))
        message = f"Expected {choice}, found {self._shown()}."
        return HeadraceError("syntax_error", message, hint=hint or self._usage_hint(), position=self.position)

    def _usage_hint(self) -> str:
        return f"Write: {self.usage}" if self.usage else ""

    def _shown(self) -> str:
        token = self.token
        if token.kind is Kind.END:
            return str(Kind.END.value)
        return token.text if len(token.text) <= 40 else token.text[:39] + "…"
