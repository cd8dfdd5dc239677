"""The files of a table, on a local disk or any store that Arrow reaches."""

from __future__ import annotations

import os
from collections.abc import Iterable
from functools import lru_cache
from typing import Any
from urllib.parse import unquote

import pyarrow.fs as pafs


def is_local(location: str) -> bool:
    return "://" not in location


@lru_cache(maxsize=64)
def store_of(location: str) -> tuple[pafs.FileSystem, str]:
    """Give the store behind a location and the location's path within it."""
    if is_local(location):
        return pafs.LocalFileSystem(), location
    store, root = pafs.FileSystem.from_uri(location)
    return store, root


def locate(location: str, path: str) -> tuple[pafs.FileSystem, str]:
    """Find the file that a Delta action names: URL-encoded, relative to the table or a whole address.

    >>> locate("/lake/t", "day=2026-01-01/part%20one.parquet")[1]
    '/lake/t/day=2026-01-01/part one.parquet'
    >>> locate("/lake/t", "file:/other/part.parquet")[1]
    '/other/part.parquet'
    """
    plain = unquote(path)
    if plain.startswith("file:"):
        return pafs.LocalFileSystem(), "/" + plain.removeprefix("file:").lstrip("/")
    if "://" in plain:
        store, root = pafs.FileSystem.from_uri(plain)
        return store, root
    store, root = store_of(location)
    return store, plain if plain.startswith("/") else f"{root}/{plain}"


def open_file(location: str, path: str) -> Any:
    """Open one file of a table for reading."""
    store, full = locate(location, path)
    return store.open_input_file(full)


def missing_files(location: str, paths: Iterable[str]) -> list[str]:
    """List the files that are no longer there."""
    return [path for path in paths if not _is_there(location, path)]


def _is_there(location: str, path: str) -> bool:
    store, full = locate(location, path)
    if isinstance(store, pafs.LocalFileSystem):
        return os.path.exists(full)
    return bool(store.get_file_info(full).type == pafs.FileType.File)
