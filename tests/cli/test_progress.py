"""The progress of `run --once`, on a terminal that is recorded."""

from __future__ import annotations

import io
import threading
import time
from pathlib import Path

import pytest
from rich.console import Console

from headrace.catalog import Catalog, sqlite_url
from headrace.cli.progress import Progress
from headrace.errors import HeadraceError
from tests.scheduler.test_dispatch import Bench, assert_set


def until(text: str, recorded: io.StringIO) -> None:
    """Wait until the terminal has shown a text."""
    deadline = time.monotonic() + 20
    while text not in recorded.getvalue():
        assert time.monotonic() < deadline, f"{text!r} is not in {recorded.getvalue()!r}"
        time.sleep(0.05)


@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_run_shows_what_is_done_under_way_and_waiting(tmp_path: Path, is_terminal: bool) -> None:
    recorded = io.StringIO()
    progress = Progress(Console(file=recorded, force_terminal=is_terminal, width=120))
    go_on = {name: threading.Event() for name in ("a", "b")}

    def fail() -> None:
        assert_set(go_on["b"])
        raise HeadraceError("unknown_column", "bad")

    with Catalog.open(sqlite_url(tmp_path / "catalog.db")) as catalog:
        bench = Bench(catalog, 1)
        bench.refresher.script = {"a": lambda: assert_set(go_on["a"]), "b": fail}
        tick = bench.tick({"a": "x", "b": "a", "c": "b"})
        a, b, _ = (str(name) for name in tick.network.graph.order)
        run = threading.Thread(target=bench.dispatcher.run, args=(tick,))
        with progress.live():
            assert progress.line() == "looking for what is due …"
            progress.begin(tick, bench.dispatcher.running)
            run.start()
            if is_terminal:
                until(f"0 of 3 done; refreshing {a}; 2 waiting", recorded)
            go_on["a"].set()
            if is_terminal:
                until(f"1 of 3 done (1 completed); refreshing {b}; 1 waiting", recorded)
            go_on["b"].set()
            run.join(30)
            assert progress.line() == "3 of 3 done (1 completed, 1 failed, 1 skipped)"
        bench.workers.close()
    assert bool(recorded.getvalue()) is is_terminal, "what is piped gets no line of it"
