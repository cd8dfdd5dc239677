"""How rows, numbers and times look: as a table on a terminal, as plain columns in a pipe, as JSON."""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from rich.console import Console

_NUMERIC = re.compile(r"(tinyint|smallint|int|bigint|float|double|decimal\(.*\))\Z")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
_WIDEST_CELL = 200


@dataclass(frozen=True)
class Grid:
    """Rows ready to be shown; `numeric` columns are set to the right, `more` says that rows were left out."""

    columns: tuple[str, ...]
    rows: Sequence[Sequence[Any]]
    numeric: frozenset[int] = frozenset()
    more: bool = False

    @classmethod
    def of(cls, records: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> Grid:
        """Make a grid of some keys of some records; a column is numeric if all its values are.

        >>> Grid.of([{"name": "t", "rows": 3, "x": 1}], ["name", "rows"])
        Grid(columns=('name', 'rows'), rows=[['t', 3]], numeric=frozenset({1}), more=False)
        """
        rows = [[record[column] for column in columns] for record in records]
        numbers = (
            place for place in range(len(columns)) if rows and _all_numbers(row[place] for row in rows)
        )
        return cls(tuple(columns), rows, frozenset(numbers))


def _all_numbers(values: Iterable[Any]) -> bool:
    present = [value for value in values if value is not None]
    return bool(present) and all(
        isinstance(value, int | float | Decimal) and not isinstance(value, bool) for value in present
    )


def frame_grid(frame: DataFrame, *, max_rows: int) -> Grid:
    """Bring at most `max_rows` rows of a DataFrame to the screen's side."""
    if not frame.columns:
        return Grid((), [])
    rows = frame.take(max_rows + 1)
    fields = frame.schema.fields
    numeric = (place for place, field in enumerate(fields) if _NUMERIC.match(field.dataType.simpleString()))
    return Grid(tuple(frame.columns), rows[:max_rows], frozenset(numeric), more=len(rows) > max_rows)


def cell(value: Any) -> str:
    """Write one value on one line, harmless to a terminal.

    >>> cell(None), cell(True), cell(1.5), cell({"a": [1, None]})
    ('NULL', 'true', '1.5', '{a: [1, NULL]}')
    >>> cell("two\\nlines \\x1b[31m")
    'two\\\\nlines \\\\x1b[31m'
    """
    return _CONTROL.sub(lambda control: ascii(control[0])[1:-1], _text(value))


def _text(value: Any) -> str:
    match value:
        case None:
            return "NULL"
        case bool():
            return str(value).lower()
        case datetime():
            return _timestamp(value)
        case bytes() | bytearray():
            return f"X'{bytes(value).hex().upper()}'"
        case dict():
            return "{" + ", ".join(f"{_text(key)}: {_text(item)}" for key, item in value.items()) + "}"
        case tuple() if hasattr(value, "asDict"):
            return _text(value.asDict())
        case list() | tuple():
            return "[" + ", ".join(_text(item) for item in value) + "]"
        case _:
            return str(value)


def _timestamp(value: datetime) -> str:
    """Write a moment in UTC without needless digits; a time without a zone stays as it is."""
    shown = value.astimezone(UTC).replace(tzinfo=None) if value.tzinfo else value
    text = shown.isoformat(sep=" ", timespec="milliseconds" if shown.microsecond else "seconds")
    return f"{text}Z" if value.tzinfo else text


def print_grid(console: Console, grid: Grid) -> None:
    """Show a grid: with lines and colours on a terminal, in plain columns anywhere else."""
    if console.is_terminal:
        console.print(_rich_table(grid))
    else:
        for line in plain_lines(grid):
            console.print(line, markup=False, highlight=False, soft_wrap=True, emoji=False)


def _rich_table(grid: Grid) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for place, column in enumerate(grid.columns):
        justify = "right" if place in grid.numeric else "left"
        table.add_column(Text(cell(column)), justify=justify, overflow="fold")  # type: ignore[arg-type]  # one of rich's words
    for row in grid.rows:
        table.add_row(*(Text(_shortened(value), style="dim" if value is None else "") for value in row))
    return table


def _shortened(value: Any) -> str:
    text = cell(value)
    return text if len(text) <= _WIDEST_CELL else text[: _WIDEST_CELL - 1] + "…"


def plain_lines(grid: Grid) -> Iterator[str]:
    """Write a grid as lines of aligned columns.

    >>> print("\\n".join(plain_lines(Grid(("name", "n"), [("a", 1), (None, 20)], frozenset({1})))))
    name   n
    ----  --
    a      1
    NULL  20
    """
    cells = [
        [cell(column) for column in grid.columns],
        *([cell(value) for value in row] for row in grid.rows),
    ]
    widths = [max(cell_len(row[place]) for row in cells) for place in range(len(grid.columns))]
    yield _plain_line(cells[0], widths, grid.numeric)
    yield "  ".join("-" * width for width in widths)
    for row in cells[1:]:
        yield _plain_line(row, widths, grid.numeric)


def _plain_line(cells: Sequence[str], widths: Sequence[int], numeric: frozenset[int]) -> str:
    padded = []
    for place, (text, width) in enumerate(zip(cells, widths, strict=True)):
        gap = " " * (width - cell_len(text))
        padded.append(gap + text if place in numeric else text + gap)
    return "  ".join(padded).rstrip()


def frame_records(frame: DataFrame, *, max_rows: int | None) -> Iterator[dict[str, Any]]:
    """Read a DataFrame row by row into JSON's types; a moment gets its zone, which Spark's rows leave out."""
    limited = frame if max_rows is None else frame.limit(max_rows)
    moments = {field.name for field in frame.schema.fields if field.dataType.simpleString() == "timestamp"}
    for row in limited.toLocalIterator() if frame.columns else ():
        yield {
            name: jsonable(value.astimezone(UTC) if value is not None and name in moments else value)
            for name, value in zip(frame.columns, row, strict=True)
        }


def jsonable(value: Any) -> Any:
    """Bring a value to what JSON knows, losing no digit.

    >>> jsonable({"d": Decimal("1.10"), "t": date(2026, 1, 2), "x": float("nan"), 3: b"hi"})
    {'d': '1.10', 't': '2026-01-02', 'x': 'NaN', '3': 'aGk='}
    """
    match value:
        case float() if not math.isfinite(value):
            return str(value).replace("nan", "NaN").replace("inf", "Infinity")
        case None | bool() | int() | float() | str():
            return value
        case datetime() | date() | time():
            return value.isoformat()
        case timedelta():
            return value.total_seconds()
        case bytes() | bytearray():
            return base64.b64encode(value).decode()
        case tuple() if hasattr(value, "asDict"):
            return jsonable(value.asDict())
        case Mapping():
            return {str(jsonable(key)): jsonable(item) for key, item in value.items()}
        case list() | tuple() | set() | frozenset():
            return [jsonable(item) for item in value]
        case _:
            return str(value)


def json_text(value: Any) -> str:
    """Write a value as one line of JSON."""
    return json.dumps(jsonable(value), ensure_ascii=False)


def duration(seconds: float) -> str:
    """Write a time span in the unit that suits it.

    >>> [duration(x) for x in (0.0042, 0.25, 1.25, 59.96, 100, 7260, 180000)]
    ['4.2 ms', '250 ms', '1.2 s', '1 min', '1 min 40 s', '2 h 1 min', '2 d 2 h']
    """
    if seconds < 0.9995:
        return f"{seconds * 1000:.{0 if seconds >= 0.01 else 1}f} ms"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    rest = round(seconds)
    parts = []
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60), ("s", 1)):
        count, rest = divmod(rest, size)
        parts.append((count, unit))
    first = next(place for place, (count, _) in enumerate(parts) if count)
    return " ".join(f"{count} {unit}" for count, unit in parts[first : first + 2] if count)


def counted(number: int, noun: str) -> str:
    """Write a number with its noun.

    >>> counted(1, "row"), counted(12345, "row")
    ('1 row', '12,345 rows')
    """
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
