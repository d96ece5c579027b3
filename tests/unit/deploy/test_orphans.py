"""Processes left by a killed Ray are found, with the command that ends them."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess

import pytest

from specwhisper_deploy.orphans import describe_orphans, find_orphans, is_orphan

AGENT = "ray::DashboardAgent"


@pytest.mark.parametrize(
    ("command_line", "ancestors", "expected"),
    [
        (AGENT, ["systemd"], True),
        (AGENT, [], True),
        (AGENT, ["raylet", "python"], False),
        (AGENT, ["uv", "raylet", "python"], False),
        ("/usr/bin/raylet --node", ["systemd"], False),
        ("vim ray::notes", ["bash"], False),
    ],
)
def test_a_process_of_ray_without_a_raylet_is_an_orphan(command_line, ancestors, expected):
    assert is_orphan(command_line, ancestors) is expected


def test_the_sentence_names_each_kind_once_and_every_process():
    orphans = {7: AGENT, 8: "ray::RuntimeEnvAgent", 9: AGENT}
    sentence = describe_orphans(orphans)
    assert sentence.endswith(f"has left {AGENT}, ray::RuntimeEnvAgent. End them by: kill -9 7 8 9")


def test_orphans_of_this_machine_are_found():
    agent = subprocess.Popen([AGENT, "600"], executable=shutil.which("sleep"))
    try:
        assert find_orphans()[agent.pid] == f"{AGENT} 600"
        os.kill(agent.pid, signal.SIGKILL)
    finally:
        agent.kill()
        agent.wait()
    assert agent.pid not in find_orphans()
