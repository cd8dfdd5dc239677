"""The SQL on the operators' pages is the SQL that is generated."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.plan.test_fixtures import change_text

FOLDER = Path(__file__).parent.parent.parent / "docs" / "operators"
PAGES = sorted(path for path in FOLDER.glob("*.md") if path.stem not in ("README", "text"))


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_a_page_shows_what_is_generated(page: Path) -> None:
    example, generated = re.findall(r"```sql\n(.*?)\n```", page.read_text(), re.DOTALL)
    assert change_text(example) == generated


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_pages_have_the_same_headings(page: Path) -> None:
    headings = re.findall(r"^## (.*)$", page.read_text(), re.MULTILINE)
    assert headings == ["Example", "Rule", "State", "Limits", "Generated SQL"]


def test_every_link_leads_somewhere() -> None:
    for page in FOLDER.glob("*.md"):
        for target in re.findall(r"\]\(([\w-]+\.md)\)", page.read_text()):
            assert (FOLDER / target).exists(), f"{page.name} links to {target}"
