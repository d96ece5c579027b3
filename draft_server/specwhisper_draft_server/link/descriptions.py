"""Descriptions of targets, for sessions that are about to open."""

from __future__ import annotations

from specwhisper.errors import GONE, ServerDraining, TargetUnavailable
from specwhisper.rpc.failover import Failover
from specwhisper.transcription.transcriber import ANY, Requirements, TargetDescription, Transcriber
from specwhisper.wire.status import was_there


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

    async def ask(self, requirements: Requirements = ANY) -> TargetDescription:
        """Ask a target now."""
        self._last = await self._transcriber.describe(requirements)
        return self._last

    async def for_session(self, requirements: Requirements) -> TargetDescription:
        """Return a target on which a session may open.

        After one was lost, targets are asked again for a while.
        """
        if (known := self._known(requirements)) is not None:
            return known
        failover = Failover(self._retry_timeout_s)
        while True:
            try:
                return await self.ask(requirements)
            except GONE as error:
                if not was_there(error):
                    raise
                await failover.wait(error)

    async def in_outages(
        self, requirements: Requirements
    ) -> tuple[TargetDescription, TargetUnavailable | ServerDraining | None]:
        """Return a target as :meth:`for_session` does, also during an outage.

        Then it is the last one, with the error.
        """
        last = self._last
        if last is None or not requirements.are_met_by(last):
            return await self.for_session(requirements), None
        if (known := self._known(requirements)) is not None:
            return known, None
        try:
            return await self.ask(requirements), None
        except GONE as error:
            return last, error

    def _known(self, requirements: Requirements) -> TargetDescription | None:
        return self._transcriber.known(requirements)
