"""Which tables a Spark statement is aimed at, found by its tokens alone.

Spark parses the statement; this only has to recognise every way of naming a target, so that a guard can
refuse a write to a stream table before Spark runs it. What Spark would refuse anyway may give any answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from headrace.errors import HeadraceError
from headrace.sql.cursor import Cursor
from headrace.sql.names import split_name
from headrace.sql.statements import NameParts, TargetWrite
from headrace.sql.tokens import Kind

_SCHEMA_WORDS = ("SCHEMA", "DATABASE", "NAMESPACE")
_RELATION_WORDS = ("TABLE", "VIEW")
# In a script a statement can begin after each of these.
_BEFORE_STATEMENT = frozenset({"BEGIN", "THEN", "ELSE", "DO", "LOOP", "REPEAT", "ATOMIC"})


def find_writes(text: str) -> tuple[TargetWrite, ...]:
    """Find every table that a statement writes to.

    >>> [(w.verb, w.name) for w in find_writes("WITH n AS (TABLE new) MERGE INTO shop.orders USING n …")]
    [('MERGE', ('shop', 'orders'))]
    >>> find_writes("SELECT * FROM orders")
    ()
    """
    cursor = Cursor(text)
    _skip_label(cursor)
    if cursor.sees("BEGIN"):
        return tuple(_script_writes(cursor))
    return tuple(_statement_writes(cursor))


def _script_writes(cursor: Cursor) -> Iterator[TargetWrite]:
    """Try every place in the script where a statement can begin."""
    while cursor.token.kind is not Kind.END:
        token = cursor.advance()
        if token.is_symbol(";") or token.is_symbol(":") or token.word in _BEFORE_STATEMENT:
            here = cursor.index
            yield from _statement_writes(cursor)
            cursor.index = here


def _statement_writes(cursor: Cursor) -> Iterator[TargetWrite]:
    match cursor.token.word:
        case "WITH":
            _skip_to_verb(cursor, "INSERT", "UPDATE", "DELETE", "MERGE", "FROM")
            if not cursor.sees("WITH"):
                yield from _statement_writes(cursor)
        case "FROM":
            yield from _inserts_after_from(cursor)
        case "EXECUTE":
            yield from _executed_writes(cursor)
        case verb if verb in _TARGETS:
            here = cursor.index
            try:
                yield from _TARGETS[verb](cursor)
            except HeadraceError:  # Spark will say what is wrong with it
                cursor.index = here + 1


def _skip_label(cursor: Cursor) -> None:
    if cursor.sees_identifier() and cursor.ahead(1).is_symbol(":"):
        cursor.index += 2


def _skip_to_verb(cursor: Cursor, *verbs: str) -> None:
    """Move past common table expressions to the verb of the statement; stay where it only reads."""
    start, depth = cursor.index, 0
    while cursor.token.kind is not Kind.END:
        token = cursor.advance()
        depth += token.is_symbol("(") - token.is_symbol(")")
        # A verb follows the `)` of the last expression; a name such as `update` follows WITH or a comma.
        if depth == 0 and token.is_symbol(")") and cursor.token.word in verbs:
            return
        if depth == 0 and token.is_symbol(";"):
            break
    cursor.index = start


def _inserts_after_from(cursor: Cursor) -> Iterator[TargetWrite]:
    """`FROM x INSERT INTO y … INSERT INTO z …` writes to several tables."""
    depth = 0
    while cursor.token.kind is not Kind.END and not (depth == 0 and cursor.token.is_symbol(";")):
        if depth == 0 and cursor.sees("INSERT") and cursor.ahead(1).word in ("INTO", "OVERWRITE", "WITH"):
            yield from _statement_writes(cursor)
        else:
            token = cursor.advance()
            depth += token.is_symbol("(") - token.is_symbol(")")


def _executed_writes(cursor: Cursor) -> Iterator[TargetWrite]:
    """`EXECUTE IMMEDIATE 'DELETE FROM …'` is the statement in the string; what else gives it, Spark knows."""
    if not cursor.accept("EXECUTE", "IMMEDIATE"):
        return
    position, first = cursor.position, cursor.index
    while cursor.token.kind is not Kind.END and not _ends_executed(cursor):
        cursor.advance()
    given = cursor.tokens[first : cursor.index]
    if len(given) == 1 and given[0].kind is Kind.STRING:
        for write in find_writes(given[0].value):
            yield replace(write, position=position)
    elif given:
        text = cursor.text[given[0].start : given[-1].end]
        yield TargetWrite((), "EXECUTE IMMEDIATE", position, "statement", text)


def _ends_executed(cursor: Cursor) -> bool:
    return cursor.token.is_symbol(";") or cursor.token.word in ("INTO", "USING")


def _target(cursor: Cursor, verb: str) -> Iterator[TargetWrite]:
    """Read the name that stands here as the target of `verb`."""
    position = cursor.position
    if cursor.sees("IDENTIFIER") and cursor.ahead(1).is_symbol("("):
        first = cursor.index + 2
        name = _identifier_clause(cursor)
        if name:
            yield TargetWrite(name, verb, position)
        else:
            given = cursor.text[cursor.tokens[first].start : cursor.tokens[cursor.index - 1].start]
            yield TargetWrite((), verb, position, "dynamic", given.strip())
    elif cursor.token.kind is Kind.STRING:
        yield TargetWrite(("delta", cursor.advance().value), verb, position)
    else:
        yield TargetWrite(cursor.name(), verb, position)


def _identifier_clause(cursor: Cursor) -> NameParts:
    """Read `IDENTIFIER('a' || '.b')`; an expression that is not constant gives no name."""
    cursor.index += 2
    constant, depth = [], 1
    while depth and cursor.token.kind is not Kind.END:
        token = cursor.advance()
        depth += token.is_symbol("(") - token.is_symbol(")")
        constant.append(token)
    pieces = [token for token in constant[:-1] if not token.is_symbol("|")]
    if not pieces or any(token.kind is not Kind.STRING for token in pieces):
        return ()
    parts = split_name("".join(token.value for token in pieces))
    while cursor.accept_symbol("."):
        parts = (*parts, cursor.identifier("the next part of the name"))
    return parts


def _insert(cursor: Cursor) -> Iterator[TargetWrite]:
    cursor.expect("INSERT")
    cursor.accept("WITH", "SCHEMA", "EVOLUTION")
    into = cursor.accept_any("INTO", "OVERWRITE")
    if not into:
        return
    verb = f"INSERT {into}"
    cursor.accept("LOCAL")
    if cursor.accept("DIRECTORY"):
        position = cursor.position
        if cursor.token.kind is Kind.STRING:
            yield TargetWrite(("directory", cursor.advance().value), verb, position)
        return
    cursor.accept("TABLE")
    yield from _target(cursor, verb)


def _update(cursor: Cursor) -> Iterator[TargetWrite]:
    cursor.expect("UPDATE")
    yield from _target(cursor, "UPDATE")


def _delete(cursor: Cursor) -> Iterator[TargetWrite]:
    cursor.expect("DELETE", "FROM")
    yield from _target(cursor, "DELETE")


def _merge(cursor: Cursor) -> Iterator[TargetWrite]:
    cursor.expect("MERGE")
    cursor.accept("WITH", "SCHEMA", "EVOLUTION")
    cursor.expect("INTO")
    yield from _target(cursor, "MERGE")


def _alter_or_drop(cursor: Cursor) -> Iterator[TargetWrite]:
    verb = cursor.advance().word
    cursor.accept("MATERIALIZED") or cursor.accept("STREAMING")
    if cursor.accept_any(*_RELATION_WORDS):
        cursor.accept("IF", "EXISTS")
        yield from _target(cursor, verb)
    elif verb == "DROP" and (word := cursor.accept_any(*_SCHEMA_WORDS)):
        cursor.accept("IF", "EXISTS")
        for write in _target(cursor, f"{verb} {word}"):
            yield replace(write, kind="schema") if write.name else write


def _create_or_replace(cursor: Cursor) -> Iterator[TargetWrite]:
    verb = cursor.advance().word
    if cursor.accept("OR", "REPLACE"):
        verb = "CREATE OR REPLACE"
    cursor.accept_any("EXTERNAL", "MATERIALIZED", "STREAMING")
    # Temporary views are not matched: they write nothing, whatever their name.
    relation = cursor.accept_any(*_RELATION_WORDS)
    unless_there = cursor.accept("IF", "NOT", "EXISTS")
    # A view that is made only where there is none takes nobody's place.
    if relation and not (unless_there and relation == "VIEW"):
        yield from _target(cursor, f"{verb} {relation}{' IF NOT EXISTS' if unless_there else ''}")


def _load(cursor: Cursor) -> Iterator[TargetWrite]:
    while cursor.token.kind is not Kind.END and not cursor.accept("INTO", "TABLE"):
        cursor.advance()
    yield from _target(cursor, "LOAD DATA")


def _after(*keywords: str, optional: str = "") -> Callable[[Cursor], Iterator[TargetWrite]]:
    """Read a statement whose target follows fixed keywords."""

    def read(cursor: Cursor) -> Iterator[TargetWrite]:
        cursor.expect(*keywords)
        if optional:
            cursor.accept(optional)
        yield from _target(cursor, keywords[0])

    return read


_TARGETS: dict[str, Callable[[Cursor], Iterator[TargetWrite]]] = {
    "INSERT": _insert,
    "UPDATE": _update,
    "DELETE": _delete,
    "MERGE": _merge,
    "TRUNCATE": _after("TRUNCATE", "TABLE"),
    "ALTER": _alter_or_drop,
    "DROP": _alter_or_drop,
    "CREATE": _create_or_replace,
    "REPLACE": _create_or_replace,
    "LOAD": _load,
    "COPY": _after("COPY", "INTO"),
    "RESTORE": _after("RESTORE", optional="TABLE"),
    "OPTIMIZE": _after("OPTIMIZE", optional="TABLE"),
    "VACUUM": _after("VACUUM", optional="TABLE"),
    "REORG": _after("REORG", "TABLE"),
    "CONVERT": _after("CONVERT", "TO", "DELTA"),
    "COMMENT": _after("COMMENT", "ON", "TABLE"),
    "MSCK": _after("MSCK", "REPAIR", "TABLE"),
    "REPAIR": _after("REPAIR", "TABLE"),
}
