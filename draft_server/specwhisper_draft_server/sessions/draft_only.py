"""A way to a target that is not there: the draft's own text comes back, for as long as that lasts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from specwhisper.errors import TargetUnavailable
from specwhisper.options import DecodingOptions
from specwhisper.transcription.transcriber import TargetDescription
from specwhisper.transcription.unverified import BelievingTarget
from specwhisper.types import AudioChunk, Candidates, Commit, Finished, Limits, Mode, Resume, WindowOpened
from specwhisper_draft_server.sessions.unverified_text import Foretold


class DraftOnlyStream:
    """One session of a draft by itself; see :class:`TargetStream`."""

    min_round_trip_ns = 0

    def __init__(self, target: TargetDescription, believing: BelievingTarget, foretold: Foretold) -> None:
        self.target = target
        self.limits: Limits = target.limits
        self._believing = believing
        self._foretold = foretold
        self._events: asyncio.Queue[WindowOpened | Commit | Finished] = asyncio.Queue()

    def propose(self, block: Candidates) -> None:
        """Have candidates believed."""
        self._put(self._believing.offer(block))

    async def send_audio(self, chunk: AudioChunk) -> None:
        """Tell how far the audio reaches."""
        self._put(self._believing.hear(chunk))

    async def events(self) -> AsyncIterator[WindowOpened | Commit]:
        """Give what a target would say."""
        while not isinstance(event := await self._events.get(), Finished):
            yield event

    def _put(self, events: list[WindowOpened | Commit | Finished]) -> None:
        for event in events:
            self._foretold.observe(event)
            self._events.put_nowait(event)


class Alone:
    """A :class:`Transcriber` for sessions whose target is lost.

    Attributes
    ----------
    foretold : what was written of each window, for whoever verifies it.
    """

    address = "that is lost"

    def __init__(self) -> None:
        self.foretold = Foretold()

    def known(
        self, *, vocabulary_digest: str = "", weights_digest: str = "", unusable: Mapping[str, str] = {}
    ) -> TargetDescription | None:
        """Return nothing: it is asked."""
        return None

    async def describe(
        self, *, vocabulary_digest: str = "", weights_digest: str = "", unusable: Mapping[str, str] = {}
    ) -> TargetDescription:
        """Refuse: only the target itself could."""
        raise TargetUnavailable("A target that is lost describes nothing.")

    @asynccontextmanager
    async def open(
        self,
        session_id: str,
        target: TargetDescription,
        mode: Mode,
        options: DecodingOptions,
        *,
        draft_model: str,
        same_weights: bool = False,
        avoid: str = "",
        resume: Resume | None = None,
    ) -> AsyncIterator[DraftOnlyStream]:
        """Open a session of live audio, which nothing can refuse."""
        believing = BelievingTarget(
            target.vocabulary, options, target.limits, max_new_tokens=target.vocabulary.max_length
        )
        yield DraftOnlyStream(target, believing, self.foretold)

    async def find_room(
        self, target: TargetDescription | None = None, *, same_weights: bool = False, avoid: str = ""
    ) -> Alone:
        """Return itself: there is always room."""
        return self

    async def check_health(self) -> None:
        """Return: there is nothing to check."""

    async def close(self) -> None:
        """Do nothing: there is nothing to close."""
