"""``python -m experiments.ctc_head``: a CTC head on the target's encoder as a source of hints."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import gettempdir
from typing import Annotated, Any

import numpy as np
import torch
import typer
from rich.console import Console

from experiments.common.bench.options import Check, JsonFile, Quick, Seed
from experiments.common.bench.options import Target as TargetName
from experiments.common.bench.report import open_console, print_bars, write_json
from experiments.ctc_head.agreement import compare
from experiments.ctc_head.head import Block, CtcHead
from experiments.ctc_head.passes import Passes, corrupted, count_passes
from experiments.ctc_head.pieces import CORPUS_SETS, Piece, from_corpus, from_files, recordings_of, split
from experiments.ctc_head.store import Example, collect, digest_of
from experiments.ctc_head.summary import Result, as_figures, bars, print_needed, print_result
from experiments.ctc_head.target import Target
from experiments.ctc_head.timing import measure
from experiments.ctc_head.training import text_tokens, train
from experiments.demo_pair.data.corpus import Corpus
from specwhisper.model.threads import limit_threads
from specwhisper.transcription.hints.tokens import WhisperTokens

WORK = Path(gettempdir()) / "specwhisper-ctc-head"
ERROR_RATES = (0.0, 0.05, 0.1, 0.2, 0.3, 0.4, 0.6, 0.8)
PEAK = {Block.NONE: 1e-2, Block.CONV: 3e-3, Block.TRANSFORMER: 2e-3}  # learning rates


def ctc_head(
    work: Annotated[
        Path,
        typer.Option(file_okay=False, help="Folder for windows and heads; a run that was cut continues."),
    ] = WORK,
    target: TargetName = "demo-target",
    audio: Annotated[
        list[Path] | None,
        typer.Option(
            exists=True,
            help="Recordings, or folders of them; a tenth is held out. Repeat for more. [default: bundled]",
        ),
    ] = None,
    corpus: Annotated[
        Path | None,
        typer.Option(exists=True, file_okay=False, help="Work folder of experiments.demo_pair, instead."),
    ] = None,
    held_out: Annotated[
        list[Path] | None,
        typer.Option(exists=True, help="Further recordings, or folders, to evaluate. Repeat for more."),
    ] = None,
    language: Annotated[str, typer.Option(help="Whisper language code of all recordings.")] = "en",
    block: Annotated[Block, typer.Option(help="Layer before the linear one.")] = Block.NONE,
    windows: Annotated[int, typer.Option(min=1, help="Most windows of 30 s to train on.")] = 600,
    evaluated: Annotated[int, typer.Option(min=1, help="Most windows of each held-out set.")] = 40,
    timed: Annotated[int, typer.Option(min=1, help="Of these, most windows that are timed.")] = 10,
    epochs: Annotated[int, typer.Option(min=1, help="Of the training.")] = 20,
    rounds: Annotated[int, typer.Option(min=1, help="How often these are timed in each arm.")] = 2,
    quick: Quick = False,
    seed: Seed = 0,
    json: JsonFile = None,
    check: Check = False,
) -> None:
    """Train a CTC head on a target's encoder, and use its text as a hint for this target.

    The target decodes the training windows alone; its own text, without timestamps, is what the head learns.
    On windows that are held out: how the head's text agrees with the target's, how many forward passes it
    should save, and the time that it does save, with the same text. The target's encoder stays as it is.
    """
    console = open_console()
    limit_threads(1)
    if quick:
        windows, evaluated, epochs, rounds = min(windows, 16), min(evaluated, 4), min(epochs, 4), 1
    whisper = Target(target, language)
    folder = work / f"{whisper.checkpoint.weights_digest[:12]}-{language}"
    training, sets = choose_pieces(audio, corpus, held_out, windows, evaluated, seed)
    console.print(f"{len(training)} windows to train on; held out: {sizes(sets)}", highlight=False)
    held = {name: collected(whisper, pieces, folder, console) for name, pieces in sets.items()}
    needed = {name: needed_agreement(whisper, examples, seed) for name, examples in held.items()}
    print_needed(needed, console)
    examples = collected(whisper, training, folder, console)
    torch.manual_seed(seed)
    head = CtcHead(examples[0].encoded.shape[1], whisper.vocabulary.end_of_text, block)
    train(
        head,
        examples,
        folder / f"{block}-{epochs}-{seed}-{digest_of(training)}.pt",
        epochs=epochs,
        peak=PEAK[block],
        seed=seed,
        report=lambda epoch, loss: console.print(f"epoch {epoch}: {loss:.3f} nats per token"),
    )
    del examples
    results = []
    for name, pieces in sets.items():
        results.append(
            evaluate(whisper, head, name, pieces, held[name], num_timed=timed, rounds=rounds, seed=seed)
        )
        print_result(results[-1], console)
    if json is not None:
        facts = {
            "target": target,
            "digest": whisper.checkpoint.weights_digest,
            "head": head_facts(head, block),
        }
        figures = {
            "training": {"windows": len(training), "epochs": epochs},
            "results": list(map(as_figures, results)),
            "bars": list(map(str, bars(results))),
        }
        write_json(json, models=facts, figures=figures)
    sys.exit(0 if print_bars(bars(results), console) or not check else 1)


def choose_pieces(
    audio: list[Path] | None,
    corpus: Path | None,
    held_out: list[Path] | None,
    windows: int,
    evaluated: int,
    seed: int,
) -> tuple[list[Piece], dict[str, list[Piece]]]:
    """Return the pieces to train on, and the held-out sets by name."""
    sets: dict[str, list[Piece]] = {}
    if corpus is not None:
        clips = Corpus.load(corpus)
        training = from_corpus(clips, "train", windows, seed)
        for name, (part, is_clean) in CORPUS_SETS.items():
            sets[name] = from_corpus(clips, part, evaluated, seed, clean=is_clean)
    else:
        recordings, unseen = split(recordings_of(audio, seed))
        training = from_files(recordings, windows)
        sets["held-out recordings"] = from_files(unseen, evaluated)
    for path in held_out or ():
        sets[path.name] = from_files(recordings_of([path], seed), evaluated)
    return training, sets


def sizes(sets: Mapping[str, Sequence[Piece]]) -> str:
    """Return the number of pieces of each set."""
    return ", ".join(f"{name} ({len(pieces)})" for name, pieces in sets.items())


def collected(target: Target, pieces: Sequence[Piece], folder: Path, console: Console) -> list[Example]:
    """Collect examples, and report how far that is every 80 pieces."""
    examples: list[Example] = []
    started_s = time.monotonic()
    for example in collect(target, pieces, folder):
        examples.append(example)
        if len(examples) % 80 == 0:
            console.print(f"{len(examples)}/{len(pieces)} windows, {time.monotonic() - started_s:.0f} s")
    return examples


def evaluate(
    target: Target,
    head: CtcHead,
    name: str,
    pieces: Sequence[Piece],
    examples: Sequence[Example],
    *,
    num_timed: int,
    rounds: int,
    seed: int,
) -> Result:
    """Compare the head's text with the target's, count passes, and measure."""
    own = [text_tokens(example.tokens, head.blank) for example in examples]
    written = [head.tokens(example.encoded) for example in examples]
    own_texts, texts = [list(map(target.text_of, each)) for each in (own, written)]
    return Result(
        name,
        compare(own, written, own_texts, texts),
        passes_with(target, examples, texts),
        measure(
            target,
            head,
            pieces[:num_timed],
            [example.encoded for example in examples],
            own,
            rounds=rounds,
            seed=seed,
        ),
    )


def passes_with(target: Target, examples: Sequence[Example], hints: Sequence[str]) -> Passes:
    """Count the forward passes of windows with a hint for each."""
    passes, texts = Passes(), WhisperTokens(target.vocabulary, timestamps=True)
    for example, hint in zip(examples, hints, strict=True):
        count_passes(passes, example.tokens, hint, target.model.tokenize, texts)
    return passes


def needed_agreement(target: Target, examples: Sequence[Example], seed: int) -> dict[float, Passes]:
    """Count the passes with the target's own text as a hint, for rates of wrong tokens."""
    expected = {}
    for rate in ERROR_RATES:
        rng = np.random.default_rng([seed, 4])
        own = [text_tokens(example.tokens, target.vocabulary.end_of_text) for example in examples]
        hints = [target.text_of(corrupted(tokens, rate, rng)) for tokens in own]
        expected[rate] = passes_with(target, examples, hints)
    return expected


def head_facts(head: CtcHead, block: Block) -> dict[str, Any]:
    """Return the facts of a head."""
    return {"block": block, "parameters": sum(weight.numel() for weight in head.parameters())}


if __name__ == "__main__":
    typer.run(ctc_head)
