"""Signals that stop the command, and its end while its main thread waits.

Ray's calls, including its shutdown, wait for a cluster that no longer answers, and block signals meanwhile.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from threading import Event, Thread
from typing import Self

import psutil
import ray

POLL_S, ASK_S = 0.25, 1.0
LOST_S = 20.0  # without an answer; Ray itself takes about 10 s to notice a lost node
HURRY_S = 1.0  # after the second signal
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
LOST = "specwhisper serve: Ray is gone, or has not answered for {:g} s: start this command again."
INTERRUPTED = 130  # exit status after Ctrl-C


def ray_lives() -> bool:
    return not ray.is_initialized() or any(node["Alive"] for node in ray.nodes())


class Signals:
    """Counts SIGTERM and SIGINT: the first one drains, the second one ends at once.

    A thread counts during the ``with``, also while the main thread waits. It ends the process soon after the
    second signal, or once Ray is gone.

    ``lives``: returns whether Ray still runs; the call may hang.
    """

    def __init__(self, lives: Callable[[], bool] = ray_lives) -> None:
        self._lives = lives
        self._is_over = Event()
        self._is_gone = self._is_stopping = False
        self._number = 0
        self._num_unanswered = 0  # polls; a time would include the time for which this process was stopped
        self._below: set[psutil.Process] = set()

    def __enter__(self) -> Self:
        # Python's handlers run only between two steps of the main thread; this is written to at once.
        self._signalled, self._on_signal = socket.socketpair()
        for end in (self._signalled, self._on_signal):
            end.setblocking(False)
        signal.set_wakeup_fd(self._on_signal.fileno(), warn_on_full_buffer=False)
        self._watching = Thread(target=self._watch, daemon=True)
        self._watching.start()
        Thread(target=self._ask, daemon=True).start()  # it may wait for Ray forever
        return self

    def __exit__(self, *_: object) -> None:
        signal.set_wakeup_fd(-1)
        self._is_over.set()
        self._watching.join()
        self._signalled.close()
        self._on_signal.close()

    def catch(self) -> None:
        """From now on signals are only counted."""
        for number in STOP_SIGNALS:
            signal.signal(number, lambda *_: None)

    def stop(self) -> None:
        """Act as if the first signal had come, so that Ray may end and the next signal ends at once."""
        self._is_stopping = True

    @property
    def is_stopped(self) -> bool:
        return self._number > 0

    @property
    def is_forced(self) -> bool:
        return self._number > 1

    def _ask(self) -> None:
        while not self._is_over.wait(ASK_S):
            with suppress(Exception):  # whatever Ray raises isn't an answer
                if self._lives():
                    self._num_unanswered = 0
                else:
                    self._is_gone = not self._is_stopping

    def _watch(self) -> None:
        num_hurried = 0
        while not self._is_over.wait(POLL_S):
            with suppress(BlockingIOError):
                self._number += sum(number in STOP_SIGNALS for number in self._signalled.recv(64))
            self._number = max(self._number, int(self._is_stopping))
            with suppress(psutil.Error):
                self._below.update(psutil.Process().children(recursive=True))
            self._num_unanswered += 1
            num_hurried += self.is_forced
            if num_hurried * POLL_S > HURRY_S:
                self._stop(INTERRUPTED)
            elif self._is_gone or self._num_unanswered * POLL_S > LOST_S:
                print(LOST.format(LOST_S), file=sys.stderr, flush=True)
                self._stop(1)

    def _stop(self, status: int) -> None:
        """End the child processes of this one, then this one."""
        for process in self._below:
            with suppress(psutil.Error):
                process.kill()
        os._exit(status)
