"""Client, draft server and target server run as three processes."""

import os
import signal
import subprocess
import sys
import time

import pytest

from specwhisper.model.checkpoints.names import DEMO_FOLDER
from tests.e2e.processes import Process, run_client

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def servers(demo_servers, noise):
    """Return both servers once they have transcribed something."""
    assert run_client("transcribe", noise(3), "--quiet", "--server", demo_servers.draft.address)[0] == 0
    return demo_servers


def test_logs_are_json_lines_with_session_ids(servers):
    session = servers.draft.session_ids()[-1]
    for server, key in ((servers.draft, "session"), (servers.target, "draft_session")):
        opened = server.wait_event("session opened", **{key: session})
        closed = server.wait_event("session closed", **{key: session})
        assert opened["session"] == closed["session"]
        assert opened["level"] == closed["level"] == "info"
        assert {"time", "logger"} <= opened.keys()
        assert len(server.events) == len(server.lines), "every line is JSON: there is no progress bar"


def test_idle_servers_use_no_processor_time(servers):
    def most_used_s() -> float:
        both = (servers.target, servers.draft)
        before = [server.cpu_s() for server in both]
        time.sleep(1.5)  # a measurement, not a wait for something
        return max(server.cpu_s() - start for server, start in zip(both, before, strict=True))

    # The last session may leave some work, which takes longer on a busy machine.
    assert any(most_used_s() <= 0.05 for _ in range(3))


def test_a_killed_client_frees_its_session_on_both_servers(servers, noise):
    before = len(servers.target.session_ids())
    command = ("specwhisper", "transcribe", str(noise(300)))
    client = Process(*command, "--server", servers.draft.address)
    try:
        while len(servers.target.session_ids()) == before:
            time.sleep(0.01)
        session = servers.draft.session_ids()[-1]
        client.send_signal(signal.SIGKILL)
        assert client.wait()[0] == -signal.SIGKILL
        servers.draft.wait_event("session closed", within_s=10, session=session)
        servers.target.wait_event("session closed", within_s=10, draft_session=session)
    finally:
        client.end()


def test_output_that_cannot_be_written_ends_a_client_in_one_sentence(servers):
    """A full disk is an error; a program that has read enough, as ``head`` does, isn't one."""
    program = [sys.executable, "-m", "specwhisper", "transcribe", "--quiet"]
    program += ["--server", servers.draft.address, str(DEMO_FOLDER / "samples" / "07_a_letter.flac")]
    with open("/dev/full", "w") as full:
        ended = subprocess.run(program, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
    assert ended.returncode == 1
    assert ended.stderr == "error: The output cannot be written: No space left on device.\n"
    reading, writing = os.pipe()
    os.close(reading)
    live = [*program, "--as-live"]
    ended = subprocess.run(live, stdout=writing, stderr=subprocess.PIPE, text=True, timeout=60)
    os.close(writing)
    assert (ended.returncode, ended.stderr) == (1, "")
