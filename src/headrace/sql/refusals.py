"""What cannot be maintained incrementally: found in the text, before Spark folds it into literals."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass

from sqlglot import Token, TokenType, exp

from headrace.errors import Position
from headrace.sql.functions import (
    NON_DETERMINISTIC,
    SESSION,
    TIME,
    TIME_WITHOUT_ARGUMENTS,
    WITHOUT_PARENTHESES,
)
from headrace.sql.one_row import cuts_rows
from headrace.sql.position import position_at


@dataclass(frozen=True)
class Refusal:
    """Why a query cannot be maintained incrementally, where, and what to write instead."""

    code: str
    construct: str
    reason: str
    hint: str
    position: Position | None = None

    def __str__(self) -> str:
        place = f" ({self.position})" if self.position else ""
        return f"[{self.code}] {self.construct}{place}: {self.reason} {self.hint}".rstrip()


_FUNCTION_REASONS = {
    "non_deterministic_function": (
        "it gives another value each time, so the change of the result is undefined.",
        "Store the value in a source column, or use REFRESH MODE FULL.",
    ),
    "time_function": (
        "its value changes while the sources do not.",
        "Use REFRESH MODE AUTO or FULL, which evaluate it at each refresh, or filter when reading.",
    ),
    "session_function": (
        "its value depends on the session that runs the refresh.",
        "Write the value as a literal, or filter when reading the stream table.",
    ),
}


def find_refusals(
    text: str,
    tokens: Sequence[Token],
    tree: exp.Expr | None,
    *,
    columns: Set[str] = frozenset(),
) -> tuple[Refusal, ...]:
    """All constructs in one text that have no exact change; `columns` are names that columns have."""
    found = [*_functions(text, tokens, columns), *_moments(text, tree)]
    if tree is None or tree.find(exp.TableSample):
        found += _keyword(text, tokens, {"tablesample"}, _SAMPLING)
    if tree is None or any(cuts_rows(query) for query in tree.find_all(exp.Query)):
        found += _unordered_limits(text, tokens)
    if tree is None or any(part.recursive for part in tree.find_all(exp.With)):
        found += _keyword(text, tokens, {"recursive"}, _RECURSION)
    if tree is not None and any(table.args.get("version") for table in tree.find_all(exp.Table)):
        found += _keyword(text, tokens, {"of"}, _TIME_TRAVEL)
    return tuple(found)


# What Spark takes for the moment of reading, where a date or a time is wanted.
MOMENT = re.compile(r"\s*(now|today|tomorrow|yesterday)(\s+\S+|[+-]\S+)?\s*", re.IGNORECASE)
_TO_TIMES = frozenset({"date", "timestamp", "to_date", "to_timestamp", "try_to_date", "try_to_timestamp"})

# Where Spark's own functions are, whatever others are called.
_BUILTIN = "builtin"

_SAMPLING = (
    "sampling",
    "TABLESAMPLE",
    "it picks rows at random.",
    "Pick rows by a condition, such as a hash of the key: `hash(id) % 10 = 0`.",
)
_RECURSION = (
    "recursive_cte",
    "WITH RECURSIVE",
    "recursive queries are not maintained incrementally.",
    "Use REFRESH MODE FULL.",
)
_TIME_TRAVEL = (
    "time_travel",
    "VERSION / TIMESTAMP AS OF",
    "the table is pinned by the query itself, so it has no changes to follow.",
    "Leave the AS OF clause out: a refresh pins every source, or use REFRESH MODE FULL.",
)


def non_deterministic_calls(text: str, names: Set[str]) -> tuple[Refusal, ...]:
    """The registered functions that a text calls and whose value is not decided by their arguments."""
    reason, hint = _FUNCTION_REASONS["non_deterministic_function"]
    found = []
    for name in sorted(names):
        place = re.search(rf"\b{re.escape(name)}\b", text, re.IGNORECASE)
        position = position_at(text, place.start()) if place else None
        found.append(Refusal("non_deterministic_function", f"{name}()", reason, hint, position))
    return tuple(found)


def _moments(text: str, tree: exp.Expr | None) -> Iterator[Refusal]:
    """Texts such as 'now' that are made dates or times: they mean the moment at which they are read."""
    for literal in tree.find_all(exp.Literal) if tree is not None else ():
        if literal.is_string and MOMENT.fullmatch(literal.name) and _is_made_a_time(literal):
            reason, hint = _FUNCTION_REASONS["time_function"]
            place = text.find(literal.name)
            position = position_at(text, place) if place >= 0 else None
            yield Refusal("time_function", f"'{literal.name}'", reason, hint, position)


def _is_made_a_time(literal: exp.Literal) -> bool:
    parent = literal.parent
    if isinstance(parent, (exp.Cast, exp.TryCast)):
        return parent.to.is_type(*exp.DataType.TEMPORAL_TYPES)
    return isinstance(parent, exp.Anonymous) and parent.name.lower() in _TO_TIMES


def _functions(text: str, tokens: Sequence[Token], columns: Set[str]) -> Iterator[Refusal]:
    for index, token in enumerate(tokens):
        name = token.text.lower()
        after = tokens[index + 1].token_type if index + 1 < len(tokens) else None
        before = tokens[index - 1].token_type if index else None
        called, quoted = after is TokenType.L_PAREN, token.token_type is TokenType.IDENTIFIER
        if token.token_type is TokenType.STRING or (quoted and not called):
            continue
        if before is TokenType.DOT and not (called and tokens[index - 2].text.lower() == _BUILTIN):
            continue
        bare = name in WITHOUT_PARENTHESES and name not in columns and before is not TokenType.ALIAS
        if quoted and before is TokenType.ALIAS:
            # A table's name with the names of its columns.
            continue
        if not called and (not bare or after is TokenType.DOT):
            continue
        empty = called and index + 2 < len(tokens) and tokens[index + 2].token_type is TokenType.R_PAREN
        if code := _function_code(name, empty=empty):
            reason, hint = _FUNCTION_REASONS[code]
            construct = f"{name}()" if called else name
            yield Refusal(code, construct, reason, hint, position_at(text, token.start))


def _function_code(name: str, *, empty: bool) -> str | None:
    if name in NON_DETERMINISTIC:
        return "non_deterministic_function"
    if name in TIME or (empty and name in TIME_WITHOUT_ARGUMENTS):
        return "time_function"
    return "session_function" if name in SESSION else None


def _keyword(
    text: str, tokens: Sequence[Token], words: Set[str], refusal: tuple[str, str, str, str]
) -> Iterator[Refusal]:
    for token in tokens:
        if token.text.lower() in words and token.token_type is not TokenType.STRING:
            yield Refusal(*refusal, position_at(text, token.start))


def _unordered_limits(text: str, tokens: Sequence[Token]) -> Iterator[Refusal]:
    # Each open parenthesis starts a query of its own: an ORDER BY counts for the LIMITs beside it only. Which
    # row EXISTS finds does not matter.
    ordered = [False]
    for index, token in enumerate(tokens):
        match token.token_type:
            case TokenType.L_PAREN:
                ordered.append(index > 0 and tokens[index - 1].token_type is TokenType.EXISTS)
            case TokenType.R_PAREN if len(ordered) > 1:
                ordered.pop()
            case TokenType.ORDER_BY:
                ordered[-1] = True
            case TokenType.LIMIT | TokenType.OFFSET if not ordered[-1] and _starts_count(tokens, index):
                yield Refusal(
                    "limit_without_order",
                    token.text.upper(),
                    "without ORDER BY any rows may be returned, so the result is undefined.",
                    "Add ORDER BY with columns that decide which rows come first.",
                    position_at(text, token.start),
                )


def _starts_count(tokens: Sequence[Token], index: int) -> bool:
    after = tokens[index + 1].token_type if index + 1 < len(tokens) else None
    return after in (TokenType.NUMBER, TokenType.L_PAREN, TokenType.PARAMETER)
