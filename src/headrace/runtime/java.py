"""Find a Java that can run Spark."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from headrace.errors import HeadraceError

MINIMUM_JAVA = 17
JVM_FOLDERS = (Path("/usr/lib/jvm"), Path("/Library/Java/JavaVirtualMachines"))
# Spark 4.2 starts its JVM with --add-modules=jdk.incubator.vector; trimmed runtimes leave it out.
REQUIRED_MODULE = "jdk.incubator.vector"


@dataclass(frozen=True)
class Java:
    """A Java installation; `modules` is empty where the installation does not list them."""

    home: Path
    version: str
    modules: frozenset[str] = field(default=frozenset(), repr=False)

    @property
    def executable(self) -> Path:
        return self.home / "bin" / "java"

    @property
    def major(self) -> int:
        return major_version(self.version)

    @property
    def unfit_because(self) -> str | None:
        """Why this Java cannot run Spark, or None.

        >>> Java(Path("/opt/java"), "11.0.2").unfit_because
        'Java 11.0.2 in /opt/java is older than 17'
        """
        if self.major < MINIMUM_JAVA:
            return f"Java {self.version} in {self.home} is older than {MINIMUM_JAVA}"
        if self.modules and REQUIRED_MODULE not in self.modules:
            return f"Java {self.version} in {self.home} lacks the module {REQUIRED_MODULE}"
        return None


def find_java(environment: Mapping[str, str] | None = None) -> Java:
    """Return the first fit Java of JAVA_HOME, PATH and the system's folders, in this order."""
    unfit: list[str] = []
    seen: set[Path] = set()
    for home in _candidate_homes(os.environ if environment is None else environment):
        if home in seen:
            continue
        seen.add(home)
        java = inspect_java(home)
        reason = java.unfit_because if java else f"{home} holds no Java"
        if java and not reason:
            return java
        unfit.append(reason or "")
    found = f" Found: {'; '.join(unfit)}." if unfit else ""
    raise HeadraceError(
        "java_missing",
        f"Spark needs Java {MINIMUM_JAVA} or newer, and none was found.{found}",
        hint="Install one (Debian, Ubuntu: apt-get install openjdk-17-jre-headless) or set JAVA_HOME to it.",
    )


def inspect_java(home: Path) -> Java | None:
    """Describe the Java in a folder; None when there is none."""
    if not os.access(home / "bin" / "java", os.X_OK):
        return None
    try:
        release = (home / "release").read_text(encoding="utf-8", errors="replace")
    except OSError:
        release = ""
    described = _from_release_file(home, release)
    # Starting Java costs a tenth of a second, so it is asked only when the file does not tell.
    return described or _ask(home / "bin" / "java")


def major_version(version: str) -> int:
    """Return the feature release of a Java version; 0 for what is no version.

    >>> major_version("17.0.15"), major_version("1.8.0_402"), major_version("25-ea"), major_version("?")
    (17, 8, 25, 0)
    """
    match = re.match(r"(?:1\.)?(\d+)", version)
    return int(match[1]) if match else 0


def _candidate_homes(environment: Mapping[str, str]) -> Iterator[Path]:
    if stated := environment.get("JAVA_HOME"):
        yield Path(stated)
    if on_path := shutil.which("java", path=environment.get("PATH", "")):
        yield _home_of(Path(on_path))
    yield from installed_homes()


def _home_of(executable: Path) -> Path:
    """Follow links and wrapper scripts on PATH to the installation behind them."""
    home = executable.resolve().parent.parent
    if (home / "release").exists():
        return home
    java = _ask(executable)
    return java.home if java else home


def installed_homes(folders: tuple[Path, ...] = JVM_FOLDERS) -> list[Path]:
    """List the installations in the system's folders, the oldest fit release first."""
    found: dict[Path, int] = {}
    for folder in folders:
        for pattern in ("*/bin/java", "*/Contents/Home/bin/java"):
            for executable in folder.glob(pattern):
                home = executable.resolve().parent.parent
                java = inspect_java(home)
                if java:
                    found[home] = java.major
    # Spark is tested most on the oldest release that it supports; the unfit come last.
    return sorted(found, key=lambda home: (found[home] < MINIMUM_JAVA, found[home], home))


def _from_release_file(home: Path, release: str) -> Java | None:
    """Read the version and modules out of an installation's `release` file.

    >>> java = _from_release_file(Path("/j"), 'JAVA_VERSION="21.0.1"\\nMODULES="java.base java.sql"')
    >>> java.version, sorted(java.modules)
    ('21.0.1', ['java.base', 'java.sql'])
    """
    entries = dict(re.findall(r'^(\w+)="(.*)"\s*$', release, flags=re.MULTILINE))
    if "JAVA_VERSION" not in entries:
        return None
    return Java(home, entries["JAVA_VERSION"], frozenset(entries.get("MODULES", "").split()))


def _ask(executable: Path) -> Java | None:
    command = [str(executable), "-XshowSettings:properties", "-version"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    properties = dict(
        re.findall(r"^\s+(java\.home|java\.version) = (.+)$", answer.stderr, flags=re.MULTILINE)
    )
    if len(properties) < 2:
        return None
    return Java(Path(properties["java.home"]), properties["java.version"])
