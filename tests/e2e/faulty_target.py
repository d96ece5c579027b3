"""A scripted target as a process, whose device fails in a pass: ``python -m tests.e2e.faulty_target 40``."""

import asyncio
import logging
import sys

from experiments.common.scripted import ScriptedModel
from specwhisper.wire.logs import LogFormat, configure_logging
from tests.rpc.services import MAX_SESSIONS, target_server


class Faulty(ScriptedModel):
    """Works for some passes."""

    def score(self, rows):
        if self.num_passes == GOOD_PASSES:
            raise RuntimeError("CUDA error: device-side assert triggered")
        return super().score(rows)


async def main() -> None:
    async with target_server(Faulty(MAX_SESSIONS)) as target:
        logging.getLogger(__name__).info("ready", extra={"address": target.address})
        await asyncio.Event().wait()


if __name__ == "__main__":
    GOOD_PASSES = int(sys.argv[1])
    configure_logging(LogFormat.JSON)
    asyncio.run(main())
