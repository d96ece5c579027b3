"""Run a scripted server whose device fails in a forward pass.

``python -m tests.e2e.stopping.faulty_server 40`` is a target; with an address, a draft server of that target.
"""

import asyncio
import logging
import sys

from experiments.common.models.scripted import ScriptedModel
from specwhisper.observe.logs import LogFormat, configure_logging
from tests.rpc.services import MAX_SESSIONS, draft_server, target_server


class Faulty(ScriptedModel):
    """A model that fails after ``NUM_GOOD_FORWARDS`` forward passes."""

    def score(self, rows):
        if self.num_forwards == NUM_GOOD_FORWARDS:
            raise RuntimeError("CUDA error: device-side assert triggered")
        return super().score(rows)


async def main(targets: list[str]) -> None:
    model = Faulty(MAX_SESSIONS)
    async with draft_server(targets[0], model) if targets else target_server(model) as server:
        logging.getLogger(__name__).info("ready", extra={"address": server.address})
        await asyncio.Event().wait()


if __name__ == "__main__":
    NUM_GOOD_FORWARDS = int(sys.argv[1])
    configure_logging(LogFormat.JSON)
    asyncio.run(main(sys.argv[2:]))
