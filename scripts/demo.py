"""Transcribe a bundled recording with client, draft server and target server, and prove the text.

``make demo`` runs this with the bundled pair, ``make demo-real`` with Whisper's base and tiny.en, which it
fetches; ``scripts/demo.py FILE`` takes a recording of your own. The same recording is then transcribed by the
target alone, and the two transcripts are compared token for token.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

DEMO = Path(__file__).parent.parent / "specwhisper" / "demo"
START_TIMEOUT_S = 120
CLIENT = "specwhisper"


class Pair(NamedTuple):
    """The models of a demo: names to fetch, options of both servers, an English recording."""

    fetched: tuple[str, ...]
    target: tuple[str, ...]
    draft: tuple[str, ...]
    recording: Path
    detects_languages: bool


BUNDLED = Pair((), (), (), DEMO / "samples" / "04_harbor_in_the_storm.ogg", detects_languages=False)
REAL = Pair(
    ("tiny.en", "base"),
    ("--model", "base"),
    ("--draft-model", "tiny.en", "--cut-windows"),
    DEMO / "human" / "jfk.flac",
    detects_languages=True,
)


def on_half_the_cores(pair: Pair) -> Pair:
    """Return the pair with cores of its own for each server: on the same ones, the draft comes too late."""
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    if len(cores) < 2:
        return pair
    middle = (len(cores) + 1) // 2
    target, draft = (["--cores", ",".join(map(str, half))] for half in (cores[:middle], cores[middle:]))
    return pair._replace(target=(*pair.target, *target), draft=(*pair.draft, *draft))


def chosen_pair() -> Pair:
    """Return the pair that the variable MODEL names, its models fetched."""
    if (name := os.environ.get("MODEL", "")) not in ("", "real"):
        sys.exit(f"MODEL is '{name}': set it to real, or leave it out for the bundled pair.")
    if not name:
        if not (DEMO / "target" / "model.safetensors").exists():
            sys.exit("No demo pair is bundled; train it: `python -m experiments.demo_pair all --work FOLDER`")
        return BUNDLED
    if status := subprocess.run([*program(CLIENT), "models", "get", *REAL.fetched]).returncode:
        sys.exit(status)
    return on_half_the_cores(REAL)


def program(module: str) -> list[str]:
    """Return the command line of a module's program; a variable may name that of another installation.

    It is the module's package in capitals: SPECWHISPER_CLIENT, SPECWHISPER_DRAFT_SERVER, ...
    """
    other = os.environ.get(module.partition(".")[0].upper(), "")
    return shlex.split(other) or [sys.executable, "-m", module]


@contextmanager
def server(module: str, log: Path, *arguments: str) -> Iterator[str]:
    """Run a server process, yield its address once it is ready, and stop it with SIGTERM."""
    command = [*program(module), "--port", "0", "--log-format", "json", *arguments]
    with log.open("w") as stderr, subprocess.Popen(command, stderr=stderr) as process:
        try:
            yield wait_until_ready(process, module, log)
        finally:
            process.terminate()


def wait_until_ready(process: subprocess.Popen[bytes], module: str, log: Path) -> str:
    with log.open() as lines:
        for _ in range(START_TIMEOUT_S * 20):
            line = lines.readline()
            if line.startswith("{") and (record := json.loads(line)).get("message") == "ready":
                return str(record["address"])
            if not line:
                try:
                    process.wait(0.05)
                except subprocess.TimeoutExpired:
                    continue
                break
    sys.exit(f"{module} did not start; its log says:\n{log.read_text()}")


def transcribe(recording: Path, address: str, folder: Path, options: Sequence[str]) -> Any:
    """Run the command line client, which shows the text live, and return its JSON output."""
    command = [
        *program(CLIENT),
        "transcribe",
        str(recording),
        "--server",
        address,
        *options,
    ]
    output = ["--output-format", "json", "--output-dir", str(folder)]
    run = subprocess.run([*command, *output])
    if run.returncode:
        sys.exit(run.returncode)  # the client has printed the reason
    return json.loads((folder / f"{recording.stem}.json").read_text())


def if_busy() -> str:
    """Return a sentence if other programs keep the machine's cores busy; call it before the servers start."""
    load, num_cores = os.getloadavg()[0], os.cpu_count() or 1
    if load < num_cores / 2:
        return ""
    return (
        f"The machine was busy before the demo began (load {load:.1f} on {num_cores} cores): candidates come "
        "late then, and a pass writes fewer tokens than on an idle one."
    )


def tokens(result: Any) -> list[int]:
    return [token for segment in result["segments"] for token in segment["tokens"]]


def main() -> None:
    named = Path(sys.argv[1]) if len(sys.argv) > 1 else None
    if named is not None and not named.is_file():
        sys.exit(f"There is no file '{named}': name a recording.")
    pair = chosen_pair()
    recording = named or pair.recording
    is_detected = pair.detects_languages and recording != pair.recording
    language = () if is_detected else ("--language", "en")
    busy = if_busy()
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        logs = Path(folder)
        print("Starting a target server and a draft server ...", flush=True)
        target = stack.enter_context(server("specwhisper_target_server", logs / "target.log", *pair.target))
        draft = stack.enter_context(
            server("specwhisper_draft_server", logs / "draft.log", "--target", target, *pair.draft)
        )
        print(f"target server {target}, draft server {draft}\n", flush=True)
        print(f"$ specwhisper transcribe {shlex.join([recording.name, *language])}", flush=True)
        split = transcribe(recording, draft, logs / "split", language)
        if not sys.stdout.isatty():
            print("\n".join(segment["text"].strip() for segment in split["segments"]))
        target_only = ("--mode", "target-only", "--quiet")
        alone = transcribe(recording, draft, logs / "alone", (*language, *target_only))
        if tokens(split) != tokens(alone):
            sys.exit(
                "\nDIFFERENT: the split transcript is not the target's own. This is a bug; please report it."
            )
        if busy:
            print(f"\n{busy}")
        count = len(tokens(split))
        print(f"\nidentical: all {count} tokens of the text are the target alone's (--mode target-only).")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:  # which the servers have got as well
        sys.exit(130)
