"""The README's examples do what it says."""

from __future__ import annotations

import re
from decimal import Decimal
from pathlib import Path

import pytest

from headrace import Headrace
from headrace.sql.script import split_statements

README = (Path(__file__).resolve().parents[2] / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


def test_the_statements_and_the_python_run_one_after_the_other(
    lake: Headrace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    statements = [text for text, _ in split_statements(blocks("sql")[0])]
    *_, revenue, history = [lake.sql(statement).collect() for statement in statements]
    assert [row.total for row in revenue] == [Decimal("7.30"), Decimal("8.40")]
    assert len(history) == 2

    monkeypatch.chdir(tmp_path)
    exec(blocks("python")[0], {})
    action, verdict = capsys.readouterr().out.splitlines()
    assert action.split()[0] in {"FULL", "DIFFERENTIAL"}
    assert verdict == "True"
    assert [row.product for row in lake.sql("SELECT product FROM products").collect()] == ["tea"]


def test_every_page_it_links_to_exists() -> None:
    root = Path(__file__).resolve().parents[2]
    links = re.findall(r"\]\(([^)#:]+)\)", README)
    assert links
    assert [link for link in links if not (root / link).exists()] == []
