"""`/healthz` and `/metrics` over HTTP, on loopback unless told otherwise."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from headrace.errors import HeadraceError

Health = Callable[[], Mapping[str, Any]]
_TEXT = "text/plain; version=0.0.4; charset=utf-8"


class Endpoint:
    """Serves health and metrics from threads of its own."""

    def __init__(self, host: str, port: int, *, health: Health, metrics: Callable[[], str]) -> None:
        pages = {
            "/healthz": lambda: _health_page(health()),
            "/metrics": lambda: (200, _TEXT, metrics() + "\n"),
        }
        try:
            self._server = ThreadingHTTPServer((host, port), _handler(pages))
        except OSError as error:
            raise HeadraceError(
                "port_taken",
                f"{host}:{port} cannot be listened on: {error.strerror}.",
                hint="Choose another with --port or the setting http_port; 0 takes any that is free.",
            ) from None
        self._server.daemon_threads = True
        self._thread = threading.Thread(
            target=self._server.serve_forever,
            name="headrace-http",
            daemon=True,
            kwargs={"poll_interval": 0.2},
        )
        self._thread.start()

    @property
    def address(self) -> str:
        host, port = self._server.server_address[:2]
        return f"http://{host!s}:{port}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _health_page(state: Mapping[str, Any]) -> tuple[int, str, str]:
    code = 200 if state.get("status") == "ok" else 503
    return code, "application/json", json.dumps(state) + "\n"


def _handler(pages: Mapping[str, Callable[[], tuple[int, str, str]]]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            page = pages.get(self.path.partition("?")[0])
            code, kind, text = page() if page else (404, _TEXT, "There are /healthz and /metrics.\n")
            body = text.encode()
            self.send_response(code)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Keep requests out of the terminal."""

    return Handler
