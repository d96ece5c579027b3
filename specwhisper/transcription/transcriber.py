"""The interface between drafting and transcribing: audio and candidates in, windows and commits out.

It has two implementations: :class:`specwhisper.whisper.local.LocalTranscriber`, in this process, and
``draft_server.link.TargetLink``, over gRPC.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
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


class TranscriberSession(Protocol):
    """One transcription: send audio and candidates, iterate over windows and commits."""

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

    async def describe(self) -> TargetDescription:
        """Tell what it is."""

    def open(
        self,
        session_id: str,
        target: TargetDescription,
        mode: Mode,
        options: DecodingOptions,
        *,
        draft_model: str,
        resume: Resume | None = None,
    ) -> AbstractAsyncContextManager[TranscriberSession]:
        """Open a session on a target that is what ``target`` says; of a recording, anew or in a window."""

    async def find_room(self, avoid: str = "") -> Transcriber:
        """Give what opens one session where there is room for it now; else raise what opening one would.

        It is at the address to ``avoid`` only where there is room nowhere else.
        """

    async def check_health(self) -> None:
        """Return once what runs in this process has answered; a target elsewhere reports its own health."""

    async def close(self) -> None:
        """End it; open sessions fail."""
