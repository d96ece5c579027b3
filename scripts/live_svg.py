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

from specwhisper_client import sources
from specwhisper_client.cli.listening import LiveUtterances
from specwhisper_client.live_transcription import LiveTranscription
from specwhisper_client.streaming import StreamingClient

SAMPLE = Path(__file__).parents[1] / "specwhisper" / "demo" / "samples" / "01_phone_call.flac"
EVERY_S = 0.4
FROM_S, TO_S = 8.0, 12.0  # of the sample
WIDTH = 106


async def draw(server: str, output: Path) -> None:
    """Listen to the sample in real time, and write down what is shown now and then."""
    console = Console(record=True, width=WIDTH, force_terminal=True, file=Path("/dev/null").open("w"))
    console.print(Text("$ specwhisper listen --simulate 01_phone_call.flac", "bold green"))
    utterances, last_s, started_s = LiveUtterances(console), 0.0, monotonic()
    async with StreamingClient(server) as stream:
        async for update in LiveTranscription(stream, sources.file(SAMPLE, is_paced=True)):
            at_s = monotonic() - started_s
            complete, line = utterances.lines(update)
            for utterance in complete:
                console.print(utterance)
            is_due = at_s - last_s > (EVERY_S if update.tentative_text.strip() else 2 * EVERY_S)
            if FROM_S < at_s < TO_S and is_due and update.text:
                last_s = at_s
                console.print(Text.assemble(Text(f"{at_s:5.2f} s ", "magenta"), line))
    console.save_svg(str(output), title="specwhisper listen")


def main(
    output: Annotated[Path, typer.Argument(dir_okay=False)], server: Annotated[str, typer.Option()]
) -> None:
    """Draw it."""
    asyncio.run(draw(server, output))


if __name__ == "__main__":
    typer.run(main)
