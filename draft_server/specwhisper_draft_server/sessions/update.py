"""One change of a session's transcript, as its caller reports it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from specwhisper.types import Segment, VoiceMark


@dataclass(frozen=True, slots=True)
class SessionUpdate:
    """The news since the last update.

    Text that is not final is read from the session's ``builder``.

    Attributes
    ----------
    segments : text that has become final.
    speech_events : utterances of live audio that begin or end.
    """

    segments: Sequence[Segment] = ()
    speech_events: Sequence[VoiceMark] = ()

    def __bool__(self) -> bool:
        """Return whether it has news that must be reported."""
        return bool(self.segments or self.speech_events)
