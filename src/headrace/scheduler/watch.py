"""Notices new versions of tables by their log folders, without reading them."""

from __future__ import annotations

import os
from collections.abc import Iterable

from headrace.errors import HeadraceError
from headrace.sources.files import is_local
from headrace.sources.log import DeltaLog
from headrace.sources.registry import Sources
from headrace.sql.names import TableName


class Watch:
    """Remembers where each log stood at the last look."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._locations: dict[TableName, str | None] = {}
        self._seen: dict[TableName, object] = {}

    @property
    def is_watching(self) -> bool:
        return bool(self._locations)

    def follow(self, names: Iterable[TableName], *, anew: bool = False) -> None:
        """Watch exactly these tables from now on; missing ones, or `anew` all, are looked for again."""
        known = {} if anew else self._locations
        self._locations = {name: known.get(name) or self._find(name) for name in names}
        self._seen = {name: seen for name, seen in self._seen.items() if name in self._locations}

    def changed(self) -> tuple[set[TableName], set[TableName]]:
        """Name the tables whose log moved since the last look, and those that are seen for the first time."""
        moved, first = set(), set()
        for name, location in self._locations.items():
            now = _stamp(location) if location is not None else None
            if now is None:
                # What is made in its place may be somewhere else.
                self._locations[name] = None
            if name not in self._seen and now is not None:
                first.add(name)
            elif self._seen.get(name) != now:
                moved.add(name)
            self._seen[name] = now
        return moved, first

    def _find(self, name: TableName) -> str | None:
        try:
            return self._sources.find(name).location
        except HeadraceError:
            return None


def _stamp(location: str) -> object:
    """Tell where a log stands; None where it is gone or cannot be read, which shows when it is refreshed."""
    try:
        if not is_local(location):
            return DeltaLog(location).newest_version()
        return os.stat(f"{location}/_delta_log").st_mtime_ns
    except (OSError, HeadraceError):
        return None
