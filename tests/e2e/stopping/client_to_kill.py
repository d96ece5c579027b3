"""Send live audio and stay: ``python -m tests.e2e.stopping.client_to_kill ADDRESS``."""

import asyncio
import logging
import sys

from specwhisper.observe.logs import LogFormat, configure_logging
from specwhisper.rpc.channels import open_channel
from specwhisper.wire.v1.transcription_pb2_grpc import TranscriptionStub
from tests.rpc.services import audio_requests, finals, recording, streaming_config


async def main(address: str) -> None:
    async with open_channel(address) as channel:
        call = TranscriptionStub(channel).StreamingRecognize()
        for request in (streaming_config(interim=True), *audio_requests(recording(35.0))):
            await call.write(request)
        while not finals([await call.read()]):
            pass
        logging.getLogger(__name__).info("ready", extra={"address": address})
        await asyncio.Event().wait()


if __name__ == "__main__":
    configure_logging(LogFormat.JSON)
    asyncio.run(main(sys.argv[1]))
