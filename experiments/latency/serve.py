"""A draft server that reports every commit at once: 50 ms, its usual interval, are too coarse for a clock."""

from __future__ import annotations

import runpy

from specwhisper_draft_server import session

if __name__ == "__main__":
    session.INTERVAL_S = 0.0
    runpy.run_module("specwhisper_draft_server", run_name="__main__", alter_sys=True)
