"""Protocols that a server's draft implements: a Whisper model, or an engine of another kind.

An engine of another kind is loaded by an entry point of the group ``specwhisper.drafts``: a function that
takes :class:`.DraftConfig`, and returns a :data:`LoadDraft`, or ``None`` if the settings name no such engine.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from specwhisper.engine.draft_session import Drafted
from specwhisper.engine.watchdog import Watchdog
from specwhisper.options import DecodingOptions
from specwhisper.speculation.draft_length import DraftLength
from specwhisper.speculation.statistics import DraftReport
from specwhisper.types import AudioChunk, Commit, Mode, WindowOpened
from specwhisper_draft_server.transcriber import Requirements, TargetDescription


class SessionDraft(Protocol):
    """The draft of one session, which may fail without ending the session."""

    has_failed: bool

    def send(self, message: AudioChunk | WindowOpened | Commit) -> None: ...

    async def last_report(self) -> DraftReport:
        """Return the figures since the last block."""


class Pairing(Protocol):
    """Decides which targets a draft serves; see :class:`Placement`."""

    def choose(self, target: TargetDescription) -> bool: ...

    async def done_for(self, target: TargetDescription) -> None: ...

    def requirements(self, weights_digest: str = "") -> Requirements:
        """Return what a session with drafts requires of a target."""

    def why_not(self, target: TargetDescription) -> str: ...


class DraftSource(Protocol):
    """Drafts for all sessions of a server.

    Attributes
    ----------
    name : the model's, in messages and metrics.
    """

    name: str

    @property
    def num_mel_bins(self) -> int | None:
        """Mel bins of its features; ``None`` if it does not take Whisper's."""

    @property
    def num_free_slots(self) -> int | None: ...

    @property
    def watchdog(self) -> Watchdog: ...

    @property
    def placement(self) -> Pairing: ...

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

    async def stop(self) -> None: ...


# Loads a draft. Its argument is a function to call whenever a session's draft fails.
LoadDraft = Callable[[Callable[[], None]], DraftSource]
