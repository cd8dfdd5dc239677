"""Provide what lies outside .venv: Java, installed where that is allowed, and the jars."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

from headrace.errors import HeadraceError
from headrace.runtime import Java, ensure_jars, find_java

# In this order: the release that Spark is tested on most, then whatever the distribution has.
JAVA_PACKAGES = ("openjdk-17-jre-headless", "default-jre-headless")


def main() -> None:
    try:
        java = provide_java()
        print(f"Java {java.version} in {java.home}", flush=True)
        jars = ensure_jars()
        print(f"{len(jars)} jars in {jars[0].parent}")
    except HeadraceError as error:
        sys.exit(f"setup: {error.message} {error.hint}")


def provide_java() -> Java:
    """Find Java; failing that, install it with apt-get where that is allowed."""
    try:
        return find_java()
    except HeadraceError:
        if not may_install():
            raise
    install_java()
    return find_java()


def may_install() -> bool:
    return shutil.which("apt-get") is not None and os.geteuid() == 0


def install_java() -> None:
    print("Installing Java with apt-get", flush=True)
    apt_get("update")
    for package in JAVA_PACKAGES:
        if apt_get("install", "--yes", "--no-install-recommends", package):
            return


def apt_get(*arguments: str) -> bool:
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    command = ("apt-get", "-qq", *arguments)
    return subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=False).returncode == 0


if __name__ == "__main__":
    main()
