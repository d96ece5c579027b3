"""Run a gateway for a scripted pair in a thread, and check it after any input."""

import asyncio
import json
import logging
import os
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPResponse
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings

from experiments.common.models.scripted import NUM_TEXT, ScriptedModel
from tests.rpc.gateways import RunningGateway, running_gateway
from tests.rpc.services import MAX_SESSIONS, Draft, Target, all_free, draft_server, eventually, target_server

TIMES = int(os.environ.get("SPECWHISPER_FUZZ", "1"))  # factor of the number of examples
MAX_UPLOAD_BYTES = 200_000
REPLY_S = 30.0
REFUSALS = (400, 403, 404, 405, 413)
# Errors in uvicorn's log that a client has caused.
NOT_OURS = ("Invalid UTF-8 sequence received from client.",)


def examples(number: int) -> settings:
    """Return a number of examples, times ``SPECWHISPER_FUZZ``."""
    return settings(max_examples=number * TIMES, suppress_health_check=[HealthCheck.too_slow])


class AnyText(ScriptedModel):
    """A model that has a token for any prompt."""

    def tokenize(self, text: str, *, after_space: bool = True) -> tuple[int, ...]:
        return tuple(ord(letter) % NUM_TEXT for letter in text)


class Errors(logging.Handler):
    """Collects the errors that are logged."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.getMessage() not in NOT_OURS and record.name != "websockets.client":
            self.messages.append(logging.Formatter().format(record))


@dataclass
class Fuzzed:
    """A running gateway that is fuzzed.

    Attributes
    ----------
    folder : the folder of temporary uploads.
    """

    gateway: RunningGateway
    target: Target
    draft: Draft
    loop: asyncio.AbstractEventLoop
    folder: Path
    errors: Errors = field(default_factory=Errors)

    @property
    def address(self) -> tuple[str, int]:
        host, _, port = self.gateway.server.address.rpartition(":")
        return host, int(port)

    def ask(
        self,
        method: str,
        path: str,
        headers: Sequence[tuple[str, str]] = (),
        body: bytes = b"",
    ) -> tuple[int, str, bytes]:
        """Send a raw request; return status, media type and body of the answer."""
        lines = [("Host", "here"), ("Content-Length", str(len(body))), *headers]
        head = "".join(f"{name}: {value}\r\n" for name, value in lines)
        with socket.create_connection(self.address, timeout=REPLY_S) as connection:
            # In one write: bytes after a refusal reset the connection, and the reset may overtake it.
            connection.sendall(f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode("latin-1") + body)
            with HTTPResponse(connection, method=method) as reply:
                reply.begin()
                return reply.status, reply.getheader("content-type", ""), reply.read()

    def check_alive(self) -> None:
        """Assert that the gateway answers, has no session, and logged none of our own errors."""
        assert self.ask("GET", "/health")[0] == 200
        asyncio.run_coroutine_threadsafe(self._at_rest(), self.loop).result(REPLY_S)
        assert self.errors.messages == []
        assert list(self.folder.iterdir()) == []

    async def _at_rest(self) -> None:
        await eventually(lambda: not self.gateway.server.server_state.tasks)
        await eventually(lambda: len(self.gateway.server.server_state.connections) <= 1)  # the one below
        assert self.gateway.num_sessions == 0
        figures = await self.gateway.figures()
        assert (figures["active_requests"], figures["active_sessions"]) == (1, 0)
        await all_free(self.target, self.draft)


@contextmanager
def fuzzed(folder: Path) -> Iterator[Fuzzed]:
    """Run a gateway for all examples of a test."""
    ready = threading.Event()
    held: dict[str, Any] = {}

    async def run() -> None:
        async with (
            target_server(AnyText(MAX_SESSIONS)) as target,
            draft_server(target.address) as draft,
            running_gateway(
                draft.address, max_upload_bytes=MAX_UPLOAD_BYTES, max_sessions=MAX_SESSIONS
            ) as gateway,
        ):
            stop = asyncio.Event()
            loop = asyncio.get_running_loop()
            held["stop"] = lambda: loop.call_soon_threadsafe(stop.set)
            held["fuzzed"] = Fuzzed(gateway, target, draft, loop, folder)
            ready.set()
            await stop.wait()

    thread = threading.Thread(target=asyncio.run, args=(run(),))
    thread.start()
    assert ready.wait(60)
    logging.getLogger().addHandler(held["fuzzed"].errors)
    try:
        yield held["fuzzed"]
    finally:
        logging.getLogger().removeHandler(held["fuzzed"].errors)
        held["stop"]()
        thread.join()


def check_reply(status: int, media_type: str, body: bytes) -> None:
    """Assert that an answer is no server error, and refuses in OpenAI's format."""
    assert status < 500, body
    assert b"Traceback" not in body
    if status >= 400:
        assert status in REFUSALS, (status, body)
        if media_type == "application/json" and body:  # HEAD has none
            error = json.loads(body)["error"]
            assert error.keys() == {"message", "type", "param", "code"}
            assert error["message"]
        else:
            assert body in (b"", b"Invalid HTTP request received.")  # uvicorn's own, to what is not HTTP
