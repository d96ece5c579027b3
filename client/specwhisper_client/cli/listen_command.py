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
from specwhisper_client.cli.arguments import Gamma, Quiet, Server, parse_mode
from specwhisper_client.cli.jobs import report
from specwhisper_client.cli.listening import Listening
from specwhisper_client.cli.listening import listen as run
from specwhisper_client.streaming import LIVE_DECODING


def listen(
    context: typer.Context,
    server: Server = DEFAULT_SERVER,
    simulate: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Recording to send in real time instead of the microphone."),
    ] = None,
    device: Annotated[
        str | None,
        typer.Option(metavar="DEVICE", help="Microphone: number or part of its name. Default: the system's."),
    ] = None,
    language: Annotated[
        str | None,
        typer.Option(
            metavar="LANGUAGE", help="Code or name of the language. Default: detected per utterance."
        ),
    ] = None,
    task: Annotated[Task, typer.Option(metavar="TASK", help="transcribe, or translate into English.")] = (
        Task.TRANSCRIBE
    ),
    hotwords: Annotated[str, typer.Option(metavar="TEXT", help="Words in the prompt of every window.")] = "",
    initial_prompt: Annotated[str, typer.Option(metavar="TEXT", help="Prompt of every utterance.")] = "",
    step_ms: Annotated[
        int, typer.Option(metavar="MS", help="Milliseconds of speech between two decodings.")
    ] = LiveOptions().step_ms,
    policy: Annotated[
        StabilityPolicy,
        typer.Option(
            metavar="POLICY",
            help="Rule by which words become final. local-agreement: two decodings agree; align-att: the "
            "model no longer attends to the end of the audio for them.",
        ),
    ] = StabilityPolicy.LOCAL_AGREEMENT,
    threshold: Annotated[
        float, typer.Option(metavar="P", help="Probability above which audio is speech.")
    ] = EndpointingOptions().threshold,
    silence_duration_ms: Annotated[
        int, typer.Option(metavar="MS", help="Milliseconds of silence that end an utterance.")
    ] = EndpointingOptions().silence_duration_ms,
    mode: Annotated[
        Mode | None,
        typer.Option(
            parser=parse_mode, metavar="MODE", help="Mode of draft and target. Default: the server's."
        ),
    ] = None,
    gamma: Gamma = None,
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
            help="Unverified text of the draft while the target cannot be reached; it is verified later.",
        ),
    ] = False,
    quiet: Quiet = False,
) -> None:
    """Transcribe the microphone, live.

    On a terminal final words are bold, verified ones plain, drafted ones dim. Elsewhere standard output gets
    each utterance once it is complete. Ctrl-C ends the audio; the text until then becomes final.
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
