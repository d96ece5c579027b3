"""Time forward passes and encodings of a pair, a core each; ``parts`` compares precisions."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from statistics import fmean, median
from typing import Annotated

import typer
from rich.progress import track
from rich.table import Table

from experiments.common.audio.samples import Sample, load_samples
from experiments.common.bench.options import Audio, Draft, JsonFile, Quick, Seed, Target
from experiments.common.bench.report import open_console, write_json
from experiments.common.replay.trace import Decoding
from experiments.common.servers.processes import Worker
from experiments.latency.lab import Pair, cores_used
from specwhisper.audio.recording import Recording
from specwhisper.errors import SpecWhisperError
from specwhisper.model.checkpoints.checkpoint import load_checkpoint
from specwhisper.model.choosing import Row
from specwhisper.model.model import WhisperModel
from specwhisper.types import AudioChunk

WIDTHS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 14, 17, 24, 33, 65)  # tokens of a forward pass
NUM_HELD = 30  # tokens in the slot: the middle of an utterance
NUM_ROUNDS, NUM_ENCODINGS = 15, 3
DTYPES = ("float32", "int8")
FEW_WIDTHS = (1, 17)  # of `parts`


@dataclass(frozen=True, slots=True)
class PairCosts:
    """Seconds of a pair's parts.

    Attributes
    ----------
    forward_s : the target's forward passes, as (tokens, seconds).
    draft_encode_s : the draft's encoding of a recording's first window, by recording.
    """

    forward_s: list[tuple[int, float]]
    draft_encode_s: dict[str, float]


class Timer:
    """Times a model; made in a process of its own.

    A draft is timed in its own vocabulary: the translation keeps what it has computed.
    """

    def __init__(self, name: str, *, dtype: str = "float32", cut_windows: bool = False) -> None:
        checkpoint = load_checkpoint(name, dtype=dtype, is_draft=True)
        self._num_tokens = checkpoint.vocabulary.end_of_text
        self._model = WhisperModel(checkpoint, 1, cut_windows=cut_windows)

    def encode_s(self, samples: Sequence[Sample]) -> dict[str, float]:
        return {
            sample.name: median(self._encode_s(sample) for _ in range(NUM_ENCODINGS)) for sample in samples
        }

    def forward_s(self, sample: Sample, decoding: Decoding, widths: Sequence[int]) -> list[float]:
        """Return the seconds of a forward pass over each number of tokens; the widths take turns."""
        self._encode_s(sample)
        words = [token for token in decoding.tokens if token < self._num_tokens]
        text = (words * (NUM_HELD + widths[-1]))[: NUM_HELD + widths[-1]]
        self._append(text, 0, NUM_HELD, decoding.prompt)
        held = len(decoding.prompt) + NUM_HELD
        times_s: dict[int, list[float]] = {width: [] for width in widths}
        for _ in range(NUM_ROUNDS):
            for width, found in times_s.items():
                started_s = time.perf_counter()
                self._append(text, NUM_HELD, width)
                found.append(time.perf_counter() - started_s)
                self._model.rollback(0, held)
        return [median(times_s[width]) for width in widths]

    def _encode_s(self, sample: Sample) -> float:
        recording = Recording(sample.log_mel_max)
        recording.append(AudioChunk(0, sample.pcm, is_last=True))
        started_s = time.perf_counter()
        self._model.encode(0, recording, 0)
        return time.perf_counter() - started_s

    def _append(self, text: Sequence[int], start: int, width: int, prompt: Sequence[int] = ()) -> None:
        """Feed some tokens of a text; all but the first are candidates."""
        fed, generated = text[start : start + width], text[: start + 1]
        self._model.score([Row(0, [*prompt, *fed], width - 1, generated, timestamps=False)])


@contextmanager
def _timing(build: Callable[[], Timer], cores: Sequence[int]) -> Iterator[Worker]:
    worker = Worker(build, cores=cores)
    try:
        yield worker
    finally:
        worker.stop()


def measure_costs(pair: Pair, samples: Sequence[Sample], decoding: Decoding) -> PairCosts:
    """Measure both models, one after the other; the decoding is of the first recording."""
    cores = cores_used()
    with _timing(partial(Timer, pair.target), cores["target"]) as target:
        forward_s = target.call("forward_s", samples[0], decoding, WIDTHS)
    draft = partial(Timer, pair.draft, dtype=pair.draft_dtype, cut_windows=True)
    with _timing(draft, cores["draft"]) as drafting:
        draft_encode_s = drafting.call("encode_s", samples)
    return PairCosts(list(zip(WIDTHS, forward_s, strict=True)), draft_encode_s)


def parts(
    target: Target = "demo-target",
    draft: Draft = "demo-draft-tiny",
    audio: Audio = None,
    rounds: Annotated[int, typer.Option(min=1, help="How often everything is repeated.")] = 3,
    quick: Quick = False,
    seed: Seed = 0,
    json: JsonFile = None,
) -> None:
    """Time the encoder and the forward passes of both models in each precision, on one core."""
    console = open_console()
    try:
        samples = load_samples(audio)[: 2 if quick else None]
        decoding = Pair(target, draft).record(samples[:1]).decodings[0]
        arms = [
            (name, dtype, partial(Timer, name, dtype=dtype)) for name in (target, draft) for dtype in DTYPES
        ]
        cut = partial(Timer, draft, dtype="int8", cut_windows=True)
        arms.append((draft, "int8, cut windows", cut))
        encode_ms: list[list[float]] = [[] for _ in arms]
        forward_ms: list[list[list[float]]] = [[] for _ in arms]
        with ExitStack() as stack:
            workers = [stack.enter_context(_timing(build, cores_used()["target"])) for _, _, build in arms]
            for _ in track(range(1 if quick else rounds), console=console, transient=True):
                for place, worker in enumerate(workers):
                    encode_ms[place].append(1e3 * fmean(worker.call("encode_s", samples).values()))
                    forward_s = worker.call("forward_s", samples[0], decoding, FEW_WIDTHS)
                    forward_ms[place].append([1e3 * each for each in forward_s])
    except SpecWhisperError as error:
        sys.exit(f"experiments.latency: {error}")
    found = [
        {
            "model": name,
            "precision": precision,
            "encode_ms": min(encode_ms[place]),
            "pass_ms": min(each[0] for each in forward_ms[place]),
            "wide_pass_ms": min(each[1] for each in forward_ms[place]),
        }
        for place, (name, precision, _) in enumerate(arms)
    ]
    table = Table("model", "precision", "a window, ms", "a pass, ms", f"of {FEW_WIDTHS[1]} tokens, ms")
    for row in found:
        times = (f"{row[name]:.1f}" for name in ("encode_ms", "pass_ms", "wide_pass_ms"))
        table.add_row(str(row["model"]), str(row["precision"]), *times)
    console.print(table)
    if json is not None:
        write_json(json, models=Pair(target, draft).facts(), figures={"parts": found})
