"""Protocols of a draft on a server: a Whisper model, or one of another kind."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from specwhisper.engine.draft_session import Drafted
from specwhisper.engine.watchdog import Watchdog
from specwhisper.options import DecodingOptions
from specwhisper.speculation.draft_length import DraftLength
from specwhisper.speculation.statistics import DraftReport
from specwhisper.transcription.transcriber import Requirements, TargetDescription
from specwhisper.types import AudioChunk, Commit, Mode, WindowOpened


class SessionDraft(Protocol):
    """The draft of one session, which may fail without ending the session."""

    has_failed: bool

    def send(self, message: AudioChunk | WindowOpened | Commit) -> None:
        """Send audio, or an event of the target."""

    async def last_report(self) -> DraftReport:
        """Return the figures since the last block."""


class Pairing(Protocol):
    """Which targets it drafts for; see :class:`Placement`."""

    def choose(self, target: TargetDescription) -> bool:
        """Return whether it uses a target's vocabulary."""

    async def done_for(self, target: TargetDescription) -> None:
        """Wait until it can draft for a target."""

    def requirements(self, weights_digest: str = "") -> Requirements:
        """Return what a session with drafts requires of a target."""

    def why_not(self, target: TargetDescription) -> str:
        """Return why it cannot be used with a target."""


class DraftSource(Protocol):
    """Drafts for all sessions of a server.

    Attributes
    ----------
    name : of its model, in messages and metrics.
    """

    name: str

    @property
    def num_mel_bins(self) -> int | None:
        """Mel bins of its features; ``None`` if it does not take Whisper's."""

    @property
    def num_free_slots(self) -> int | None:
        """Sessions that can still be opened; ``None`` if unlimited or unknown."""

    @property
    def watchdog(self) -> Watchdog:
        """The watchdog of its time limit."""

    @property
    def placement(self) -> Pairing:
        """Which targets it drafts for."""

    def check_mode(self, mode: Mode) -> None:
        """Raise :class:`UnsupportedOption` for a mode that it cannot draft in."""

    def session(
        self,
        session_id: str,
        target: TargetDescription,
        length: DraftLength,
        options: DecodingOptions,
        *,
        receive: Callable[[Drafted], None],
    ) -> AbstractAsyncContextManager[SessionDraft]:
        """Open a session; ``receive`` is called with its output, in the event loop."""

    async def stop(self) -> None:
        """End its threads."""


# Loads a draft; what it is called with is to be called when a session's draft fails.
LoadDraft = Callable[[Callable[[], None]], DraftSource]
