"""How long a piece of our own code takes, whatever else the machine and this process are doing."""

from __future__ import annotations

import gc
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def fastest(action: Callable[[], object], *, enough: float, tries: int = 20) -> float:
    """The least CPU seconds of this thread that one call took, of up to `tries` until `enough` was met.

    Neither other threads nor the collector count: late in a long run a collection goes through the
    millions of objects of all tests before, which says nothing about the call.
    """
    least = float("inf")
    collecting = gc.isenabled()
    gc.disable()
    try:
        for _ in range(tries):
            began = time.thread_time()
            action()
            least = min(least, time.thread_time() - began)
            if least < enough:
                break
    finally:
        if collecting:
            gc.enable()
    return least
