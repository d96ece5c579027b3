"""``specwhisper listen``: its options."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from specwhisper.errors import SpecWhisperError
from specwhisper.live import EndpointingOptions, LiveOptions, StabilityPolicy
from specwhisper.options import Task
from specwhisper.types import Mode
from specwhisper_client.api import DEFAULT_SERVER
from specwhisper_client.cli.arguments import Server, parse_mode
from specwhisper_client.cli.jobs import report
from specwhisper_client.cli.listening import Listening
from specwhisper_client.cli.listening import listen as run
from specwhisper_client.streaming import LIVE_DECODING


def listen(
    context: typer.Context,
    server: Server = DEFAULT_SERVER,
    simulate: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="A recording instead of the microphone, in real time."),
    ] = None,
    device: Annotated[
        str | None,
        typer.Option(metavar="DEVICE", help="Microphone: its number or part of its name; else the system's."),
    ] = None,
    language: Annotated[
        str | None, typer.Option(metavar="LANGUAGE", help="Code or name; else detected for each utterance.")
    ] = None,
    task: Annotated[Task, typer.Option(metavar="TASK", help="transcribe, or translate into English.")] = (
        Task.TRANSCRIBE
    ),
    hotwords: Annotated[str, typer.Option(metavar="TEXT", help="Words to prompt every window.")] = "",
    initial_prompt: Annotated[str, typer.Option(metavar="TEXT", help="Text before every utterance.")] = "",
    step_ms: Annotated[
        int, typer.Option(metavar="MS", help="Speech between two decodings.")
    ] = LiveOptions().step_ms,
    policy: Annotated[
        StabilityPolicy,
        typer.Option(
            metavar="POLICY",
            help="local-agreement: words are final once two decodings agree; align-att: once the model looks "
            "away from the end for them.",
        ),
    ] = StabilityPolicy.LOCAL_AGREEMENT,
    threshold: Annotated[
        float, typer.Option(metavar="P", help="Probability above which somebody speaks.")
    ] = EndpointingOptions().threshold,
    silence_duration_ms: Annotated[
        int, typer.Option(metavar="MS", help="Silence after which an utterance has ended.")
    ] = EndpointingOptions().silence_duration_ms,
    mode: Annotated[
        Mode | None, typer.Option(parser=parse_mode, metavar="MODE", help="By default as the server is set.")
    ] = None,
    gamma: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Draft tokens per block; likewise.")
    ] = None,
    added_latency_ms: Annotated[
        int,
        typer.Option(
            min=0,
            metavar="MS",
            help="Latency injected into the round trip to the target, if the server allows it.",
        ),
    ] = 0,
    continue_unverified: Annotated[
        bool,
        typer.Option(
            "--continue-unverified",
            help="While the target cannot be reached, show the draft's own text; it is verified later.",
        ),
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print the text and nothing else.")] = False,
) -> None:
    """Transcribe what is said into the microphone, live.

    On a terminal final words stand bold, verified ones plain, drafted ones dim. Elsewhere standard output
    gets each utterance once it is complete. Ctrl-C ends the audio; what was said by then becomes final.
    """
    errors = Console(stderr=True)
    try:
        wanted = Listening(
            server,
            replace(
                LIVE_DECODING, language=language, task=task, hotwords=hotwords, initial_prompt=initial_prompt
            ),
            LiveOptions(step_ms=step_ms, policy=policy),
            EndpointingOptions(threshold=threshold, silence_duration_ms=silence_duration_ms),
            mode,
            gamma,
            added_latency_ms,
            continue_unverified,
            simulate,
            device,
            quiet,
            context.obj,
        )
    except SpecWhisperError as error:
        report(error, errors)
        raise typer.Exit(1) from None
    if not asyncio.run(run(wanted, Console(), errors)):
        raise typer.Exit(1)
