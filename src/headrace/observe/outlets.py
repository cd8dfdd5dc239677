"""Where alerts go besides the catalog: the log, and a webhook that never holds a refresh up."""

from __future__ import annotations

import json
import logging
import queue
import threading
import time
import urllib.error
import urllib.request

from headrace.catalog import Alert

_log = logging.getLogger("headrace.alerts")
_TIMEOUT_SECONDS = 5
_TRIES = 3
_FIRST_PAUSE = 0.5
# Alerts that wait while the receiver is away; more than these are dropped, and said to be.
_MOST_WAITING = 1000


class LogOutlet:
    """Writes every alert to the log `headrace.alerts`."""

    def __init__(self, level: int = logging.WARNING) -> None:
        self._level = level

    def __call__(self, alert: Alert) -> None:
        _log.log(self._level, "%s: %s", alert.kind, alert.message)


class Webhook:
    """Posts every alert as JSON from a thread of its own, each at most three times."""

    def __init__(self, url: str, *, first_pause: float = _FIRST_PAUSE) -> None:
        self._url = url
        self._first_pause = first_pause
        self._waiting: queue.Queue[Alert | None] = queue.Queue(_MOST_WAITING)
        self._thread = threading.Thread(target=self._run, name="headrace-webhook", daemon=True)
        self._thread.start()

    def __call__(self, alert: Alert) -> None:
        try:
            self._waiting.put_nowait(alert)
        except queue.Full:
            _log.warning("The webhook does not keep up: the alert %s is not posted", alert.kind)

    def close(self, *, timeout: float = _TIMEOUT_SECONDS) -> None:
        """Post what waits, for so many seconds at most."""
        try:
            self._waiting.put(None, timeout=timeout)
        except queue.Full:
            return
        self._thread.join(timeout)

    def _run(self) -> None:
        while (alert := self._waiting.get()) is not None:
            self._deliver(alert)

    def _deliver(self, alert: Alert) -> None:
        pause = self._first_pause
        for number in range(1, _TRIES + 1):
            try:
                self._post(alert)
                return
            except Exception as error:  # noqa: BLE001 - the thread goes on with the next alert, whatever this one met
                _log.log(
                    logging.INFO if number < _TRIES else logging.WARNING,
                    "The webhook did not take the alert %s (try %d of %d): %s",
                    alert.kind,
                    number,
                    _TRIES,
                    _describe(error),
                )
            if number < _TRIES:
                time.sleep(pause)
                pause *= 2

    def _post(self, alert: Alert) -> None:
        body = json.dumps(as_json(alert)).encode()
        request = urllib.request.Request(self._url, body, {"Content-Type": "application/json"}, method="POST")
        with urllib.request.urlopen(request, timeout=_TIMEOUT_SECONDS):
            pass


def _describe(error: Exception) -> str:
    """Say what went wrong without the address, which may hold a secret."""
    reason = getattr(error, "reason", None)
    return str(reason) if isinstance(error, OSError) and reason else type(error).__name__


def as_json(alert: Alert) -> dict[str, object]:
    """Give what a webhook receives."""
    return {
        "alert_id": alert.id,
        "kind": alert.kind,
        "stream_table": str(alert.stream_table) if alert.stream_table else None,
        "message": alert.message,
        "raised_at": alert.raised_at.isoformat(),
    }
