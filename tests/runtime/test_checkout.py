"""What makes a bare checkout work: the lock file, the verbs of make, and the words when something lacks."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
# Runs a script as if this Python had been packaged without a module, as Debian does with ensurepip.
WITHOUT_MODULE = """
import importlib.util, runpy
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, *more: None if name == {module!r} else found(name, *more)
runpy.run_path({script!r}, run_name="__main__")
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of the files that the set-up needs."""
    for name in ("Makefile", "pyproject.toml", "requirements.lock"):
        shutil.copy(ROOT / name, tmp_path / name)
    shutil.copytree(ROOT / "scripts", tmp_path / "scripts")
    return tmp_path


def make(checkout: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {key: value for key, value in os.environ.items() if not key.startswith("MAKE")}
    command = ["make", "--no-print-directory", *arguments]
    return subprocess.run(command, cwd=checkout, env=environment, capture_output=True, text=True, check=False)


def test_the_lock_file_pins_every_requirement_at_a_version_it_allows() -> None:
    pins = dict(re.findall(r"^([^=#\s]+)==(\S+)$", (ROOT / "requirements.lock").read_text(), re.MULTILINE))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    direct = [*project["build-system"]["requires"], *project["project"]["dependencies"]]
    direct += project["project"]["optional-dependencies"]["dev"]
    for requirement in map(Requirement, direct):
        pinned = pins[canonicalize_name(requirement.name)]
        assert requirement.specifier.contains(pinned), f"{requirement} does not allow {pinned}"


def test_make_alone_lists_every_verb() -> None:
    listed = set(re.findall(r"^  make (\w+)", make(ROOT).stdout, re.MULTILINE))
    phony = re.search(r"^\.PHONY: (.+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert phony is not None
    assert listed == set(phony[1].split())


def test_a_finished_setup_is_not_repeated_until_its_inputs_change(checkout: Path) -> None:
    ready = checkout / ".venv" / ".ready"
    ready.parent.mkdir()
    ready.touch()
    assert make(checkout, "--question", "setup").returncode == 0
    later = ready.stat().st_mtime + 10
    os.utime(checkout / "requirements.lock", (later, later))
    assert make(checkout, "--question", "setup").returncode == 1


def test_without_a_new_enough_python_make_says_so(checkout: Path, tmp_path: Path) -> None:
    path = tmp_path / "programs"
    path.mkdir()
    for name in ("make", "sh"):
        program = shutil.which(name)
        assert program is not None
        (path / name).symlink_to(program)
    old = path / "python3"
    old.write_text("#!/bin/sh\nexit 1\n")
    old.chmod(0o755)
    command = [str(path / "make"), "setup"]
    run = subprocess.run(
        command, cwd=checkout, env={"PATH": str(path)}, capture_output=True, text=True, check=False
    )
    assert run.returncode == 2
    assert "No Python 3.11 or newer" in run.stderr
    assert not (checkout / ".venv").exists()


@pytest.mark.parametrize("module", ["venv", "ensurepip"])
def test_a_python_without_venv_is_told_what_to_install(checkout: Path, module: str) -> None:
    code = WITHOUT_MODULE.format(module=module, script=str(checkout / "scripts" / "setup.py"))
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert run.returncode == 1
    assert f"apt-get install python3.{sys.version_info.minor}-venv" in run.stderr
    assert run.stderr.count("\n") == 1
    assert not (checkout / ".venv").exists()
