"""The interface between drafting and transcribing: audio and candidates in, windows and commits out.

It has two implementations: :class:`specwhisper.engine.local.LocalTranscriber`, in this process, and
``specwhisper_draft_server.link.link.TargetLink``, over gRPC.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

from specwhisper.options import DecodingOptions
from specwhisper.transcription.vocabulary import Vocabulary
from specwhisper.types import AudioChunk, Candidates, Commit, Limits, Mode, Resume, WindowOpened


@dataclass(frozen=True)
class TargetDescription:
    """What a draft must know of its target."""

    model: str
    weights_digest: str
    vocabulary: Vocabulary
    num_mel_bins: int
    limits: Limits


class TargetStream(Protocol):
    """One transcription: send audio and candidates, iterate over windows and commits."""

    @property
    def target(self) -> TargetDescription:
        """What runs it."""

    @property
    def limits(self) -> Limits:
        """What this session may send."""

    @property
    def min_round_trip_ns(self) -> int:
        """Smallest round trip measured so far; 0 before the first, or where there is none."""

    def propose(self, block: Candidates) -> None:
        """Send candidates; they overtake audio."""

    async def send_audio(self, chunk: AudioChunk) -> None:
        """Send audio and wait until it is taken: the brake for whoever reads a recording."""

    def events(self) -> AsyncIterator[WindowOpened | Commit]:
        """Give what the target says, until the transcript is whole; what goes wrong there is raised here."""


class Transcriber(Protocol):
    """A target, wherever it runs; ``address`` names it in messages."""

    address: str

    def known(
        self, *, vocabulary_digest: str = "", weights_digest: str = "", unusable: Mapping[str, str] = {}
    ) -> TargetDescription | None:
        """Return what a target is that has these, where that is known; ``None`` where one has to be asked."""

    async def describe(
        self, *, vocabulary_digest: str = "", weights_digest: str = "", unusable: Mapping[str, str] = {}
    ) -> TargetDescription:
        """Return what a target is; where there are several, one that a session can use.

        Parameters
        ----------
        vocabulary_digest, weights_digest : that it must have; empty for any.
        unusable : digests of vocabularies that it must not have, and why.
        """

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
        resume: Resume | None = None,
    ) -> AbstractAsyncContextManager[TargetStream]:
        """Open a session; of a recording, from its beginning or in a window.

        Parameters
        ----------
        target : its vocabulary is that of the target that the session opens on.
        same_weights : whether its weights are, too: text of them is known already.
        avoid : address of a target that takes it only where no other does.
        """

    async def find_room(
        self, target: TargetDescription | None = None, *, same_weights: bool = False, avoid: str = ""
    ) -> Transcriber:
        """Return what opens one session where there is room for it now; else raise what opening one would.

        ``None`` for ``target`` asks for room at any.
        """

    async def check_health(self) -> None:
        """Return once what runs in this process has answered; a target elsewhere reports its own health."""

    async def close(self) -> None:
        """End it; open sessions fail."""
