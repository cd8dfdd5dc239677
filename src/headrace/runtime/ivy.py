"""Fetch artifacts with the Ivy that ships inside pyspark.

Ivy runs as a process of its own, with settings that name one repository and a private cache, so that
neither the local Maven repository nor the user's Ivy settings and caches are read or written.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import urllib.request
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit
from xml.etree import ElementTree

from headrace.errors import HeadraceError
from headrace.runtime.java import find_java

# The variable by which Spark's own resolver is sent to a mirror, too.
MIRROR_VARIABLE = "DEFAULT_ARTIFACT_REPOSITORY"
# Retries and slow mirrors included, the six jars (14 MB) take well under this.
TIMEOUT_SECONDS = 600


@dataclass(frozen=True)
class Artifact:
    """A jar by its Maven coordinates."""

    group: str
    name: str
    version: str

    @property
    def file_name(self) -> str:
        return f"{self.name}-{self.version}.jar"

    def __str__(self) -> str:
        return f"{self.group}:{self.name}:{self.version}"


def retrieve(artifacts: Iterable[Artifact], workshop: Path, *, destination: Path) -> Path:
    """Download artifacts below the folder `workshop`, and return the folder they are in.

    `destination` is where the caller keeps them, for the error message alone.
    """
    artifacts = tuple(artifacts)
    settings, module, output = workshop / "ivysettings.xml", workshop / "ivy.xml", workshop / "jars"
    settings.write_text(settings_xml(os.environ.get(MIRROR_VARIABLE)), encoding="utf-8")
    module.write_text(module_xml(artifacts), encoding="utf-8")
    # fmt: off
    command = [
        str(find_java().executable), *proxy_options(urllib.request.getproxies()),
        f"-Divy.cache.dir={workshop / 'cache'}", "-jar", str(_ivy_jar()),
        "-settings", str(settings), "-ivy", str(module), "-retrieve", f"{output}/[artifact]-[revision].[ext]",
    ]
    # fmt: on
    try:
        run = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False)
    except subprocess.TimeoutExpired as expired:
        raise _unavailable(artifacts, destination, f"no answer in {TIMEOUT_SECONDS} seconds") from expired
    if run.returncode != 0 or not all((output / artifact.file_name).exists() for artifact in artifacts):
        raise _unavailable(artifacts, destination, _cause(run.stdout + run.stderr))
    return output


def settings_xml(root: str | None = None) -> str:
    """Write Ivy settings with one repository: Maven Central, or the one at `root`.

    >>> settings_xml().partition("<resolvers>")[2]
    '<ibiblio name="maven" m2compatible="true" /></resolvers></ivysettings>'
    """
    settings = ElementTree.Element("ivysettings")
    ElementTree.SubElement(settings, "settings", defaultResolver="maven")
    resolvers = ElementTree.SubElement(settings, "resolvers")
    repository = ElementTree.SubElement(resolvers, "ibiblio", name="maven", m2compatible="true")
    if root:
        repository.set("root", root.rstrip("/") + "/")
    return ElementTree.tostring(settings, encoding="unicode")


def module_xml(artifacts: Iterable[Artifact]) -> str:
    """Write the Ivy file that asks for these artifacts, each without what it depends on."""
    module = ElementTree.Element("ivy-module", version="2.0")
    ElementTree.SubElement(module, "info", organisation="headrace", module="jars")
    configurations = ElementTree.SubElement(module, "configurations")
    ElementTree.SubElement(configurations, "conf", name="default")
    dependencies = ElementTree.SubElement(module, "dependencies")
    for artifact in artifacts:
        coordinates = {"org": artifact.group, "name": artifact.name, "rev": artifact.version}
        alone = {"transitive": "false", "conf": "default->master"}
        ElementTree.SubElement(dependencies, "dependency", coordinates | alone)
    return ElementTree.tostring(module, encoding="unicode")


def proxy_options(proxies: Mapping[str, str]) -> list[str]:
    """Translate the environment's proxies, which Java does not read, into its options.

    >>> print(*proxy_options({"https": "http://proxy.example:3128", "no": "localhost,.corp.example"}))
    -Dhttps.proxyHost=proxy.example -Dhttps.proxyPort=3128 -Dhttp.nonProxyHosts=localhost|*.corp.example
    """
    options: list[str] = []
    for scheme in ("http", "https"):
        proxy = urlsplit(proxies.get(scheme, ""))
        if proxy.hostname:
            options.append(f"-D{scheme}.proxyHost={proxy.hostname}")
            options.append(f"-D{scheme}.proxyPort={proxy.port or 80}")
    if options and (exempt := proxies.get("no")):
        hosts = [host.strip() for host in exempt.split(",") if host.strip()]
        patterns = "|".join(f"*{host}" if host.startswith(".") else host for host in hosts)
        options.append(f"-Dhttp.nonProxyHosts={patterns}")
    return options


def _ivy_jar() -> Path:
    # Looked up without importing pyspark, which takes most of a second.
    package = importlib.util.find_spec("pyspark")
    for place in (package.submodule_search_locations or ()) if package else ():
        for jar in sorted(Path(place).glob("jars/ivy-*.jar")):
            return jar
    raise HeadraceError(
        "jars_unavailable",
        "The installed pyspark holds no Ivy to fetch jars with.",
        hint="Install pyspark with pip; its wheel holds jars/ivy-*.jar.",
    )


def _cause(output: str) -> str:
    """Pick the line of Ivy's output that says what went wrong.

    >>> _cause("found a\\n\\tunresolved dependency: a#b;1: not found\\nat java.base")
    'unresolved dependency: a#b;1: not found'
    """
    lines = [line.strip() for line in output.splitlines()]
    for sign in (
        "UnknownHostException",
        "ConnectException",
        "SSL",
        "Server access Error",
        "unresolved",
        "rror",
    ):
        for line in lines:
            if sign in line:
                return line[:200]
    return "Ivy failed without saying why"


def _unavailable(artifacts: Iterable[Artifact], destination: Path, cause: str) -> HeadraceError:
    return HeadraceError(
        "jars_unavailable",
        f"{', '.join(map(str, artifacts))} cannot be downloaded to {destination}: {cause.rstrip('.')}.",
        hint=f"Connect to the network once, set {MIRROR_VARIABLE} to a mirror, or copy the files there.",
    )
