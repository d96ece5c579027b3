"""A server of the laboratory: it reports every commit at once, and its mechanisms can be switched off.

``python -m experiments.latency.serve MODULE FILE ...``: at SIGUSR1 it does without the mechanism that FILE
names, or with all if that is empty; then it removes FILE. The other arguments are the server's. A draft
server usually reports text every 50 ms, which is too coarse for a clock.
"""

from __future__ import annotations

import runpy
import signal
import sys
from contextlib import ExitStack
from pathlib import Path

from experiments.latency.mechanisms import MECHANISMS
from specwhisper_draft_server.sessions import session


def main() -> None:
    module, file, *sys.argv[1:] = sys.argv[1:]
    path, off = Path(file), ExitStack()

    def switch(*_: object) -> None:
        off.close()
        if name := path.read_text():
            off.enter_context(MECHANISMS[name].switched_off())
        path.unlink()

    signal.signal(signal.SIGUSR1, switch)
    session.INTERVAL_S = 0.0
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
