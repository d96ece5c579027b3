"""The same weights in every format: transformers' and our folders, the files of every peer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from transformers import GenerationConfig, WhisperConfig

from experiments.common.audio.samples import Sample
from experiments.common.models.checkpoints import save_checkpoint
from experiments.common.models.published import PUBLISHED
from experiments.common.replay.trace import Trace
from experiments.peers.arms import INT8, NEEDS, PRECISIONS, Arm, Part, Piece, System
from experiments.peers.ggml_weights import save_ggml
from experiments.peers.openai_weights import save_openai
from specwhisper.audio.canonical import BYTES_PER_SAMPLE
from specwhisper.model.checkpoints.names import resolve
from specwhisper.types import HOP_SAMPLES, WINDOW_SAMPLES

DRAFT_SHAPE = "tiny"


@dataclass(frozen=True, slots=True)
class Weights:
    """One target in the formats that the chosen arms need.

    Attributes
    ----------
    folder : transformers' format.
    draft : of the same kind, for shapes.
    ggml : of whisper.cpp, by precision.
    suppress : ids that are never generated.
    end_of_text, num_tokens : of the vocabulary: the first special id, and how many there are.
    """

    folder: str
    draft: str
    ctranslate2: Path
    openai: Path
    ggml: dict[str, Path]
    suppress: tuple[int, ...]
    end_of_text: int
    num_tokens: int


def prepare(part: Part, arms: Sequence[Arm], work: Path, *, target: str, shape: str, seed: int) -> Weights:
    """Make up the weights of a shape, or take the demo target's, and convert them."""
    work = work / part.replace(" ", "-")
    work.mkdir()
    folder, draft = resolve(target), ""
    if part is Part.SHAPE:
        folder = str(save_checkpoint(replace(PUBLISHED[shape], seed=seed), work / "target"))
        draft = str(save_checkpoint(replace(PUBLISHED[DRAFT_SHAPE], seed=seed + 1), work / "draft"))
    systems = {arm.system for arm in arms if arm.part is part}
    generation = GenerationConfig.from_pretrained(folder)
    weights = Weights(
        folder=folder,
        draft=draft,
        ctranslate2=work / "ctranslate2",
        openai=work / "openai.pt",
        ggml={precision: work / f"{precision}.ggml" for precision in PRECISIONS[System.WHISPER_CPP]},
        suppress=tuple(generation.suppress_tokens or ()),
        end_of_text=int(generation.eos_token_id),
        num_tokens=int(WhisperConfig.from_pretrained(folder).vocab_size),
    )
    if any("ctranslate2" in NEEDS.get(system, ()) for system in systems):
        _convert(folder, weights.ctranslate2)
    if System.OPENAI_WHISPER in systems:
        save_openai(folder, weights.openai)
    if System.WHISPER_CPP in systems:
        for precision, path in weights.ggml.items():
            save_ggml(folder, path, is_int8=precision == INT8)
    return weights


def _convert(folder: str, to: Path) -> None:
    from ctranslate2.converters import TransformersConverter

    files = ["tokenizer.json", "preprocessor_config.json"]
    TransformersConverter(folder, copy_files=files).convert(str(to))


def pieces_of(trace: Trace, samples: Sequence[Sample], no_timestamps: int | None) -> list[Piece]:
    """Cut out the windows that the demo target opened when it wrote timestamps, in order."""
    pieces = []
    for sample in samples:
        windows = [
            decoding
            for decoding in trace.decodings
            if decoding.recording == sample.name and no_timestamps not in decoding.prompt
        ]
        for window in sorted(windows, key=lambda decoding: decoding.start_frame):
            start = window.start_frame * HOP_SAMPLES * BYTES_PER_SAMPLE
            pcm = sample.pcm[start : start + WINDOW_SAMPLES * BYTES_PER_SAMPLE]
            pieces.append(Piece(pcm, len(window.tokens)))
    return pieces
