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
        self._locations: dict[TableName, str] = {}
        self._seen: dict[TableName, object] = {}

    def follow(self, names: Iterable[TableName]) -> None:
        """Watch exactly these tables from now on; a table is found again when its name may have moved."""
        self._locations = {}
        for name in names:
            try:
                self._locations[name] = self._sources.find(name).location
            except HeadraceError:
                continue
        self._seen = {name: seen for name, seen in self._seen.items() if name in self._locations}

    def changed(self) -> set[TableName]:
        """Name the tables whose log has moved since the last look; at the first look that is all of them."""
        moved = set()
        for name, location in self._locations.items():
            now = _stamp(location)
            if self._seen.get(name, self) != now:
                self._seen[name] = now
                moved.add(name)
        return moved


def _stamp(location: str) -> object:
    if not is_local(location):
        return DeltaLog(location).newest_version()
    try:
        return os.stat(f"{location}/_delta_log").st_mtime_ns
    except FileNotFoundError:
        return None
