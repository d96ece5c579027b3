"""``make demo-web`` as a process."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import openai


def test_the_demo_stops_every_process_it_started():
    """Run ``make demo-web`` until Ctrl-C."""
    environment = {**os.environ, "DISPLAY": "", "WAYLAND_DISPLAY": ""}
    command = [sys.executable, "scripts/demo_web.py", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as demo:
        url = next(line.strip() for line in demo.stdout if "http://" in line)
        with openai.DefaultHttpxClient() as http:
            assert http.get(f"{url}health").json()["target_model"] == "demo-target"
        children = Path(f"/proc/{demo.pid}/task/{demo.pid}/children").read_text().split()
        demo.send_signal(signal.SIGINT)
        assert demo.wait(60) == 0
    assert len(children) == 3
    assert [child for child in children if Path(f"/proc/{child}").exists()] == []
