"""Write requirements.lock: every package that pyproject.toml needs, at the version installed in .venv."""

from __future__ import annotations

import tomllib
from importlib.metadata import distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
HEADER = "# Every package at the version it is tested with; `make lock` writes this file from .venv.\n"


def main() -> None:
    pins = sorted(locked(direct_requirements()).items())
    (ROOT / "requirements.lock").write_text(
        HEADER + "".join(f"{name}=={version}\n" for name, version in pins)
    )
    print(f"{len(pins)} packages locked")


def direct_requirements() -> list[Requirement]:
    document = tomllib.loads((ROOT / "pyproject.toml").read_text())
    project, build = document["project"], document["build-system"]
    extras = [text for group in project["optional-dependencies"].values() for text in group]
    return [Requirement(text) for text in (*build["requires"], *project["dependencies"], *extras)]


def locked(requirements: list[Requirement]) -> dict[str, str]:
    """Follow what the requirements need in turn, and note each installed version."""
    pins: dict[str, str] = {}
    seen: set[tuple[str, str]] = set()
    while requirements:
        requirement = requirements.pop()
        installed = distribution(requirement.name)
        pins[canonicalize_name(requirement.name)] = installed.version
        for extra in ("", *requirement.extras):
            if (requirement.name, extra) in seen:
                continue
            seen.add((requirement.name, extra))
            needed = map(Requirement, installed.requires or ())
            requirements += [one for one in needed if not one.marker or one.marker.evaluate({"extra": extra})]
    return pins


if __name__ == "__main__":
    main()
