"""The interface of a target: audio and candidates in, windows and commits out.

It has two implementations: ``specwhisper_draft_server.whisper.LocalTranscriber``, in this process,
and ``specwhisper_draft_server.link.link.TargetLink``, over gRPC. A session has one stream after another
(``specwhisper_draft_server.link.resuming.ResumingTargetStream``).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

from specwhisper.errors import PairMismatch
from specwhisper.live import LivePosition
from specwhisper.options import DecodingOptions
from specwhisper.transcription.vocabulary import Vocabulary
from specwhisper.types import (
    AudioChunk,
    Candidates,
    Commit,
    ConfirmEvery,
    Limits,
    Mode,
    Resume,
    TimedHint,
    WindowOpened,
)


@dataclass(frozen=True)
class TargetDescription:
    """The facts of a target that a draft needs."""

    model: str
    weights_digest: str
    vocabulary: Vocabulary
    num_mel_bins: int
    limits: Limits


@dataclass(frozen=True, slots=True)
class Requirements:
    """Requirements of a session for its target; by default none.

    Attributes
    ----------
    vocabulary_digest : vocabulary of the session's draft; empty for any.
    weights_digest : weights that wrote the session's text so far; empty for any.
    """

    vocabulary_digest: str = ""
    weights_digest: str = ""

    @classmethod
    def of(cls, target: TargetDescription, *, same_weights: bool) -> Requirements:
        """Return the requirements of a session that was set up for a target."""
        return cls(target.vocabulary.digest, target.weights_digest if same_weights else "")

    def are_met_by(self, target: TargetDescription) -> bool:
        return self.vocabulary_digest in ("", target.vocabulary.digest) and self.weights_digest in (
            "",
            target.weights_digest,
        )

    def check(self, address: str, target: TargetDescription) -> None:
        """Raise :class:`PairMismatch` unless a target meets them."""
        if self.vocabulary_digest not in ("", target.vocabulary.digest):
            raise PairMismatch(
                f"Target {address} ('{target.model}') has another vocabulary than the one the draft was set "
                "up for: restart the draft server, or connect it to the target it was set up for."
            )
        if self.weights_digest not in ("", target.weights_digest):
            raise PairMismatch(
                f"Target {address} ('{target.model}') has other weights than those the session began on: "
                "keep a target with those until their sessions have ended."
            )


ANY = Requirements()


Message = Resume | LivePosition | Candidates | TimedHint | ConfirmEvery


class TargetStream(Protocol):
    """A session on one target: audio and candidates in, windows and commits out.

    Attributes
    ----------
    target, limits : the target's description, and this session's limits.
    going_away : set once the target has announced that it is stopping.
    """

    address: str
    target: TargetDescription
    limits: Limits
    going_away: asyncio.Event

    @property
    def min_round_trip_ns(self) -> int:
        """Smallest round trip measured so far; 0 if there is none."""

    @property
    def piece_bytes(self) -> int:
        """The most audio in a message now."""

    def send(self, message: Message) -> None:
        """Send a message, which overtakes audio.

        Where to continue is sent before anything else; without it the session begins at the start.
        """

    async def send_audio(self, chunk: AudioChunk) -> None:
        """Send audio, and wait until the stream accepts more (back-pressure)."""

    def events(self) -> AsyncIterator[WindowOpened | Commit]:
        """Yield the target's events to the end of the transcript; raise its errors."""

    def leave(self) -> None:
        """End the stream as if the target were lost: another one has taken the session."""


class Transcriber(Protocol):
    """A target, wherever it runs; ``address`` names it in messages."""

    address: str

    def known(
        self, requirements: Requirements = ANY, *, in_outages: bool = False
    ) -> TargetDescription | None:
        """Return a cached description; ``None`` if a target has to be asked.

        ``in_outages``: whether the last one will do, whose target may be lost.
        """

    async def describe(self, requirements: Requirements = ANY) -> TargetDescription:
        """Return the description of a target that meets the requirements."""

    def open(
        self,
        session_id: str,
        target: TargetDescription,
        mode: Mode,
        options: DecodingOptions,
        *,
        draft_model: str,
        same_weights: bool = False,
        avoid: str = "",
        within_s: float | None = None,
    ) -> AbstractAsyncContextManager[TargetStream]:
        """Open a session on one target; from then on it has a slot.

        Parameters
        ----------
        target : the session opens on a target with the same vocabulary.
        same_weights : whether it must have the same weights, too, because some of its text is known already.
        avoid : address of a target that takes the session only if no other one does.
        within_s : longest time of its answers; ``avoid`` will not do then.
        """

    async def check_room(self, target: TargetDescription) -> None:
        """Raise :class:`SpecWhisperError` unless a target of these weights has room for another session."""

    async def check_health(self) -> None:
        """Check the engine of this process; a target elsewhere reports its own health."""

    async def close(self) -> None:
        """Close the connections or the engine; open sessions fail."""
