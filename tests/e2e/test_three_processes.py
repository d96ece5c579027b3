"""Client, draft server and target server run as three processes."""

import signal
import time

import pytest

from tests.e2e.processes import Process, run

pytestmark = pytest.mark.timeout(600)


def transcribe(pair, *arguments) -> tuple[int, str, str]:
    return run(
        "specwhisper_client.cli.main",
        "transcribe",
        *map(str, arguments),
        "--server",
        pair.draft.address,
        "--quiet",
    )


def test_logs_are_json_lines_with_session_ids(pair, noise):
    assert transcribe(pair, noise(3))[0] == 0
    session = pair.draft.session_ids()[-1]
    for server, key in ((pair.draft, "session"), (pair.target, "draft_session")):
        opened = server.wait_event("session opened", **{key: session})
        closed = server.wait_event("session closed", **{key: session})
        assert opened["session"] == closed["session"]
        assert {"time", "level", "logger"} <= opened.keys()
        assert all(event["level"] == "info" for event in server.events), "only info events, no progress bar"


def test_a_killed_client_frees_its_session_on_both_servers(pair, noise):
    before = len(pair.target.session_ids())
    client = Process(
        "specwhisper_client.cli.main", "transcribe", str(noise(300)), "--server", pair.draft.address
    )
    try:
        session = new_session(pair, before)
        client.send_signal(signal.SIGKILL)
        assert client.wait()[0] == -signal.SIGKILL
        pair.draft.wait_event("session closed", within_s=10, session=session)
        pair.target.wait_event("session closed", within_s=10, draft_session=session)
    finally:
        client.end()
    assert transcribe(pair, noise(3))[0] == 0


def new_session(pair, num_before: int) -> str:
    """Wait for another session on the target; return its id at the draft server."""
    while True:
        opened = [event for event in pair.target.events if event["message"] == "session opened"]
        if len(opened) > num_before:
            return opened[num_before]["draft_session"]
        time.sleep(0.01)


@pytest.mark.nightly
def test_a_session_continues_at_the_successor_of_a_killed_target(
    pair, noise, checkpoints, start_server_for_all, free_port
):
    before = len(pair.target.session_ids())
    client = Process(
        "specwhisper_client.cli.main",
        "transcribe",
        str(noise(300)),
        "--server",
        pair.draft.address,
        "--quiet",
    )
    try:
        session = new_session(pair, before)
        pair.draft.wait_event("session opened", session=session)
        pair.target.send_signal(signal.SIGKILL)
        pair.draft.wait_event("target lost", within_s=10, session=session)
        pair.target = start_server_for_all(
            "specwhisper_target_server", "--model", checkpoints.target, "--port", free_port
        )
        assert pair.target.address.endswith(f":{free_port}")
        pair.target.wait_event("session opened", within_s=10, draft_session=session)
    finally:
        client.end()
    pair.draft.wait_event("session closed", within_s=10, session=session)
    assert transcribe(pair, noise(3))[0] == 0


def test_idle_servers_use_no_processor_time(pair, noise):
    assert transcribe(pair, noise(3))[0] == 0
    servers = (pair.target, pair.draft)
    before = [server.cpu_s() for server in servers]
    time.sleep(1.5)  # a measurement, not a wait for something
    used_s = [server.cpu_s() - start for server, start in zip(servers, before, strict=True)]
    assert max(used_s) <= 0.05
