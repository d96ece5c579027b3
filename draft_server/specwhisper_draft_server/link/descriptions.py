"""Descriptions of targets, for sessions that are about to open."""

from __future__ import annotations

from specwhisper.errors import GONE, ServerDraining, TargetUnavailable
from specwhisper.rpc.failover import Failover
from specwhisper.transcription.transcriber import TargetDescription, Transcriber
from specwhisper.wire.status import was_there
from specwhisper_draft_server.link.needs import ANY, Needs


class Descriptions:
    """Asks targets for their descriptions, and keeps the newest one.

    Parameters
    ----------
    retry_timeout_s : how long to ask again after a target was lost while it was asked, in seconds.
    """

    def __init__(self, transcriber: Transcriber, retry_timeout_s: float) -> None:
        self._transcriber = transcriber
        self._retry_timeout_s = retry_timeout_s
        self._last: TargetDescription | None = None

    async def ask(self, needs: Needs = ANY) -> TargetDescription:
        """Ask a target now."""
        self._last = await self._transcriber.describe(
            vocabulary_digest=needs.vocabulary_digest,
            weights_digest=needs.weights_digest,
            unusable=needs.unusable,
        )
        return self._last

    async def for_session(self, needs: Needs) -> TargetDescription:
        """Return a target on which a session may open.

        After one was lost, targets are asked again for a while.
        """
        if (known := self._known(needs)) is not None:
            return known
        failover = Failover(self._retry_timeout_s)
        while True:
            try:
                return await self.ask(needs)
            except GONE as error:
                if not was_there(error):
                    raise
                await failover.wait(error)

    async def in_outages(
        self, needs: Needs
    ) -> tuple[TargetDescription, TargetUnavailable | ServerDraining | None]:
        """Return a target as :meth:`for_session` does, also during an outage.

        Then it is the last one, with the error.
        """
        last = self._last
        if last is None or not needs.are_met_by(last):
            return await self.for_session(needs), None
        if (known := self._known(needs)) is not None:
            return known, None
        try:
            return await self.ask(needs), None
        except GONE as error:
            return last, error

    def _known(self, needs: Needs) -> TargetDescription | None:
        return self._transcriber.known(
            vocabulary_digest=needs.vocabulary_digest,
            weights_digest=needs.weights_digest,
            unusable=needs.unusable,
        )
