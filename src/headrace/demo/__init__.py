"""A guided run: a small shop, three levels of stream tables over it, and rounds of changes."""

from __future__ import annotations

from headrace.demo.run import run_demo

__all__ = ["run_demo"]
