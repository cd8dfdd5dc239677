"""Fixture files of SQL pairs: a query, and what it becomes after `-- becomes`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent.parent / "fixtures"


@dataclass(frozen=True)
class Pair:
    """A query of a fixture file and the SQL it becomes."""

    file: str
    query: str
    becomes: str

    def __str__(self) -> str:
        return f"{self.file}: {self.query.splitlines()[-1][:60]}"


def pairs(folder: str) -> list[Pair]:
    found = []
    for path in sorted((FOLDER / folder).glob("*.sql")):
        for block in filter(None, (part.strip() for part in path.read_text().split(";\n"))):
            query, _, becomes = block.partition("\n-- becomes\n")
            found.append(Pair(path.stem, query.strip(), becomes.strip()))
    return found


def write(folder: str, becomes: Callable[[str], str]) -> None:
    """Write the files anew: `python -m tests.plan.test_fixtures` after a wanted change of rendering."""
    by_file: dict[str, list[str]] = {}
    for pair in pairs(folder):
        by_file.setdefault(pair.file, []).append(f"{pair.query}\n-- becomes\n{becomes(pair.query)};\n")
    for file, blocks in by_file.items():
        (FOLDER / folder / f"{file}.sql").write_text("\n".join(blocks))
