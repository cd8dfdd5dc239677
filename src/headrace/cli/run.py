"""`run`: the service that keeps stream tables fresh, in the foreground."""

from __future__ import annotations

import logging
import os
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer
from rich.live import Live
from rich.text import Text

from headrace.cli.command import Json, Place, err, out, show_error
from headrace.cli.progress import Progress
from headrace.config import config_path
from headrace.display import Grid, duration, json_text, print_grid
from headrace.errors import HeadraceError

if TYPE_CHECKING:
    from headrace.api import Headrace
    from headrace.config import Settings
    from headrace.scheduler.report import Outcome, TickReport
    from headrace.scheduler.service import Service
    from headrace.scheduler.tick import Tick
    from headrace.sql.names import TableName


def run(
    place: Place,
    once: Annotated[bool, typer.Option("--once", help="Refresh what is due now, and end.")] = False,
    host: Annotated[
        str | None, typer.Option("--host", help="Address of /healthz and /metrics.", show_default=False)
    ] = None,
    port: Annotated[
        int | None,
        typer.Option("--port", min=0, max=65535, help="Their port; 0 takes a free one.", show_default=False),
    ] = None,
    json: Json = False,
) -> int:
    """Keep the stream tables fresh until stopped, with /healthz and /metrics over HTTP."""
    with place.connection() as hr:
        if once:
            return _run_once(hr, json=json)
        _serve(hr, place, host=host, port=port)
    return 0


def _run_once(hr: Headrace, *, json: bool) -> int:
    progress = Progress(err())
    with progress.live():
        report = hr.run_once(on_begin=progress.begin)
    if json:
        print(json_text([_record(outcome) for outcome in report]))
    elif report.data_timestamp is None:
        out().print("Nothing was due.")
    else:
        _print_report(report)
    for outcome in report.failed:
        if outcome.error is not None:
            show_error(outcome.error)
    return 1 if report.failed else 0


def _print_report(report: TickReport) -> None:
    shown = [
        {**record, "time": duration(record["duration_ms"] / 1000)}
        for record in map(_record, report)
        if isinstance(record["duration_ms"], float)
    ]
    print_grid(
        out(), Grid.of(shown, ["stream_table", "action", "rows_inserted", "rows_deleted", "time", "reason"])
    )


def _record(outcome: Outcome) -> dict[str, object]:
    result = outcome.result
    return {
        "stream_table": outcome.stream_table,
        "state": str(outcome.state),
        "action": str(outcome.action or outcome.state),
        "reason": outcome.reason,
        "rows_inserted": result.rows_inserted if result else 0,
        "rows_deleted": result.rows_deleted if result else 0,
        "data_timestamp": result.data_timestamp if result else None,
        "duration_ms": round(result.duration_ms, 1) if result else 0.0,
    }


def _serve(hr: Headrace, place: Place, *, host: str | None, port: int | None) -> None:
    from headrace.observe.http import Endpoint
    from headrace.observe.outlets import LogOutlet

    settings = hr.settings
    hr.on_alert(LogOutlet(logging.WARNING))
    reader = _SettingsReader(place)
    screen = _Screen()
    service = hr.service(reload=reader.changed, on_outcome=screen.tell)
    with ExitStack() as stack:
        endpoint = Endpoint(
            host if host is not None else settings.http_host,
            port if port is not None else settings.http_port,
            health=service.health,
            metrics=service.metrics,
        )
        stack.callback(endpoint.close)
        stack.enter_context(_signals(hr, service, reader))
        count = len(hr.catalog.all())
        screen.say(f"Keeping {count} stream table{'s' * (count != 1)} fresh; {endpoint.address}/metrics")
        with screen.live(service):
            service.run()
    screen.say("Stopped.")


@contextmanager
def _signals(hr: Headrace, service: Service, reader: _SettingsReader) -> Iterator[None]:
    """Stop at the first SIGTERM or SIGINT and give up at the second; SIGHUP reads the settings again."""
    asked = 0

    def stop(_number: int, _frame: FrameType | None) -> None:
        nonlocal asked
        asked += 1
        service.stop()
        if asked > 1:
            hr.spark.sparkContext.cancelAllJobs()

    def reread(_number: int, _frame: FrameType | None) -> None:
        reader.ask()

    handlers = {signal.SIGTERM: stop, signal.SIGINT: stop, signal.SIGHUP: reread}
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _SettingsReader:
    """Reads the settings again when their file changed or somebody asked."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._asked = False
        self._seen = self._stamp()

    def ask(self) -> None:
        self._asked = True

    def changed(self) -> Settings | None:
        """Give the new settings, or None; wrong ones are reported and the old ones stay."""
        stamp = self._stamp()
        if stamp == self._seen and not self._asked:
            return None
        self._seen, self._asked = stamp, False
        try:
            settings = self._place.settings()
            self._place.log_as(settings)
            return settings
        except HeadraceError as error:
            logging.getLogger("headrace.service").warning("the old settings stay: %s", error)
            return None

    def _stamp(self) -> object:
        path = config_path()
        try:
            return (path, os.stat(path).st_mtime_ns) if path is not None else None
        except OSError:
            return path, None


class _Screen:
    """Tells what changed or failed, line by line; on a terminal the last line shows what goes on."""

    def __init__(self) -> None:
        self._console = err()
        self._counts: Counter[str] = Counter()

    def tell(self, tick: Tick, _name: TableName, outcome: Outcome) -> None:
        self._counts[str(outcome.state)] += 1
        # That nothing changed is no news.
        if outcome.action != "NO_DATA":
            self.say(f"{tick.moment:%H:%M:%S} {outcome}")

    def say(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    @contextmanager
    def live(self, service: Service) -> Iterator[None]:
        """Show the counts and the refreshes under way, on a terminal only."""
        if not self._console.is_terminal:
            yield
            return
        with Live(
            get_renderable=lambda: Text(self._line(service), overflow="ellipsis", no_wrap=True),
            console=self._console,
            refresh_per_second=2,
            transient=True,
        ):
            yield

    def _line(self, service: Service) -> str:
        counted = ", ".join(f"{count:,} {state.lower()}" for state, count in sorted(self._counts.items()))
        running = ", ".join(service.health()["running"])
        return f"{counted or 'nothing yet'}; {f'refreshing {running}' if running else 'waiting'}"
