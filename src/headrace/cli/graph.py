"""The graph of stream tables as text: a tree, Mermaid, DOT."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

Edge = tuple[str, str]

# What XML refuses or what begins a new line; names in backticks may have it.
_UNPRINTABLE = re.compile("[\\x00-\\x1f\\x7f-\\x9f\\u2028\\u2029\\ud800-\\udfff\\ufffe\\uffff]")


def printable(name: str) -> str:
    r"""Write a name on one line, with an escape for every character that has no shape.

    >>> printable("a\nb\x01")
    'a\\nb\\x01'
    """
    return _UNPRINTABLE.sub(lambda found: repr(found[0])[1:-1], name)


def as_tree(tables: Sequence[str], edges: Sequence[Edge]) -> str:
    """Draw what reads what, from the sources down; a table shown before is not unfolded again.

    >>> print(as_tree(["a", "b"], [("s", "a"), ("a", "b"), ("s", "b")]))
    s (source)
    ├── a
    │   └── b
    └── b (above)
    """
    readers = _readers(edges)
    read = {reader for _, reader in edges}
    roots = sorted({source for source, _ in edges if source not in read} | (set(tables) - read))
    shown: set[str] = set()
    lines: list[str] = []
    for root in roots:
        lines.append(printable(root) if root in tables else f"{printable(root)} (source)")
        lines += _branches(root, readers, shown)
    return "\n".join(lines)


def _branches(root: str, readers: Mapping[str, Sequence[str]], shown: set[str]) -> Iterator[str]:
    # A stack of our own: a chain of stream tables may be longer than Python's.
    waiting = _below(root, readers, "")
    while waiting:
        node, indent, last = waiting.pop()
        again = node in shown
        yield f"{indent}{'└── ' if last else '├── '}{printable(node)}{' (above)' if again else ''}"
        if not again:
            shown.add(node)
            waiting += _below(node, readers, indent + ("    " if last else "│   "))


def _below(node: str, readers: Mapping[str, Sequence[str]], indent: str) -> list[tuple[str, str, bool]]:
    """The readers of a node as (name, indent, is the last), in the order in which a stack gives them back."""
    below = readers.get(node, ())
    return [(reader, indent, place == 0) for place, reader in enumerate(reversed(below))]


def _readers(edges: Sequence[Edge]) -> dict[str, list[str]]:
    readers: dict[str, list[str]] = {}
    for source, reader in sorted(edges):
        readers.setdefault(source, []).append(reader)
    return readers


def as_mermaid(tables: Sequence[str], edges: Sequence[Edge]) -> str:
    """Draw the graph for Mermaid; sources are round.

    >>> print(as_mermaid(["a"], [("s", "a")]))
    flowchart LR
      n0["a"]
      n1(["s"])
      n1 --> n0
    """
    ids = _ids(tables, edges)
    lines = ["flowchart LR"]
    for name, node in ids.items():
        # A # begins one of Mermaid's own escapes.
        label = printable(name).replace("#", "#35;").replace('"', "#quot;")
        lines.append(f'  {node}["{label}"]' if name in tables else f'  {node}(["{label}"])')
    lines += [f"  {ids[source]} --> {ids[reader]}" for source, reader in sorted(edges)]
    return "\n".join(lines)


def as_dot(tables: Sequence[str], edges: Sequence[Edge]) -> str:
    """Draw the graph for Graphviz; sources are round.

    >>> print(as_dot(["a"], [("s", "a")]))
    digraph headrace {
      rankdir=LR;
      "a" [shape=box];
      "s" [shape=ellipse];
      "s" -> "a";
    }
    """
    lines = ["digraph headrace {", "  rankdir=LR;"]
    for name in _ids(tables, edges):
        lines.append(f"  {_dot(name)} [shape={'box' if name in tables else 'ellipse'}];")
    lines += [f"  {_dot(source)} -> {_dot(reader)};" for source, reader in sorted(edges)]
    return "\n".join([*lines, "}"])


def _dot(name: str) -> str:
    escaped = printable(name).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _ids(tables: Sequence[str], edges: Sequence[Edge]) -> dict[str, str]:
    names = sorted({*tables, *(name for edge in edges for name in edge)})
    return {name: f"n{place}" for place, name in enumerate(names)}
