"""Who holds a lease: a name for this process by which others on its machine can tell that it died."""

from __future__ import annotations

import os
import socket
import uuid
from functools import cache
from pathlib import Path


@cache
def _place() -> str:
    """The machine and its process numbering; two containers may share a host name, but not this."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()[:8]
        return f"{socket.gethostname()}/{boot}-{os.stat('/proc/self/ns/pid').st_ino}"
    except OSError:
        return f"{socket.gethostname()}/{uuid.getnode():x}"


def _started(pid: int) -> str:
    """When a process began, in ticks since boot; a number that is used again has another one."""
    try:
        # The command's name, in parentheses, may hold spaces; the start time is the 20th field after it.
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return "?"


def this_owner() -> str:
    """The name of this process as an owner of leases.

    >>> is_dead(this_owner())
    False
    """
    pid = os.getpid()
    return f"{_place()}/{pid}/{_started(pid)}"


def is_dead(owner: str) -> bool:
    """Whether an owner certainly died: it ran on this machine, and its process is gone.

    >>> is_dead("another machine/1-2/77/1")
    False
    """
    place, _, process = owner.rpartition("/")
    place, _, number = place.rpartition("/")
    if place != _place() or not number.isdecimal():
        return False
    try:
        os.kill(int(number), 0)
    except (ProcessLookupError, OverflowError):
        return True
    except PermissionError:
        pass
    return process != _started(int(number))
