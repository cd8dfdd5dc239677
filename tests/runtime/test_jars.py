from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.errors import HeadraceError
from headrace.runtime.ivy import module_xml, proxy_options, settings_xml
from headrace.runtime.jars import JARS, ensure_jars, jars_directory
from tests.runtime.maven import MavenRepository

NAMES = {jar.file_name for jar in JARS}
NOWHERE = "http://127.0.0.1:9"


def contents(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


@pytest.fixture
def mirror(repository: MavenRepository, monkeypatch: pytest.MonkeyPatch) -> MavenRepository:
    monkeypatch.setenv("DEFAULT_ARTIFACT_REPOSITORY", repository.root)
    return repository


def test_fills_an_empty_folder_and_then_fetches_nothing(mirror: MavenRepository, tmp_path: Path) -> None:
    folder = tmp_path / "not yet there" / "jars"
    paths = ensure_jars(folder)
    assert [path.name for path in paths] == [jar.file_name for jar in JARS]
    assert contents(folder) == NAMES == mirror.downloaded_jars

    mirror.requested.clear()
    assert ensure_jars(folder) == paths
    assert mirror.requested == []


def test_replaces_an_altered_jar_and_only_that(mirror: MavenRepository, tmp_path: Path) -> None:
    folder = copy_of_cache(tmp_path / "jars")
    altered = folder / JARS[1].file_name
    altered.write_bytes(altered.read_bytes()[:-1])
    ensure_jars(folder)
    assert mirror.downloaded_jars == {altered.name}
    assert JARS[1].is_in(folder)


def test_a_half_filled_maven_repository_is_not_read(
    mirror: MavenRepository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for jar in JARS:
        pom = (
            tmp_path
            / "home/.m2/repository"
            / mirror.jar_path(jar).relative_to(mirror.folder).with_suffix(".pom")
        )
        pom.parent.mkdir(parents=True)
        pom.write_bytes(mirror.jar_path(jar).with_suffix(".pom").read_bytes())
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", f"-Duser.home={tmp_path / 'home'}")
    ensure_jars(tmp_path / "jars")
    assert contents(tmp_path / "jars") == NAMES
    assert contents(tmp_path / "home") == {".m2"}, "nothing is written to the user's Ivy folder either"


def test_without_network_a_full_folder_is_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEFAULT_ARTIFACT_REPOSITORY", NOWHERE)
    folder = copy_of_cache(tmp_path / "jars")
    assert contents(folder) == {path.name for path in ensure_jars(folder)}


def test_without_network_an_empty_folder_is_one_clear_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DEFAULT_ARTIFACT_REPOSITORY", NOWHERE)
    with pytest.raises(HeadraceError) as caught:
        ensure_jars(tmp_path / "jars")
    assert caught.value.code == "jars_unavailable"
    assert "io.delta:delta-storage:4.4.0" in caught.value.message
    assert "refused" in caught.value.message
    assert "DEFAULT_ARTIFACT_REPOSITORY" in caught.value.hint
    assert "\n" not in str(caught.value)
    assert contents(tmp_path / "jars") == set()


def test_a_download_with_other_bytes_is_not_kept(mirror: MavenRepository, tmp_path: Path) -> None:
    forged = mirror.jar_path(JARS[-1])
    forged.write_bytes(forged.read_bytes() + b"extra")
    with pytest.raises(HeadraceError, match=r"checksum.*postgresql") as caught:
        ensure_jars(tmp_path / "jars")
    assert caught.value.code == "jars_unavailable"
    assert contents(tmp_path / "jars") == set()


def test_two_processes_fill_one_folder_at_once(mirror: MavenRepository, tmp_path: Path) -> None:
    folder = tmp_path / "jars"
    code = f"from headrace.runtime import ensure_jars; ensure_jars({str(folder)!r})"
    processes = [subprocess.Popen([sys.executable, "-c", code], env=dict(os.environ)) for _ in range(2)]
    assert [process.wait() for process in processes] == [0, 0]
    assert contents(folder) == NAMES == mirror.downloaded_jars
    assert all(jar.is_in(folder) for jar in JARS)


def test_a_folder_that_cannot_be_made_is_an_error_with_the_way_out(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(HeadraceError) as caught:
        ensure_jars(tmp_path / "file" / "jars")
    assert caught.value.code == "jars_unavailable"
    assert "HEADRACE_JARS_DIR" in caught.value.hint


def test_the_folder_is_the_stated_one_or_in_the_users_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HEADRACE_JARS_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "/caches")
    assert jars_directory() == Path("/caches/headrace/jars")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/home/ada")
    assert jars_directory() == Path("/home/ada/.cache/headrace/jars")
    monkeypatch.setenv("HEADRACE_JARS_DIR", "/srv/jars")
    assert jars_directory() == Path("/srv/jars")


def test_a_mirror_takes_the_place_of_the_default_repository() -> None:
    assert 'root="http://mirror.example/maven/"' in settings_xml("http://mirror.example/maven")
    assert "root" not in settings_xml()


def test_no_artifact_brings_others_along() -> None:
    assert module_xml(JARS).count('transitive="false"') == len(JARS)


def test_proxies_without_a_host_are_left_out() -> None:
    assert proxy_options({"all": "socks5://proxy.example", "no": "localhost"}) == []


def copy_of_cache(folder: Path) -> Path:
    folder.mkdir()
    for source in ensure_jars():
        (folder / source.name).write_bytes(source.read_bytes())
    return folder
