"""What a session has to tell and its peer has not taken yet."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from specwhisper.errors import SlowReader
from specwhisper.types import Commit, Failed, Finished, FromTarget, WindowOpened
from specwhisper.wire import codec
from specwhisper.wire.v1 import verification_pb2 as pb

MAX_UNREAD = 64  # answers; whoever has not read more than so many is not listened to either
MAX_UNREAD_BYTES = 1024 * 1024

Answer = pb.VerifyResponse | Finished | Failed


class Answers(asyncio.Queue[Answer]):
    """A queue of responses that its reader must not let grow.

    Parameters
    ----------
    overflow : told once when more bytes wait than may; what waits is dropped, and so is what follows.
    """

    def __init__(self, overflow: Callable[[SlowReader], None], max_bytes: int = MAX_UNREAD_BYTES) -> None:
        self._overflow = overflow
        self._max_bytes = max_bytes
        self._num_bytes = 0
        self._is_over = False
        super().__init__()

    def _init(self, maxsize: int) -> None:
        self._queue: deque[Answer] = deque()

    @property
    def are_many(self) -> bool:
        """Whether so many wait that the peer should read before it asks for more."""
        return self.qsize() > MAX_UNREAD

    def put_nowait(self, event: FromTarget | pb.VerifyResponse) -> None:
        """Queue what the engine says, or a response that is ready as it is."""
        if self._is_over:
            return
        try:
            answer = _answer(event)
        except Exception as error:  # others wait in the same call of the event loop
            answer = Failed(error)
        self._num_bytes += _size(answer)
        if self._num_bytes <= self._max_bytes:
            super().put_nowait(answer)
            return
        self._is_over = True
        self._queue.clear()
        self._overflow(
            SlowReader(f"More than {self._max_bytes} bytes of answers were not read: the call has ended.")
        )

    def _get(self) -> Answer:
        answer = self._queue.popleft()
        self._num_bytes -= _size(answer)
        return answer


def _size(answer: Answer) -> int:
    return answer.ByteSize() if isinstance(answer, pb.VerifyResponse) else 0


def _answer(event: FromTarget | pb.VerifyResponse) -> Answer:
    match event:
        case WindowOpened():
            return pb.VerifyResponse(window_opened=codec.window_opened_to_proto(event))
        case Commit():
            return pb.VerifyResponse(commit=codec.commit_to_proto(event))
        case _:
            return event


def event_of(answer: pb.VerifyResponse) -> WindowOpened | Commit | None:
    """Give what the engine said, of which an answer was made."""
    match answer.WhichOneof("message"):
        case "window_opened":
            return codec.window_opened_from_proto(answer.window_opened)
        case "commit":
            return codec.commit_from_proto(answer.commit)
        case _:
            return None
