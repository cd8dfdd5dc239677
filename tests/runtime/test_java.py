from __future__ import annotations

from pathlib import Path

import pytest

from headrace.errors import HeadraceError
from headrace.runtime import java as java_module
from headrace.runtime.java import find_java, installed_homes


def install(folder: Path, version: str, modules: str = "java.base jdk.incubator.vector") -> Path:
    """Lay out a folder as a Java installation does; its program is never started."""
    executable = folder / "bin" / "java"
    executable.parent.mkdir(parents=True)
    executable.write_text("#!/bin/sh\nexit 1\n")
    executable.chmod(0o755)
    (folder / "release").write_text(f'JAVA_VERSION="{version}"\nMODULES="{modules}"\n')
    return folder


@pytest.fixture(autouse=True)
def no_system_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java_module, "installed_homes", lambda: installed_homes((tmp_path / "jvm",)))


def test_java_home_comes_before_path_and_path_before_the_system(tmp_path: Path) -> None:
    stated = install(tmp_path / "stated", "21.0.1")
    on_path = install(tmp_path / "on_path", "17.0.1")
    system = install(tmp_path / "jvm" / "system", "18")
    path = str(on_path / "bin")
    assert find_java({"JAVA_HOME": str(stated), "PATH": path}).home == stated
    assert find_java({"PATH": path}).home == on_path
    assert find_java({}).home == system


def test_an_old_java_home_is_passed_over(tmp_path: Path) -> None:
    old = install(tmp_path / "old", "1.8.0_402")
    fit = install(tmp_path / "jvm" / "fit", "17.0.15")
    assert find_java({"JAVA_HOME": str(old)}).home == fit


def test_the_oldest_fit_release_of_the_system_is_taken(tmp_path: Path) -> None:
    for version in ("11.0.2", "25.0.3", "17.0.15", "21"):
        install(tmp_path / "jvm" / f"java-{version}", version)
    names = [home.name for home in installed_homes((tmp_path / "jvm",))]
    assert names == ["java-17.0.15", "java-21", "java-25.0.3", "java-11.0.2"]
    assert find_java({}).version == "17.0.15"


def test_a_link_on_path_leads_to_the_installation(tmp_path: Path) -> None:
    home = install(tmp_path / "opt" / "java", "17.0.1")
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "java").symlink_to(home / "bin" / "java")
    assert find_java({"PATH": str(tmp_path / "links")}).home == home


def test_a_wrapper_on_path_is_asked_where_it_leads(tmp_path: Path) -> None:
    home = install(tmp_path / "opt" / "java", "21.0.7")
    (tmp_path / "shims").mkdir()
    shim = tmp_path / "shims" / "java"
    shim.write_text(f"#!/bin/sh\nprintf '    java.home = {home}\\n    java.version = 21.0.7\\n' >&2\n")
    shim.chmod(0o755)
    assert find_java({"PATH": str(tmp_path / "shims")}).home == home


def test_a_trimmed_runtime_is_passed_over_and_named(tmp_path: Path) -> None:
    trimmed = install(tmp_path / "trimmed", "17.0.1", modules="java.base java.sql")
    with pytest.raises(HeadraceError, match=r"lacks the module jdk\.incubator\.vector") as caught:
        find_java({"JAVA_HOME": str(trimmed)})
    assert caught.value.code == "java_missing"


def test_without_any_java_one_line_says_what_to_install(tmp_path: Path) -> None:
    with pytest.raises(HeadraceError) as caught:
        find_java({"JAVA_HOME": str(tmp_path / "gone"), "PATH": ""})
    assert caught.value.code == "java_missing"
    assert "holds no Java" in caught.value.message
    assert "openjdk-17-jre-headless" in caught.value.hint
    assert "\n" not in str(caught.value)


def test_the_java_of_this_machine_tells_its_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    java = find_java()
    assert java.major >= 17
    asked = java_module._ask(java.executable)
    assert asked is not None
    assert (asked.home.resolve(), asked.version) == (java.home.resolve(), java.version)
