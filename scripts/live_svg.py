"""Draw docs/figures/live.svg: what `specwhisper listen` shows at some moments of a bundled sample.

python scripts/live_svg.py --server 127.0.0.1:50051 docs/figures/live.svg
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from time import monotonic
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from specwhisper.types import VoiceEvent
from specwhisper_client import sources
from specwhisper_client.cli.listening import complete_line, open_line
from specwhisper_client.live_transcription import LiveTranscription
from specwhisper_client.streaming import StreamingClient
from specwhisper_client.utterances import Utterances

SAMPLE = Path(__file__).parents[1] / "specwhisper" / "demo" / "samples" / "01_phone_call.flac"
EVERY_S = 0.4
FROM_S, TO_S = 8.0, 12.0  # of the sample
WIDTH = 106


async def draw(server: str, output: Path) -> None:
    """Listen to the sample in real time, and write down what is shown now and then."""
    console = Console(record=True, width=WIDTH, force_terminal=True, file=Path("/dev/null").open("w"))
    console.print(Text("$ specwhisper listen --simulate 01_phone_call.flac", "bold green"))
    utterances, is_speech, begin_s, last_s, started_s = Utterances(), False, None, 0.0, monotonic()
    async with StreamingClient(server) as stream:
        async for update in LiveTranscription(stream, sources.file(SAMPLE, is_paced=True)):
            at_s = monotonic() - started_s
            if update.speech is not None:
                is_speech = update.speech is VoiceEvent.BEGIN
                begin_s = update.speech_at_s if is_speech else begin_s
            for utterance in utterances.add(update.segments):
                console.print(complete_line(utterance))
            final = "".join(piece.text for piece in utterances.pieces)
            is_due = at_s - last_s > (EVERY_S if update.tentative_text.strip() else 2 * EVERY_S)
            if FROM_S < at_s < TO_S and is_due and (final + update.text):
                last_s = at_s
                moment = Text(f"{at_s:5.2f} s ", "magenta")
                console.print(Text.assemble(moment, open_line(final, update, begin_s, is_speech=is_speech)))
    console.save_svg(str(output), title="specwhisper listen")


def main(
    output: Annotated[Path, typer.Argument(dir_okay=False)], server: Annotated[str, typer.Option()]
) -> None:
    """Draw it."""
    asyncio.run(draw(server, output))


if __name__ == "__main__":
    typer.run(main)
