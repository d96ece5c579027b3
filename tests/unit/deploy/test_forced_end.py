"""``specwhisper serve`` ends although its main thread waits forever."""

import signal
import subprocess
import sys

import psutil
import pytest

# The main thread waits in a call of C that handles no signals, as Ray's do; below it is a process.
WAITING = """
import ctypes, subprocess, sys
from specwhisper_deploy import forced_end
forced_end.LOST_S = float(sys.argv[1])
lives = (lambda: True) if sys.argv[2] == "lives" else (lambda: ctypes.CDLL(None).pause())
with forced_end.ForcedEnd(lives):
    print(subprocess.Popen(["sleep", "600"]).pid, flush=True)
    wait = ctypes.CDLL(None).pause
    while True:
        wait()
"""


def test_a_second_signal_ends_it_within_two_seconds_and_leaves_nothing():
    with subprocess.Popen(
        [sys.executable, "-c", HANDLED + WAITING, "60", "lives"], stdout=subprocess.PIPE, text=True
    ) as process:
        child = psutil.Process(int(process.stdout.readline()))
        process.send_signal(signal.SIGTERM)
        with pytest.raises(subprocess.TimeoutExpired):  # the first signal drains
            process.wait(0.5)
        process.send_signal(signal.SIGINT)
        assert process.wait(2) == 130
        child.wait(5)


def test_it_ends_with_a_status_and_a_reason_once_ray_is_gone():
    with subprocess.Popen(
        [sys.executable, "-c", HANDLED + WAITING, "1", "hangs"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        child = psutil.Process(int(process.stdout.readline()))
        assert process.wait(10) == 1
        assert process.stderr.read().startswith(
            "specwhisper serve: Ray is gone, or has not answered for 1 s: "
        )
        child.wait(5)


HANDLED = """
import signal
for each in (signal.SIGINT, signal.SIGTERM):
    signal.signal(each, lambda *_: None)
"""
