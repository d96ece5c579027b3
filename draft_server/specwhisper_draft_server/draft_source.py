"""Protocols that a server's draft implements: a Whisper model, or an engine of another kind.

An engine of another kind is loaded by an entry point of the group ``specwhisper.drafts``: a function that
takes :class:`.DraftConfig`, and returns a :data:`LoadDraft`, or ``None`` if the settings name no such engine.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Protocol

from specwhisper.engine.draft_session import Drafted
from specwhisper.engine.watchdog import Watchdog
from specwhisper.options import DecodingOptions
from specwhisper.speculation.draft_length import DraftLength
from specwhisper.speculation.statistics import DraftReport
from specwhisper.types import AudioChunk, Commit, Mode, WindowOpened
from specwhisper_draft_server.transcriber import TargetDescription

if TYPE_CHECKING:
    from specwhisper_draft_server.drafting import Placement  # loads a runtime, which other drafts don't need


class DraftNotPlaced(Exception):
    """The draft model could not be placed; the server tries again."""


class SessionDraft(Protocol):
    """The draft of one session, which may fail without ending the session."""

    has_failed: bool

    def send(self, message: AudioChunk | WindowOpened | Commit) -> None: ...

    async def last_report(self) -> DraftReport:
        """Return the figures since the last block."""


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
    def watchdog(self) -> Watchdog: ...

    @property
    def placement(self) -> Placement | None:
        """Decides for which targets it drafts; ``None`` if for all."""

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
