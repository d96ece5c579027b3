"""ServerProcess starts, reads and stops processes; here they only write a log."""

import socket
import sys

import pytest

from specwhisper.errors import TargetUnavailable
from specwhisper_client.cli.server_process import following, start_server

NOISY = """
import json, socket, sys, time
print("no record", "{", "[]", sep="\\n", file=sys.stderr)
print(json.dumps({"message": "ready", "address": "here"}), file=sys.stderr, flush=True)
for _ in range(300):
    print(json.dumps({"message": "session opened", "padding": 1024 * "x"}), file=sys.stderr, flush=True)
socket.create_connection(("127.0.0.1", int(sys.argv[1])))
time.sleep(600)
"""


def python(code, *arguments):
    return start_server([sys.executable, "-c", code, *arguments])


def test_a_server_may_write_any_amount_of_log():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(60)
        process = python(NOISY, str(listener.getsockname()[1]))
        with following(process, "It") as address:
            assert address == "here"
            listener.accept()[0].close()  # only after 300 KiB of log
    assert process.returncode is not None


def test_the_error_of_a_server_that_does_not_start_has_the_reason():
    process = python("import sys; sys.exit('first\\nno\\nroom')")
    with (
        pytest.raises(TargetUnavailable, match=r"^It did not start: first\nno\nroom$"),
        following(process, "It"),
    ):
        pass


def test_a_server_that_never_becomes_ready_is_stopped():
    process = python("import time; time.sleep(600)")
    with (
        pytest.raises(TargetUnavailable, match=r"^It did not start"),
        following(process, "It", start_timeout_s=0.01),
    ):
        pass
    assert process.returncode is not None
