"""Make a checkout ready to run: the environment in .venv, Java, and the jars.

It runs with the system's Python and the standard library alone; what it cannot do it names in one line.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ENVIRONMENT = ROOT / ".venv"
PYTHON = ENVIRONMENT / "bin" / "python"
LOCK = ROOT / "requirements.lock"
MINIMUM_PYTHON = (3, 11)


def main() -> None:
    require_python()
    make_environment()
    install_packages()
    run("Java and jars", str(PYTHON), str(ROOT / "scripts" / "machine.py"))


def require_python() -> None:
    if sys.version_info < MINIMUM_PYTHON:
        wanted = ".".join(map(str, MINIMUM_PYTHON))
        stop(
            f"Headrace needs Python {wanted} or newer; {sys.executable} is {sys.version.split()[0]}. "
            "Name another with: make PYTHON=/path/to/python3 setup"
        )


def make_environment() -> None:
    """Create .venv, or make it anew when an interrupted attempt left it without pip."""
    if PYTHON.exists() and succeeds(str(PYTHON), "-m", "pip", "--version"):
        return
    if not (importlib.util.find_spec("venv") and importlib.util.find_spec("ensurepip")):
        major, minor = sys.version_info[:2]
        stop(
            f"{sys.executable} lacks the module venv. "
            f"On Debian and Ubuntu install it with: apt-get install python{major}.{minor}-venv"
        )
    say(f"Making the environment in {ENVIRONMENT.name}")
    run("the environment", sys.executable, "-m", "venv", "--clear", str(ENVIRONMENT))


def install_packages() -> None:
    say("Installing the pinned packages (about 500 MB on the first run; this takes a few minutes)")
    pip = (str(PYTHON), "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    # pyspark and Headrace are built here; the build tool comes first and from the lock file, so that
    # nothing unpinned is fetched and an old pip builds them as a new one does.
    run("the build tool", *pip, "--constraint", str(LOCK), "setuptools")
    build = ("--use-pep517", "--no-build-isolation")
    run("the packages", *pip, *build, "--requirement", str(LOCK))
    run("Headrace itself", *pip, *build, "--no-deps", "--editable", str(ROOT))


def succeeds(*command: str) -> bool:
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def run(what: str, *command: str) -> None:
    """Run one step; its own output says what went wrong, we say which step it was."""
    if subprocess.run(command, cwd=ROOT, check=False).returncode != 0:
        stop(f"Setting up {what} failed; see above. Run make setup again when it is put right.")


def say(message: str) -> None:
    print(message, flush=True)


def stop(message: str) -> None:
    sys.exit(f"setup: {message}")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        stop("interrupted; run make setup again to go on.")
