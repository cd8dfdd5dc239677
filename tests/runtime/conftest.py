from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial
from http.server import ThreadingHTTPServer
from pathlib import Path

import pytest

from headrace.runtime.jars import JARS, ensure_jars
from tests.runtime.maven import POM, MavenRepository, RecordingHandler


@pytest.fixture
def repository(tmp_path: Path) -> Iterator[MavenRepository]:
    repository = MavenRepository(tmp_path / "repository")
    for jar, source in zip(JARS, ensure_jars(), strict=True):
        path = repository.jar_path(jar)
        path.parent.mkdir(parents=True)
        path.write_bytes(source.read_bytes())
        path.with_suffix(".pom").write_text(POM.format(jar))
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(RecordingHandler, repository))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    repository.root = f"http://127.0.0.1:{server.server_port}"
    yield repository
    server.shutdown()
    thread.join()
    server.server_close()
