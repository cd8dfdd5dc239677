"""Tokens: nothing of the text is lost, and what is quoted or commented is one piece."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.sql.tokens import Kind, position_at, tokenize


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("'plain'", "plain"),
        ("'it''s'", "it's"),
        (r"'it\'s'", "it's"),
        (r"'\''''", "''"),
        ("'say \"\"'", 'say ""'),
        ('"double ""quoted"""', 'double "quoted"'),
        (r"'a\nb\tc\\d'", "a\nb\tc\\d"),
        (r"'100\% \_x'", r"100\% \_x"),
        (r"'\u00e9\U0001F600\101'", "é😀A"),
        (r"r'\n raw'", r"\n raw"),
        (r'R"c:\dir\"', "c:\\dir\\"),
        ("$$it's; -- raw$$", "it's; -- raw"),
        ("$body$ a $$ b $body$", " a $$ b "),
        ("'; -- /* `'", "; -- /* `"),
    ],
)
def test_strings(text: str, value: str) -> None:
    string, end = tokenize(text)
    assert (string.kind, string.value, end.kind) == (Kind.STRING, value, Kind.END)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a -- b\nc", ["a", "c"]),
        ("a -- b\\\nstill b\nc", ["a", "c"]),
        ("a -- b\rc", ["a", "c"]),
        ("a /* b /* c */ d */ e", ["a", "e"]),
        ("a/**/b", ["a", "b"]),
        ("a -- /* b\nc */", ["a", "c", "*", "/"]),
        ("a /* -- */ b", ["a", "b"]),
        ("`a``b`.`c.d`", ["`a``b`", ".", "`c.d`"]),
        ("bar'x'", ["bar", "'x'"]),
        ("größe_1", ["größe_1"]),
    ],
)
def test_pieces(text: str, words: list[str]) -> None:
    assert [token.text for token in tokenize(text)[:-1]] == words


@pytest.mark.parametrize(
    "text", ["x 'abc", "x 'ab''c", r"x 'abc\'", 'x "abc', "x `abc", "x `ab``c", "x /* a /* b */"]
)
def test_unclosed_text_is_one_broken_piece_from_its_opening(text: str) -> None:
    tokens = tokenize(text)
    assert (tokens[1].kind, tokens[1].start, tokens[1].end) == (Kind.BROKEN, 2, len(text))


@given(st.text(alphabet="ab1_ .,;()'\"`\\/*-+$\n\rrR:", max_size=60))
def test_tokens_cover_the_text_in_order(text: str) -> None:
    tokens = tokenize(text)
    assert [token.text for token in tokens] == [text[token.start : token.end] for token in tokens]
    ends = [0, *(token.end for token in tokens)]
    assert all(end <= token.start for end, token in zip(ends, tokens, strict=False))


@given(st.text(alphabet="ab\n", max_size=30), st.data())
def test_positions_point_at_the_character(text: str, data: st.DataObject) -> None:
    offset = data.draw(st.integers(0, len(text)))
    place = position_at(text, offset)
    lines = text.split("\n")
    assert sum(len(line) + 1 for line in lines[: place.line - 1]) + place.column - 1 == offset


def test_a_long_unclosed_string_takes_no_time() -> None:
    assert tokenize("SELECT '" + "a''" * 200_000)[-2].kind is Kind.BROKEN
