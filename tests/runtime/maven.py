"""A Maven repository on loopback that holds the real jars and writes down what is asked of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from http.server import SimpleHTTPRequestHandler
from pathlib import Path

from headrace.runtime.jars import Jar

POM = """<project><modelVersion>4.0.0</modelVersion>
<groupId>{0.group}</groupId><artifactId>{0.name}</artifactId><version>{0.version}</version></project>"""


@dataclass
class MavenRepository:
    folder: Path
    root: str = ""
    requested: list[str] = field(default_factory=list)

    def jar_path(self, jar: Jar) -> Path:
        return self.folder / jar.group.replace(".", "/") / jar.name / jar.version / jar.file_name

    @property
    def downloaded_jars(self) -> set[str]:
        return {path.rsplit("/", 1)[1] for path in self.requested if path.endswith(".jar")}


class RecordingHandler(SimpleHTTPRequestHandler):
    def __init__(self, repository: MavenRepository, *args: object) -> None:
        self.repository = repository
        super().__init__(*args, directory=str(repository.folder))  # type: ignore[arg-type]  # the server's own triple

    def do_GET(self) -> None:
        self.repository.requested.append(self.path)
        super().do_GET()

    def log_message(self, format: str, *args: object) -> None:
        pass
