"""The bundled pair: on every sample, every mode writes what plain transformers writes."""

from collections.abc import Iterator
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from transformers import WhisperForConditionalGeneration

from experiments.common.inline_pair import InlinePair
from experiments.exactness import oracle
from experiments.exactness.comparison import differences
from experiments.exactness.oracle import Steered
from experiments.exactness.prepared import CachingEncoder, is_long
from specwhisper.audio.decode import decode_file
from specwhisper.audio.recording import log_mel_max
from specwhisper.model.backends import load_encoder
from specwhisper.model.checkpoints.checkpoint import Checkpoint, load_checkpoint
from specwhisper.model.checkpoints.names import DEMO_FOLDER
from specwhisper.model.model import Model, WhisperModel
from specwhisper.model.translated import open_draft
from specwhisper.options import DecodingOptions, Padding
from specwhisper.types import Mode

SAMPLES = sorted(path for path in (DEMO_FOLDER / "samples").glob("*") if path.suffix != ".jsonl")
SHORTEST = SAMPLES[0]
MODES_AND_DRAFTS = [
    (Mode.TARGET_ONLY, None),
    (Mode.SYNC, "demo-draft-tiny"),
    (Mode.PIPELINED, "demo-draft-tiny"),
    (Mode.FULL, "demo-draft-tiny"),
    (Mode.ONE_PROCESS, "demo-draft-tiny"),
    (Mode.ONE_PROCESS, "demo-draft-distil"),
]


@cache
def checkpoint(name: str) -> Checkpoint:
    return load_checkpoint(name)


@cache
def encoder(name: str) -> CachingEncoder:
    return CachingEncoder(load_encoder(checkpoint(name)))


@cache
def reference(
    sample: Path, padding: Padding = Padding.SILENCE
) -> tuple[bytes, DecodingOptions, oracle.OracleText]:
    """Return the sample's PCM, the client's options, and transformers' text."""
    pcm = b"".join(decode_file(sample))
    maxima = log_mel_max([pcm], padding=padding) if is_long(pcm) else {}
    options = DecodingOptions.greedy(language="en", log_mel_max=maxima, padding=padding)
    return pcm, options, oracle.transcribe(transformers_target(), pcm, options)


@cache
def transformers_target() -> WhisperForConditionalGeneration:
    return WhisperForConditionalGeneration.from_pretrained(DEMO_FOLDER / "target").float().eval()


@cache
def draft(name: str) -> Model:
    return open_draft(checkpoint(name), 1, checkpoint("demo-target").vocabulary, encoder=encoder(name))


def runs() -> Iterator[Any]:
    """Yield every sample with every mode and padding; by day each of both on the shortest."""
    for sample, padding, (mode, draft_name) in product(SAMPLES, Padding, MODES_AND_DRAFTS):
        is_by_day = sample is SHORTEST and (
            padding is Padding.SILENCE or mode in (Mode.TARGET_ONLY, Mode.FULL)
        )
        yield pytest.param(
            sample,
            padding,
            mode,
            draft_name,
            id="-".join(filter(None, (sample.stem, padding, mode, draft_name))),
            marks=() if is_by_day else pytest.mark.nightly,
        )


@pytest.mark.parametrize(("sample", "padding", "mode", "draft_name"), list(runs()))
def test_every_mode_equals_transformers(sample: Path, padding: Padding, mode: Mode, draft_name: str | None):
    pcm, options, expected = reference(sample, padding)
    model = WhisperModel(checkpoint("demo-target"), 1, encoder=encoder("demo-target"))
    target = Steered(model, {len(pcm) // 2: expected})
    split = InlinePair(
        target,
        draft(draft_name) if draft_name else None,
        mode=mode,
        max_new_tokens=checkpoint("demo-target").max_new_tokens,
    )
    assert differences(split.transcribe([pcm], options), [expected]) == []


@pytest.mark.nightly
def test_hardly_a_token_is_a_tie():
    windows = [window for sample in SAMPLES for window in reference(sample)[2].windows]
    num_tokens = sum(len(window.tokens) for window in windows)
    assert sum(len(window.ties) for window in windows) <= 0.005 * num_tokens
    assert len(windows) >= len(SAMPLES) == 7
