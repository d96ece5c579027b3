"""The command line: ``specwhisper transcribe``, ``listen``, ``top``, ``models``, ``tune``, ``serve`` ..."""

from __future__ import annotations

import asyncio
import json as json_module
import sys
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from specwhisper.errors import InvalidRequest, SpecWhisperError, UnsupportedOption
from specwhisper.observe.tracing import configure_tracing
from specwhisper.options import (
    NO_BEAMS,
    Acceptance,
    CompressionRatio,
    DecodingOptions,
    Task,
    fallback_temperatures,
)
from specwhisper.rpc.channels import client_credentials
from specwhisper.settings.command_line import Version
from specwhisper.transcription.subtitles import Layout
from specwhisper.types import Mode
from specwhisper_client.api import DEFAULT_SERVER
from specwhisper_client.cli.arguments import MODES, TOKEN_VARIABLE, Server, parse_mode
from specwhisper_client.cli.health import show_health
from specwhisper_client.cli.jobs import Job, report, show_server, transcribe_files
from specwhisper_client.cli.listen_command import listen
from specwhisper_client.cli.local_draft import Pair
from specwhisper_client.cli.openai_flags import OpenAICommand
from specwhisper_client.cli.output import OutputFormat
from specwhisper_client.cli.tune import tune as run_tune
from specwhisper_client.top.command import top

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # rich cuts long option names off, which nobody can type then
    context_settings={"token_normalize_func": lambda name: name.replace("_", "-")},
)


def main() -> None:
    """Run the command line."""
    configure_tracing("specwhisper-client")
    try:
        app()
    except SpecWhisperError as error:
        report(error, Console(stderr=True))
        sys.exit(1)


def parse_formats(name: str) -> tuple[OutputFormat, ...]:
    """Read a format, or all of them."""
    if name == "all":
        return tuple(f for f in OutputFormat if f is not OutputFormat.VERBOSE_JSON)  # it would be a .json too
    if name in list(OutputFormat):
        return (OutputFormat(name),)
    raise typer.BadParameter(f"'{name}' is none of {', '.join(OutputFormat)}, all.")


@app.callback()
def specwhisper(
    context: typer.Context,
    use_ssl: Annotated[bool, typer.Option("--use-ssl", help="Encrypt the connection to the server.")] = False,
    ssl_root_cert: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Who must have signed the server's certificate, PEM; default: gRPC's own list.",
        ),
    ] = None,
    ssl_client_cert: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Certificate to show to the server, PEM.")
    ] = None,
    ssl_client_key: Annotated[Path | None, typer.Option(metavar="FILE", help="Its key, PEM.")] = None,
    ssl_server_name: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="What the server's certificate names, if not its address."),
    ] = None,
    token_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help=f"Token that the server asks for; else ${TOKEN_VARIABLE}."),
    ] = None,
    version: Version = False,
) -> None:
    """Transcribe speech with a small draft model near you and a large target model on a GPU.

    How the server is reached stands before the command: specwhisper --use-ssl transcribe FILE.
    """
    context.obj = client_credentials(
        use_ssl,
        ssl_root_cert,
        ssl_client_cert,
        ssl_client_key,
        ssl_server_name,
        token_file,
        variable=TOKEN_VARIABLE,
    )


@app.command(cls=OpenAICommand)
def transcribe(
    context: typer.Context,
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Recordings of any audio format.")],
    server: Server = DEFAULT_SERVER,
    language: Annotated[
        str | None,
        typer.Option(
            metavar="LANGUAGE", help="Code or name of the language; else the model's own, or detected."
        ),
    ] = None,
    task: Annotated[
        Task, typer.Option(metavar="TASK", help="transcribe writes what is said, translate writes English.")
    ] = Task.TRANSCRIBE,
    timestamps: Annotated[bool, typer.Option(help="Tell when each segment is said.")] = True,
    word_timestamps: Annotated[
        bool, typer.Option("--word-timestamps", help="Tell when each word is said.")
    ] = False,
    initial_prompt: Annotated[
        str,
        typer.Option(
            metavar="TEXT",
            help="Text before the first window; without --condition-on-previous-text, before every one.",
        ),
    ] = "",
    carry_initial_prompt: Annotated[
        bool,
        typer.Option("--carry-initial-prompt", help="Keep it before every window, with or without that."),
    ] = False,
    hotwords: Annotated[str, typer.Option(metavar="TEXT", help="Words to prompt every window.")] = "",
    condition_on_previous_text: Annotated[
        bool, typer.Option("--condition-on-previous-text", help="Prompt each window with the text before.")
    ] = False,
    temperature: Annotated[float, typer.Option(min=0, metavar="T", help="0 is greedy.")] = 0.0,
    temperature_increment_on_fallback: Annotated[
        float | None,
        typer.Option(min=0.01, metavar="T", help="Try a failed window this much hotter, up to 1."),
    ] = None,
    top_k: Annotated[int, typer.Option(min=0, metavar="N", help="Sample among so many tokens; 0: all.")] = 0,
    top_p: Annotated[float, typer.Option(metavar="P", help="Sample among the likeliest.")] = 1.0,
    seed: Annotated[int, typer.Option(min=0, metavar="N", help="The same seed gives the same text.")] = 0,
    compression_ratio_threshold: Annotated[
        float | None,
        typer.Option(metavar="X", help="A window that compresses better failed; OpenAI's is 2.4."),
    ] = None,
    compression_ratio_of: Annotated[
        CompressionRatio,
        typer.Option(metavar="text|tokens", help="Of the text as OpenAI, or of the tokens as transformers."),
    ] = CompressionRatio.TEXT,
    logprob_threshold: Annotated[
        float | None,
        typer.Option(metavar="X", help="A window of lower mean log-probability failed; OpenAI's is -1."),
    ] = None,
    no_speech_threshold: Annotated[
        float | None,
        typer.Option(
            metavar="P",
            help="Skip what is silent with more than this probability, unless --logprob-threshold finds it "
            "sure; OpenAI's is 0.6.",
        ),
    ] = None,
    max_initial_timestamp: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", help="Latest start of a window's first segment; else the model's."),
    ] = None,
    max_new_tokens: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Most tokens of a window; default: the model's.")
    ] = None,
    acceptance: Annotated[
        Acceptance,
        typer.Option(
            metavar="exact|classical",
            help="classical: the rule of speculative sampling; text then depends on the draft.",
        ),
    ] = Acceptance.EXACT,
    acceptance_threshold: Annotated[
        float | None,
        typer.Option(
            metavar="P", help="LOSSY: keep what is not the target's first choice but has this probability."
        ),
    ] = None,
    mode: Annotated[
        Mode | None,
        typer.Option(
            parser=parse_mode,
            metavar="MODE",
            help=f"{', '.join(MODES[:-1])} or {MODES[-1]}; by default as the server is set.",
        ),
    ] = None,
    gamma: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="Draft tokens per block; by default as the server is set.",
        ),
    ] = None,
    streaming: Annotated[
        bool,
        typer.Option(
            "--streaming",
            help="Cut the recording where nobody speaks, as live audio is, instead of into windows of 30 s.",
        ),
    ] = False,
    beam_size: Annotated[int, typer.Option(hidden=True)] = 1,
    output_format: Annotated[
        str,
        typer.Option(
            "--output-format",
            "-f",
            metavar="FORMAT",
            help=f"{', '.join(OutputFormat)}, or all into --output-dir.",
        ),
    ] = OutputFormat.TXT,
    output_dir: Annotated[
        Path | None,
        typer.Option(
            "--output-dir",
            "-o",
            file_okay=False,
            metavar="FOLDER",
            help="Write a file per recording into this folder.",
        ),
    ] = None,
    max_line_width: Annotated[
        int | None,
        typer.Option(metavar="N", help="Characters per line of srt and vtt, with word timestamps."),
    ] = None,
    max_line_count: Annotated[
        int | None, typer.Option(metavar="N", help="Lines per cue, which then may span segments.")
    ] = None,
    max_words_per_line: Annotated[
        int | None, typer.Option(metavar="N", help="Words per cue of srt and vtt.")
    ] = None,
    highlight_words: Annotated[
        bool, typer.Option("--highlight-words", help="Underline each word of srt and vtt while it is said.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print the text and nothing else.")] = False,
) -> None:
    """Transcribe recordings.

    Options are named as openai/whisper's, with dashes or underscores. On a terminal the text appears as it is
    written, with what the draft expects dim behind it. Elsewhere standard output gets the final text only.
    Statistics and errors go to standard error.
    """
    console, errors = Console(), Console(stderr=True)
    try:
        if beam_size != 1:
            raise UnsupportedOption(NO_BEAMS)
        thresholds = (compression_ratio_threshold, logprob_threshold)
        if temperature_increment_on_fallback is not None and thresholds == (None, None):
            raise InvalidRequest(
                "No window fails without a threshold: give temperature_increment_on_fallback together with "
                "compression_ratio_threshold or logprob_threshold (OpenAI's are 2.4 and -1)."
            )
        layout = Layout(max_line_width, max_line_count, max_words_per_line, highlight_words)
        if layout != Layout() and not word_timestamps:
            raise InvalidRequest("Lines are laid out by their words: add word_timestamps.")
        options = DecodingOptions(
            language=language,
            task=task,
            timestamps=timestamps,
            word_timestamps=word_timestamps,
            temperatures=fallback_temperatures(temperature, temperature_increment_on_fallback),
            top_k=top_k,
            top_p=top_p,
            seed=seed,
            compression_ratio_threshold=compression_ratio_threshold,
            compression_ratio_of=compression_ratio_of,
            logprob_threshold=logprob_threshold,
            no_speech_threshold=no_speech_threshold,
            condition_on_previous_text=condition_on_previous_text,
            initial_prompt=initial_prompt,
            carry_initial_prompt=carry_initial_prompt,
            hotwords=hotwords,
            max_initial_timestamp_s=max_initial_timestamp,
            max_new_tokens=max_new_tokens,
            acceptance=acceptance,
            acceptance_threshold=acceptance_threshold,
        )
        formats = parse_formats(output_format)
        if len(formats) > 1 and output_dir is None:
            raise InvalidRequest("Several formats need a folder: add --output-dir FOLDER.")
    except SpecWhisperError as error:
        report(error, errors)
        raise typer.Exit(1) from None
    job = Job(
        server, options, mode, gamma, formats, output_dir, layout, quiet, streaming, credentials=context.obj
    )
    if not asyncio.run(transcribe_files(files, job, console, errors)):
        raise typer.Exit(1)


app.command()(listen)
app.command()(top)


@app.command()
def models(context: typer.Context, server: Server = DEFAULT_SERVER) -> None:
    """Tell which models a server works with."""
    if not asyncio.run(show_server(server, Console(), Console(stderr=True), context.obj)):
        raise typer.Exit(1)


@app.command()
def health(
    context: typer.Context,
    server: Annotated[
        str,
        typer.Argument(metavar="HOST:PORT", help="A draft server, a target server, or the URL of a gateway."),
    ],
    timeout: Annotated[
        float, typer.Option(min=0.1, metavar="SECONDS", help="How long an answer may take.")
    ] = 5.0,
) -> None:
    """Tell whether a server serves; exit status 1 if it does not, for the probes of containers."""
    console, errors = Console(), Console(stderr=True)
    if not asyncio.run(show_health(server, console, errors, context.obj, timeout_s=timeout)):
        raise typer.Exit(1)


@app.command(
    add_help_option=False,
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
)
def evaluate(context: typer.Context) -> None:
    """Word error rate, time and acceptance of a target alone and of a pair, side by side."""
    command = _imported("specwhisper.evaluation.command", "evaluate", "server,evaluation")
    command.app(context.args, prog_name="specwhisper evaluate")


@app.command()
def tune(
    context: typer.Context,
    target: Annotated[str, typer.Option(metavar="HOST:PORT", help="Target server.")],
    draft_model: Annotated[
        str, typer.Option(metavar="MODEL", help="As the draft server takes it.")
    ] = "demo-draft-tiny",
    device: Annotated[str, typer.Option(metavar="DEVICE", help="Of the draft.")] = "cpu",
    dtype: Annotated[str, typer.Option(metavar="TYPE", help="Of the draft.")] = "float32",
    threads: Annotated[int | None, typer.Option(min=1, metavar="N", help="Of the draft.")] = None,
    audio: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="English speech as yours is; by default the bundled recordings."),
    ] = None,
    seconds: Annotated[
        float, typer.Option(min=0, metavar="SECONDS", help="How long to measure, two recordings at least.")
    ] = 60.0,
    json: Annotated[
        Path | None, typer.Option(dir_okay=False, metavar="FILE", help="Write the figures here.")
    ] = None,
) -> None:
    """Measure link and models for a minute: which mode and draft length are best, and how fast that is.

    Encryption and token before the command are those of the target.
    """
    errors = Console(stderr=True)
    try:
        pair = Pair(target, draft_model, device, dtype, threads, context.obj)
        figures = asyncio.run(run_tune(pair, audio or [], seconds, Console()))
        if json is not None:
            json.write_text(json_module.dumps(figures, indent=1) + "\n")
    except SpecWhisperError as error:
        report(error, errors)
        raise typer.Exit(1) from None


@app.command()
def serve(
    config: Annotated[
        Path | None,
        typer.Argument(metavar="[FILE]", help="Configuration of Ray Serve; without one, the demo's."),
    ] = None,
    address: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="Of a Ray cluster; without one, Ray runs on this machine."),
    ] = None,
) -> None:
    """Run targets, draft servers and gateways under Ray, which starts more of them as sessions ask for."""
    _imported("specwhisper_deploy.command", "serve", "server,gateway,serve").main(config, address)


def _imported(module: str, command: str, extras: str) -> Any:
    """Import what a command needs and a client has not: models, or Ray."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        needs = f"{command} needs {error.name}: pip install 'specwhisper[{extras}]'."
        Console(stderr=True).print(f"error: {needs}", style="red", highlight=False, markup=False)
        raise typer.Exit(1) from None


if __name__ == "__main__":
    main()
