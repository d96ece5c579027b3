"""``specwhisper tune``: measure a link and a pair, and recommend a mode."""

from __future__ import annotations

import asyncio
import json as json_module
import math
import sys
import time
from collections.abc import Sequence
from dataclasses import MISSING, asdict, dataclass, replace
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

import specwhisper
from specwhisper.extras import needs_extra
from specwhisper.options import DecodingOptions
from specwhisper.printable import print_table
from specwhisper.rpc.addresses import to_addresses
from specwhisper.rpc.channels import OPEN, Credentials
from specwhisper.rpc.tokens import TARGET_TOKEN
from specwhisper.settings.command_line import takes
from specwhisper.settings.setting import part
from specwhisper.settings.shared import device_option, dtype_option
from specwhisper.transcription.transcription import ModelInfo
from specwhisper.types import Mode
from specwhisper.validated import number, option, text, whole
from specwhisper_client.api import TranscriptionClient
from specwhisper_client.cli.advice import COMPARED, MIN_ROUNDS, Advice, Round, advise, time_per_token_s
from specwhisper_client.cli.arguments import IN_A_FOLDER
from specwhisper_client.cli.display import facts_table
from specwhisper_client.cli.recordings import write
from specwhisper_client.cli.server_process import following, start_server

SAMPLES = Path(specwhisper.__file__).parent / "demo" / "samples"


@dataclass(frozen=True, slots=True)
class Pair:
    """A remote target and a local draft; the fields are options of the draft server."""

    target: str = option(MISSING, "Address of the target server.", "HOST:PORT", read=to_addresses)
    draft_model: str = text("demo-draft-tiny", "Draft model: a name, a hub id, a folder or a file.", "MODEL")
    device: str = device_option("Device of the draft model.")
    dtype: str = dtype_option("Precision of the draft model.")
    threads: int | None = whole(
        None, 1, math.inf, "CPU threads of the draft model. Default: as many as cores."
    )
    credentials: Credentials = OPEN

    @property
    def command(self) -> list[str]:
        arguments = ["--target", self.target, "--draft-model", self.draft_model, "--device", self.device]
        arguments += ["--dtype", self.dtype, "--port", "0", "--log-format", "json"]
        arguments += ["--threads", str(self.threads)] if self.threads else []
        if (tls := self.credentials.tls) is not None:
            files = {"root-cert": tls.roots, "client-cert": tls.certificate, "client-key": tls.key}
            arguments += ["--target-use-ssl"]
            for flag, value in {**files, "server-name": tls.server_name}.items():
                arguments += [f"--target-{flag}", str(value)] if value is not None else []
        return [sys.executable, "-m", "specwhisper_draft_server", *arguments]

    @property
    def environment(self) -> dict[str, str]:
        token = self.credentials.token
        return {} if token is None else {TARGET_TOKEN: token}


@dataclass(frozen=True, kw_only=True)
class TuneOptions:
    pair: Pair = part(Pair)
    audio: tuple[Path, ...] = option(
        (), "Recordings of English speech. Default: the bundled ones.", "FILE", repeats=True
    )
    seconds: float = number(40.0, 0, math.inf, "Length of the measurement, at least two rounds.", "SECONDS")
    json: Path | None = option(None, "File for the figures, as JSON.", "FILE", rules=(IN_A_FOLDER,))


@takes(TuneOptions)
def tune(context: typer.Context, wanted: TuneOptions) -> None:
    """Measure link and models, and recommend a mode.

    Encryption and token before the command are those of the target server.
    """
    pair = replace(wanted.pair, credentials=context.obj)
    figures = asyncio.run(measured(pair, wanted.audio, wanted.seconds, Console()))
    if wanted.json is not None:
        write(wanted.json, json_module.dumps(figures, indent=1) + "\n")


async def measured(pair: Pair, files: Sequence[Path], seconds: float, console: Console) -> dict[str, Any]:
    """Measure a pair over its link, print the advice, and return it as plain values.

    Parameters
    ----------
    files : recordings of speech; without any, the bundled English ones.
    seconds : length of the measurement, at least two rounds.
    """
    with needs_extra("tune, which runs a draft server here,", "draft"):
        import onnxruntime  # noqa: F401
    files = files or sorted(path for path in SAMPLES.iterdir() if path.suffix in (".flac", ".ogg", ".mp3"))
    with following(start_server(pair.command, pair.environment), "The draft server") as address:
        async with TranscriptionClient(address) as client:
            model, rounds = await _rounds(client, files, seconds, console)
    advice = advise(rounds)
    title = f"{model.target}, drafted by {model.draft}"
    _print(title, advice, f"{len(rounds)} rounds of {min(len(rounds), len(files))} recordings", console)
    return {
        "model": title,
        "rounds": [{mode: time_per_token_s(each[mode]) for mode in COMPARED} for each in rounds],
        "mode": advice.best.mode,
        "reason": advice.reason,
        "gamma": _gamma(advice),
        **asdict(advice),
    }


async def _rounds(
    client: TranscriptionClient, files: Sequence[Path], seconds: float, console: Console
) -> tuple[ModelInfo, list[Round]]:
    """Transcribe in every mode for some seconds, after a round to warm up.

    Each round begins with another mode, so that no mode is always first. The models returned are those of the
    last mode, which has a draft.
    """
    options = DecodingOptions(language="en")
    with console.status("warming up ..."):
        for mode in COMPARED:
            model = (await client.transcribe_file(files[0], options, mode=mode)).model
    rounds: list[Round] = []
    ends_s = time.monotonic() + seconds
    while len(rounds) < MIN_ROUNDS or time.monotonic() < ends_s:
        file, first = files[len(rounds) % len(files)], len(rounds) % len(COMPARED)
        sessions = {}
        for mode in (*COMPARED[first:], *COMPARED[:first]):
            with console.status(f"{mode}, {file.name}, {max(0.0, ends_s - time.monotonic()):.0f} s left"):
                sessions[mode] = await client.transcribe_file(file, options, mode=mode)
        rounds.append(sessions)
    return model, rounds


def _gamma(advice: Advice) -> str:
    """Return in words the draft length to set."""
    best = advice.best
    if not best.mode.drafts:
        return "none, since this mode has no draft"
    up_to = "up to " if best.mode.is_lock_step else ""
    return f"chosen by each session, without --gamma; here blocks of {up_to}{best.gamma}"


def _print(title: str, advice: Advice, extent: str, console: Console) -> None:
    best, parts = advice.best, advice.parts
    forward_ms, token_ms = 1e3 * parts.forward_s, 1e3 * parts.token_s
    facts = facts_table(
        {
            "model": title,
            "link": f"{1e3 * parts.round_trip_s:.1f} ms round trip, messages included",
            "draft": f"{1e3 * parts.draft_s:.1f} ms a step",
            "target": f"{forward_ms:.1f} ms per forward pass, {token_ms:.2f} ms per token",
            "measured": f"{extent} in every mode, all of a client's waiting time",
        }
    )
    columns = ("mode", "ms per token", "over target-only", "accepted", "blocks of")
    measured = Table(*columns, caption="in brackets 95 % intervals")
    for one in advice.measured:
        measured.add_row(
            one.mode,
            f"{1e3 * one.time_per_token_s:.1f}",
            "1" if one.mode is Mode.TARGET_ONLY else escape(str(one.over_target_only)),
            f"{one.acceptance_rate:.0%}" if one.mode.drafts else "",
            f"{one.gamma or ''}",
        )
    print_table(console, facts, measured)
    speed = f"{1e3 * best.time_per_token_s:.1f} ms per token"
    if best.mode.drafts:
        speed += f", {best.over_target_only} times the target alone"
    for line in (
        f"Run --mode {best.mode}: {advice.reason}.",
        f"Speed, as measured: {speed}.",
        f"Draft length: {_gamma(advice)}.",
    ):
        console.print(line, highlight=False, markup=False, soft_wrap=True)
