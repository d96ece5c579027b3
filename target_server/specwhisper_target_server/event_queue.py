"""The responses of a session that its peer has not read yet."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from specwhisper.errors import SlowReader
from specwhisper.types import Commit, Failed, Finished, FromTarget, WindowOpened
from specwhisper.wire import codec
from specwhisper.wire.v1 import verification_pb2 as pb

MAX_UNREAD = 64  # responses; above it, the peer's requests are not read either
MAX_UNREAD_BYTES = 1024 * 1024

Response = pb.VerifyResponse | Finished | Failed


class EventQueue(asyncio.Queue[Response]):
    """Holds a session's events as responses, up to a number of bytes.

    Parameters
    ----------
    on_overflow : called once, when more bytes are unread than may be. All responses are dropped then, also
        those that follow.
    max_bytes : most bytes of unread responses.
    """

    def __init__(self, on_overflow: Callable[[SlowReader], None], max_bytes: int = MAX_UNREAD_BYTES) -> None:
        self._on_overflow = on_overflow
        self._max_bytes = max_bytes
        self._num_bytes = 0
        self._has_overflowed = False
        super().__init__()

    def _init(self, maxsize: int) -> None:
        self._queue: deque[Response] = deque()

    @property
    def is_congested(self) -> bool:
        """Whether so many responses are unread that the peer's requests must wait."""
        return self.qsize() > MAX_UNREAD

    def put_nowait(self, event: FromTarget | pb.VerifyResponse) -> None:
        """Queue an event of the engine, or a response."""
        if self._has_overflowed:
            return
        try:
            response = _to_response(event)
        except Exception as error:  # the engine delivers to other sessions in the same callback
            response = Failed(error)
        self._num_bytes += _size(response)
        if self._num_bytes <= self._max_bytes:
            super().put_nowait(response)
            return
        self._has_overflowed = True
        self._queue.clear()
        self._on_overflow(
            SlowReader(f"More than {self._max_bytes} bytes of responses are unread: the call has ended.")
        )

    def _get(self) -> Response:
        response = self._queue.popleft()
        self._num_bytes -= _size(response)
        return response


def _size(response: Response) -> int:
    return response.ByteSize() if isinstance(response, pb.VerifyResponse) else 0


def _to_response(event: FromTarget | pb.VerifyResponse) -> Response:
    match event:
        case WindowOpened():
            return pb.VerifyResponse(window_opened=codec.window_opened_to_proto(event))
        case Commit():
            response = pb.VerifyResponse()
            codec.commit_to_proto(event, response.commit)
            return response
        case _:
            return event


def event_of(response: pb.VerifyResponse | pb.SharedEvent) -> WindowOpened | Commit | None:
    """Return the engine's event in a response; ``None`` if it holds none."""
    match response.WhichOneof("message"):
        case "window_opened":
            return codec.window_opened_from_proto(response.window_opened)
        case "commit":
            return codec.commit_from_proto(response.commit)
        case _:
            return None
