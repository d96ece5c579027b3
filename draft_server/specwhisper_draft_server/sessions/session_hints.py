"""Hints of a session: of its client, or else of the recogniser that drafts."""

from __future__ import annotations

from specwhisper.types import TimedHint
from specwhisper_draft_server.link.paced_hints import PacedHints


class SessionHints(PacedHints):
    """The client's texts; a recogniser's, as long as the client has sent none.

    Each text replaces all text from its time on. One recognised word would replace the captions that a client
    has sent ahead.
    """

    def __init__(self) -> None:
        super().__init__()
        self._has_clients = False

    def put(self, hint: TimedHint) -> None:
        """Add a text of the client."""
        self._has_clients = True
        super().put(hint)

    def put_recognised(self, hint: TimedHint) -> None:
        """Add a text of the recogniser, unless the client has sent one."""
        if not self._has_clients:
            super().put(hint)
