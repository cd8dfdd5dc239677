"""How values look, whatever they are."""

from __future__ import annotations

import io
import json
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from headrace.display import Grid, cell, duration, json_text, plain_lines, print_grid

VALUES = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(),
        st.text(),
        st.binary(),
        st.decimals(),
        st.dates(),
    ),
    lambda inner: st.one_of(st.lists(inner), st.dictionaries(st.text(), inner)),
    max_leaves=5,
)


@given(VALUES)
def test_a_cell_is_one_harmless_line(value: Any) -> None:
    text = cell(value)
    assert not any(ord(character) < 32 or 127 <= ord(character) < 160 for character in text)
    assert len(text.splitlines()) <= 1


@given(VALUES)
def test_json_reads_back_as_strict_json(value: Any) -> None:
    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    text = json_text([value])
    assert "\n" not in text
    json.loads(text, parse_constant=refuse)


def test_json_keeps_decimals_and_moments_exact() -> None:
    record = {"d": Decimal("12345678901234567890.10"), "t": datetime(2026, 1, 2, 3, tzinfo=UTC)}
    assert json.loads(json_text(record)) == {"d": "12345678901234567890.10", "t": "2026-01-02T03:00:00+00:00"}


@given(st.lists(st.tuples(st.text(max_size=8), st.integers()), max_size=6))
def test_plain_columns_line_up(rows: list[tuple[str, int]]) -> None:
    lines = list(plain_lines(Grid(("text", "number"), rows, frozenset({1}))))
    assert len(lines) == len(rows) + 2
    assert len({cell_len(line) for line in lines}) == 1


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), "2026-01-02 03:04:05Z"),
        (datetime(2026, 1, 2, 3, 4, 5, 678000), "2026-01-02 03:04:05.678"),
        (date(2026, 1, 2), "2026-01-02"),
        (Decimal("1.10"), "1.10"),
        (b"\x00\xff", "X'00FF'"),
        ("[red]x[/red]", "[red]x[/red]"),
        ("\u202eevil", "\\u202eevil"),
    ],
)
def test_cells(value: Any, shown: str) -> None:
    assert cell(value) == shown


def test_markup_in_data_is_data_on_a_terminal_too() -> None:
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=True, width=80, color_system=None)
    print_grid(console, Grid(("[b]x",), [["[red]y[/red] :smile:"]]))
    assert "[b]x" in stream.getvalue()
    assert "[red]y[/red] :smile:" in stream.getvalue()


def test_a_pipe_gets_long_lines_whole() -> None:
    stream = io.StringIO()
    print_grid(Console(file=stream, width=40), Grid(("text",), [["word " * 50 + "end"]]))
    assert stream.getvalue().splitlines()[2].endswith("end")


@given(st.floats(0, 10**7))
def test_durations_grow_with_time(seconds: float) -> None:
    assert duration(seconds)
    assert "60 s" not in duration(seconds)
    assert "60 min" not in duration(seconds)


def test_a_day_and_an_hour() -> None:
    assert duration(timedelta(days=1, hours=1, minutes=59).total_seconds()) == "1 d 1 h"
