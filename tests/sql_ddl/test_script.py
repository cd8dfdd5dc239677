"""Scripts: semicolons end statements, except where they are part of one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import HeadraceError, Position
from headrace.sql.ddl import is_complete, split_statements

BLOCKS = [
    "BEGIN SELECT 1; SELECT 2; END",
    "begin not atomic declare x int; set x = 1; end",
    "outer_block: BEGIN SELECT 1; END outer_block",
    "BEGIN BEGIN SELECT 1; END; SELECT 2; END",
    "BEGIN IF a THEN SELECT 1; ELSEIF b THEN SELECT 2; ELSE SELECT 3; END IF; SELECT 4; END",
    "BEGIN WHILE x < 5 DO SET x = x + 1; END WHILE; SELECT 1; END",
    "BEGIN REPEAT SET x = 1; UNTIL x > 0 END REPEAT; END",
    "BEGIN l: LOOP LEAVE l; END LOOP l; SELECT 1; END",
    "BEGIN FOR r AS SELECT CASE WHEN a THEN 1 END AS c FROM t DO SELECT r.c; END FOR; END",
    "BEGIN SELECT CASE WHEN a THEN CASE b WHEN 1 THEN 2 END ELSE 3 END; SELECT 2; END",
    "BEGIN SELECT CASE WHEN a THEN 1 END loop FROM t; SELECT 2; END",
    "BEGIN CASE x WHEN 1 THEN SELECT 1; WHEN 2 THEN SELECT 2; ELSE SELECT 3; END CASE; SELECT 4; END",
    "BEGIN CASE x WHEN 1 THEN IF a THEN SELECT 1; END IF; END CASE; SELECT 2; END",
    "BEGIN CASE x WHEN 1 THEN REPEAT SET y = 1; UNTIL y > 0 END REPEAT; END CASE; SELECT 2; END",
    "BEGIN SELECT t.end, t.case, t.begin FROM t; SELECT 1; END",
    "BEGIN SELECT 'END'; /* END */ SELECT `END`; -- END\n SELECT 1; END",
    "CREATE PROCEDURE p() LANGUAGE SQL AS BEGIN SELECT 1; END",
]


@pytest.mark.parametrize("block", BLOCKS)
def test_a_block_is_one_statement(block: str) -> None:
    script = f"{block};\nSELECT 1;"
    assert [text for text, _ in split_statements(script)] == [block, "SELECT 1"]
    assert is_complete(f"{block};")
    assert not is_complete(block.removesuffix("outer_block").rstrip()[:-3] + " SELECT 5;")


@pytest.mark.parametrize(
    ("script", "statements"),
    [
        ("", []),
        (" ;; -- nothing; here\n /* ; */ ;", []),
        ("SELECT 1", ["SELECT 1"]),
        ("SELECT 1;", ["SELECT 1"]),
        (
            "SELECT ';', \";\", `;`, r';', $$;$$; SELECT 2",
            ["SELECT ';', \";\", `;`, r';', $$;$$", "SELECT 2"],
        ),
        ("SELECT 1 -- a; b\n; SELECT /* ; /* ; */ ; */ 2", ["SELECT 1", "SELECT /* ; /* ; */ ; */ 2"]),
        ("SELECT CASE WHEN a THEN 1 END; SELECT 2", ["SELECT CASE WHEN a THEN 1 END", "SELECT 2"]),
        ("SELECT begin FROM t; SELECT 2", ["SELECT begin FROM t", "SELECT 2"]),
        ("BEGIN; INSERT INTO t VALUES (1); COMMIT", ["BEGIN", "INSERT INTO t VALUES (1)", "COMMIT"]),
        ("BEGIN TRANSACTION; SELECT 1", ["BEGIN TRANSACTION", "SELECT 1"]),
    ],
)
def test_split(script: str, statements: list[str]) -> None:
    assert [text for text, _ in split_statements(script)] == statements


@given(st.lists(st.sampled_from(["SELECT 1", "SELECT ';'", "-- note;\nSELECT `;`", *BLOCKS]), max_size=5))
def test_offsets_point_into_the_script(pieces: list[str]) -> None:
    script = ";\n\n".join(pieces)
    found = split_statements(script)
    assert len(found) == len(pieces)
    assert all(script[offset:].startswith(text) for text, offset in found)


def test_an_unclosed_string_is_refused_at_its_opening() -> None:
    with pytest.raises(HeadraceError, match="never closes") as caught:
        split_statements("SELECT 1;\nSELECT 'oops;\nSELECT 2;")
    assert caught.value.code == "syntax_error"
    assert caught.value.position == Position(2, 8)


@pytest.mark.parametrize(
    "script", ["SELECT 1", "SELECT 'a;", "SELECT `a;", "SELECT /* ;", "SELECT 1; SELECT", "x -- ;"]
)
def test_an_open_statement_is_not_complete(script: str) -> None:
    assert not is_complete(script)


@pytest.mark.parametrize("script", ["", "-- only a comment", "SELECT 1;", "SELECT 1; -- done", ";"])
def test_complete(script: str) -> None:
    assert is_complete(script)
