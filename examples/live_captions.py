"""Live captions in a terminal: final words bold, stable words plain, tentative words dim.

Needs a draft server (`make demo-web` starts one, and prints its address). Without a recording it listens to
the microphone, which needs the extra `microphone`.

    python examples/live_captions.py speech.flac --server 127.0.0.1:50051
"""

from __future__ import annotations

import argparse
import asyncio
from contextlib import nullcontext

from rich.console import Console
from rich.text import Text

from specwhisper_client import LiveTranscription, StreamingClient, microphone
from specwhisper_client.cli.display import OpenText
from specwhisper_client.live_transcription import whole_utterances
from specwhisper_client.sources import file


async def main(recording: str | None, server: str, language: str | None) -> None:
    """Caption a recording at the speed of speech, or the microphone until Ctrl-C."""
    source = nullcontext(file(recording, is_paced=True)) if recording else microphone()
    async with StreamingClient(server, language=language) as stream, source as audio:
        with OpenText(Console()) as captions:
            async for update in whole_utterances(LiveTranscription(stream, audio)):
                complete = [Text(utterance.text.strip(), "bold") for utterance in update.segments]
                shown = Text(update.text.lstrip())
                shown.stylize("dim", len(shown) - len(update.tentative_text.lstrip()))
                captions.draw(complete, shown)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Show live captions in a terminal.")
    parser.add_argument("recording", nargs="?", help="A recording. Default: the microphone.")
    parser.add_argument("--server", default="127.0.0.1:50051", help="Address of the draft server.")
    parser.add_argument("--language", help="Code of the language. Default: detected per utterance.")
    arguments = parser.parse_args()
    asyncio.run(main(arguments.recording, arguments.server, arguments.language))
