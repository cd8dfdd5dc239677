"""The graph of stream tables as an SVG picture, laid out by levels; no other program is needed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

from headrace.cli.graph import Edge, printable
from headrace.scheduler.graph import build_graph

_BOX_HEIGHT = 30
_ROW_GAP = 16
_COLUMN_GAP = 70
_MARGIN = 20
_LETTER = 7.4
_STYLE = (
    "text{font:12px ui-monospace,Menlo,Consolas,monospace;fill:#1b2733}"
    ".table{fill:#e3f1ff;stroke:#3178b5}.source{fill:#f3f3ee;stroke:#8a8a80}"
    ".edge{fill:none;stroke:#7b8794}"
)


@dataclass(frozen=True)
class Box:
    """Where a node is drawn."""

    x: float
    y: float
    width: float

    @property
    def middle(self) -> float:
        return self.y + _BOX_HEIGHT / 2


def as_svg(tables: Sequence[str], edges: Sequence[Edge]) -> str:
    """Draw sources at the left and every stream table to the right of all that it reads.

    >>> as_svg(["a"], [("s", "a")]).count("<rect")
    2
    """
    columns = _columns(tables, edges)
    boxes = _place(columns)
    width = max((box.x + box.width for box in boxes.values()), default=0) + _MARGIN
    height = max((box.y + _BOX_HEIGHT for box in boxes.values()), default=0) + _MARGIN
    size = f'width="{width:.0f}" height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}"'
    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" {size}>', f"<style>{_STYLE}</style>"]
    lines.append(
        '<defs><marker id="to" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
        'orient="auto"><path d="M0 0L8 4L0 8z" fill="#7b8794"/></marker></defs>'
    )
    lines += [_edge(boxes[source], boxes[reader]) for source, reader in sorted(edges)]
    known = set(tables)
    lines += [_node(name, box, is_table=name in known) for name, box in boxes.items()]
    return "\n".join([*lines, "</svg>"])


def _columns(tables: Sequence[str], edges: Sequence[Edge]) -> list[list[str]]:
    """Give sources, then one column per level, each ordered near what it reads to keep crossings few."""
    graph = build_graph(tables, [(reader, source) for source, reader in edges])
    columns = [list(graph.sources), *(list(level) for level in graph.levels)]
    height: dict[str, float] = {}
    for column in columns:
        column.sort(key=lambda name: (_mean(height[one] for one in graph.reads.get(name, ())), name))
        height.update((name, place - len(column) / 2) for place, name in enumerate(column))
    return [column for column in columns if column]


def _mean(values: Iterable[float]) -> float:
    known = list(values)
    return sum(known) / len(known) if known else 0.0


def _place(columns: Sequence[Sequence[str]]) -> Mapping[str, Box]:
    tallest = max((len(column) for column in columns), default=0)
    boxes = {}
    x = float(_MARGIN)
    for column in columns:
        width = max(len(printable(name)) for name in column) * _LETTER + 24
        top = _MARGIN + (tallest - len(column)) * (_BOX_HEIGHT + _ROW_GAP) / 2
        for row, name in enumerate(column):
            boxes[name] = Box(x, top + row * (_BOX_HEIGHT + _ROW_GAP), width)
        x += width + _COLUMN_GAP
    return boxes


def _edge(source: Box, reader: Box) -> str:
    start, end = source.x + source.width, reader.x
    bend = (start + end) / 2
    way = f"M{start:.1f} {source.middle:.1f}C{bend:.1f} {source.middle:.1f} {bend:.1f} {reader.middle:.1f}"
    return f'<path class="edge" d="{way} {end:.1f} {reader.middle:.1f}" marker-end="url(#to)"/>'


def _node(name: str, box: Box, *, is_table: bool) -> str:
    kind, radius = ("table", 4) if is_table else ("source", _BOX_HEIGHT / 2)
    shape = (
        f'<rect class="{kind}" x="{box.x:.1f}" y="{box.y:.1f}" width="{box.width:.1f}" '
        f'height="{_BOX_HEIGHT}" rx="{radius:.0f}"/>'
    )
    middle = box.x + box.width / 2
    label = escape(printable(name))
    text = f'<text x="{middle:.1f}" y="{box.middle + 4:.1f}" text-anchor="middle">{label}</text>'
    return f"<g>{shape}{text}</g>"
