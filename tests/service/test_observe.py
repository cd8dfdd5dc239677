"""Alerts by webhook, metrics as Prometheus reads them, health over HTTP: on real sockets."""

from __future__ import annotations

import json
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from headrace.catalog import Alert, Catalog, sqlite_url
from headrace.errors import HeadraceError
from headrace.observe.http import Endpoint
from headrace.observe.metrics import Metrics
from headrace.observe.outlets import Webhook
from headrace.sql.names import TableName

ALERT = Alert(7, TableName("shop", "totals"), "auto_suspended", "it failed", datetime(2026, 1, 1, tzinfo=UTC))


class Receiver:
    """A server that keeps what is posted to it and answers with the given codes, then with 200."""

    def __init__(self, *codes: int, delay: float = 0) -> None:
        self.posted: list[dict[str, object]] = []
        answers = list(codes)
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                time.sleep(delay)
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.posted.append(json.loads(body))
                self.send_response(answers.pop(0) if answers else 200)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.05})
        self.thread.start()
        self.url = f"http://127.0.0.1:{self.server.server_port}/hook"

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    receiver = Receiver()
    yield receiver
    receiver.close()


def test_an_alert_is_posted_as_json(receiver: Receiver) -> None:
    webhook = Webhook(receiver.url)
    webhook(ALERT)
    webhook.close()
    assert receiver.posted == [
        {
            "alert_id": 7,
            "kind": "auto_suspended",
            "stream_table": "shop.totals",
            "message": "it failed",
            "raised_at": "2026-01-01T00:00:00+00:00",
        }
    ]


@pytest.mark.parametrize(("codes", "posts"), [((503,), 2), ((500, 500), 3), ((500, 500, 500, 500), 3)])
def test_a_receiver_that_fails_is_tried_three_times(codes: tuple[int, ...], posts: int) -> None:
    receiver = Receiver(*codes)
    webhook = Webhook(receiver.url, first_pause=0.01)
    webhook(ALERT)
    webhook.close()
    receiver.close()
    assert len(receiver.posted) == posts


class Babbler:
    """A server that answers first with what is no HTTP, and from then on well."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}/secret"
        self.asked = 0
        self.thread = threading.Thread(target=self._serve)
        self.thread.start()

    def _serve(self) -> None:
        answers = [b"hello, this is no HTTP\r\n\r\n", b"HTTP/1.1 2\r\n\r\n", b""]
        answers.append(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        for answer in answers:
            connection, _ = self.listener.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(answer)
            self.asked += 1

    def close(self) -> None:
        self.thread.join(20)
        self.listener.close()


def test_an_answer_that_is_no_http_does_not_end_the_webhook(caplog: pytest.LogCaptureFixture) -> None:
    babbler = Babbler()
    webhook = Webhook(babbler.url, first_pause=0.01)
    webhook(ALERT)
    webhook(ALERT)
    webhook.close()
    babbler.close()
    assert babbler.asked == 4, "three tries of the first alert, and one of the second"
    assert "did not take the alert auto_suspended (try 3 of 3)" in caplog.text
    assert "secret" not in caplog.text


def test_an_address_that_nobody_can_ask_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    webhook = Webhook("http://127.0.0.1/a b?token=secret", first_pause=0.01)
    webhook(ALERT)
    webhook(ALERT)
    webhook.close()
    assert caplog.text.count("(try 3 of 3)") == 2
    assert "secret" not in caplog.text


def test_nobody_waits_for_a_slow_or_absent_receiver(tmp_path: Path) -> None:
    slow = Receiver(delay=0.5)
    with Catalog.open(sqlite_url(tmp_path / "catalog.db")) as catalog:
        for webhook in (Webhook(slow.url), Webhook("http://127.0.0.1:9/nobody", first_pause=0.01)):
            catalog.on_alert(webhook)
            began = time.perf_counter()
            for _ in range(2000):
                webhook(ALERT)
            assert time.perf_counter() - began < 0.5, "more alerts than are kept are dropped, not waited for"
        assert catalog.raise_alert("lag_exceeded", "late").kind == "lag_exceeded"
        assert [alert.kind for alert in catalog.alerts()] == ["lag_exceeded"]
    slow.close()


def test_a_failing_callback_harms_nobody(tmp_path: Path) -> None:
    heard = []
    with Catalog.open(sqlite_url(tmp_path / "catalog.db")) as catalog:
        catalog.on_alert(lambda _: 1 / 0)
        catalog.on_alert(heard.append)
        catalog.raise_alert("refresh_failed", "it failed")
    assert [alert.kind for alert in heard] == ["refresh_failed"]


def get(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_health_and_metrics_are_served() -> None:
    metrics = Metrics({"lag_seconds": ("gauge", "Age."), "ticks_total": ("counter", "Ticks.")})
    metrics.add("ticks_total", 2)
    metrics.replace("lag_seconds", [({"stream_table": "a.b"}, 1.5), ({"stream_table": "gone"}, 9)])
    metrics.replace("lag_seconds", [({"stream_table": "a.b"}, 2.5)])
    health = {"status": "ok"}
    endpoint = Endpoint("127.0.0.1", 0, health=lambda: health, metrics=metrics.render)
    try:
        code, text = get(f"{endpoint.address}/metrics")
        assert code == 200
        assert 'headrace_lag_seconds{stream_table="a.b"} 2.5' in text.splitlines()
        assert "gone" not in text
        assert "headrace_ticks_total 2" in text.splitlines()
        assert get(f"{endpoint.address}/healthz") == (200, '{"status": "ok"}\n')
        health["status"] = "failing"
        assert get(f"{endpoint.address}/healthz?verbose")[0] == 503
        assert get(f"{endpoint.address}/elsewhere")[0] == 404
        port = int(endpoint.address.rpartition(":")[2])
        with pytest.raises(HeadraceError) as taken:
            Endpoint("127.0.0.1", port, health=lambda: health, metrics=metrics.render)
        assert taken.value.code == "port_taken"
    finally:
        endpoint.close()
