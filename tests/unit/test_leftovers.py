"""What a killed Ray leaves is found, and the sentence says how to end it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess

import pytest

from specwhisper_deploy.leftovers import Process, left_over, processes, sentence

AGENT = "ray::DashboardAgent"


@pytest.mark.parametrize(
    ("title", "parents", "is_left"),
    [
        (AGENT, ("systemd",), True),
        (AGENT, (), True),
        (AGENT, ("raylet", "python"), False),
        (f"{AGENT}", ("uv", "raylet", "python"), False),
        ("/usr/bin/raylet --node", ("systemd",), False),
        ("vim ray::notes", ("bash",), False),
    ],
)
def test_what_a_raylet_has_started_is_left_once_that_has_gone(title, parents, is_left):
    process = Process(7, title, parents)
    assert left_over([process]) == [process] * is_left


def test_the_sentence_names_each_kind_once_and_every_process():
    left = [Process(7, AGENT, ()), Process(8, "ray::RuntimeEnvAgent", ()), Process(9, AGENT, ())]
    assert sentence(left).endswith(f"has left {AGENT}, ray::RuntimeEnvAgent. End them by: kill -9 7 8 9")


def test_it_is_found_among_the_processes_of_this_machine():
    agent = subprocess.Popen([AGENT, "600"], executable=shutil.which("sleep"))
    try:
        (found,) = (each for each in left_over(processes()) if each.pid == agent.pid)
        assert found.title == f"{AGENT} 600"
        os.kill(found.pid, signal.SIGKILL)
    finally:
        agent.kill()
        agent.wait()
    assert agent.pid not in [each.pid for each in left_over(processes())]
