"""The jars that Spark loads for Headrace, kept in a cache of our own.

Spark's own `spark.jars.packages` reads the local Maven repository, fails on a half-filled one, and wants the
network at every start. Here each jar is pinned by version and checksum, fetched once, and handed to Spark as
a file.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from headrace.errors import HeadraceError
from headrace.runtime.ivy import Artifact, retrieve


@dataclass(frozen=True)
class Jar(Artifact):
    """An artifact with the checksum that its bytes must have."""

    sha256: str

    def is_in(self, directory: Path) -> bool:
        """Whether the directory holds this jar, whole and unaltered."""
        try:
            with (directory / self.file_name).open("rb") as file:
                return hashlib.file_digest(file, "sha256").hexdigest() == self.sha256
        except OSError:
            return False


DELTA_VERSION = "4.4.0"
JARS = (
    Jar(
        "io.delta",
        "delta-spark_4.2_2.13",
        DELTA_VERSION,
        "27d4fd8b1f879535c573ed1c718177d6a27f24d3e626ba02e216369725721ead",
    ),
    Jar(
        "io.delta",
        "delta-storage",
        DELTA_VERSION,
        "c46735481fa8e326b0957be02b4420cbcab4b325bb08009b7f2045a95133f1cc",
    ),
    Jar(
        "io.delta",
        "delta-kernel-api",
        DELTA_VERSION,
        "ee9b5a14ac3b7efdff4d61a58478fe8eb0e5a3fbca43889dca7290795fe79a11",
    ),
    Jar(
        "io.delta",
        "delta-kernel-defaults",
        DELTA_VERSION,
        "225c975199e4718b38ee5b7e6da7f19e9585024262b2cec2656b32151a856b0b",
    ),
    Jar(
        "io.delta",
        "delta-kernel-unitycatalog",
        DELTA_VERSION,
        "cea22dfb4ac562b3cd27bf652697750e8336009d73fb06631363aaaad5345ffa",
    ),
    Jar(
        "org.postgresql",
        "postgresql",
        "42.7.8",
        "2a32a9dcbc42d67a50ad3a0de5efd102c8d2be46720045f2cbd6689f160ab7c7",
    ),
)


def jars_directory() -> Path:
    """Return the folder of the jars: HEADRACE_JARS_DIR, or one in the user's cache."""
    if stated := os.environ.get("HEADRACE_JARS_DIR"):
        return Path(stated)
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "headrace" / "jars"


def ensure_jars(directory: Path | str | None = None) -> list[Path]:
    """Return the jars' paths, fetching first what the directory lacks."""
    directory = jars_directory() if directory is None else Path(directory)
    missing = [jar for jar in JARS if not jar.is_in(directory)]
    if missing:
        _fetch(missing, directory)
    return [directory / jar.file_name for jar in JARS]


def _fetch(jars: Iterable[Jar], directory: Path) -> None:
    jars = tuple(jars)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        # Next to the destination, so that each jar can be moved in by one atomic rename.
        with tempfile.TemporaryDirectory(dir=directory, prefix=".fetch-") as workshop:
            downloaded = retrieve(jars, Path(workshop), destination=directory)
            _require_intact(jars, downloaded)
            for jar in jars:
                os.replace(downloaded / jar.file_name, directory / jar.file_name)
    except OSError as error:
        raise HeadraceError(
            "jars_unavailable",
            f"The jars cannot be written to {directory}: {error.strerror or error}.",
            hint="Set HEADRACE_JARS_DIR to a folder that can be written.",
        ) from error


def _require_intact(jars: Iterable[Jar], directory: Path) -> None:
    altered = [jar.file_name for jar in jars if not jar.is_in(directory)]
    if altered:
        raise HeadraceError(
            "jars_unavailable",
            f"What was downloaded does not have the expected checksum: {', '.join(altered)}.",
            hint="Nothing was kept. Check the repository or proxy the jars come through, and try again.",
        )
