"""The real pair, whisper-tiny.en drafting for whisper-base, and the bundled human recordings."""

import json
from functools import cache

import pytest
import torch
from transformers import WhisperForConditionalGeneration
from transformers.modeling_outputs import BaseModelOutput

from experiments.common.inline_pair import InlinePair
from experiments.common.models.checkpoints import as_transformers
from experiments.exactness.oracle import OracleText, transcribe
from experiments.exactness.prepared import CachingEncoder
from specwhisper.audio.decode import decode_file
from specwhisper.audio.recording import log_mel_max
from specwhisper.model.backends import load_encoder
from specwhisper.model.checkpoints.checkpoint import Checkpoint, load_checkpoint
from specwhisper.model.checkpoints.names import DEMO_FOLDER, fetched_folder
from specwhisper.model.model import Model, WhisperModel
from specwhisper.model.translated import open_draft
from specwhisper.options import DecodingOptions
from specwhisper.transcription.transcription import Transcription
from specwhisper.types import WINDOW_SAMPLES, Mode

TARGET, DRAFT = "base", "tiny.en"
HUMAN = DEMO_FOLDER / "human"
SHORT, JFK = "austen_0880.flac", "jfk.flac"
RECORDINGS = sorted(path.name for path in HUMAN.glob("*.flac"))
BY_DAY = (SHORT, "austen_0930.flac", JFK)
TEXTS = {
    line["file_name"]: line["text"]
    for line in map(json.loads, (HUMAN / "metadata.jsonl").read_text().splitlines())
}
MODES = (Mode.SYNC, Mode.PIPELINED, Mode.FULL, Mode.ONE_PROCESS)


@cache
def checkpoint(name: str, dtype: str = "float32") -> Checkpoint:
    """Load a model; skip the test where it is not on this machine."""
    if not fetched_folder(name).is_dir():
        pytest.skip(f"needs real Whisper: specwhisper models get {DRAFT} {TARGET}")
    return load_checkpoint(name, dtype=dtype)


@cache
def encoder(name: str, dtype: str = "float32") -> CachingEncoder:
    """Return a model's encoder, which computes each window once for all tests."""
    return CachingEncoder(load_encoder(checkpoint(name, dtype)))


@cache
def target(dtype: str = "float32") -> WhisperModel:
    """Return whisper-base with room for three sessions."""
    return WhisperModel(checkpoint(TARGET, dtype), 3, encoder=encoder(TARGET, dtype))


@cache
def draft() -> Model:
    """Return whisper-tiny.en, translated into the tokens of whisper-base."""
    return open_draft(checkpoint(DRAFT), 6, target().vocabulary, encoder=encoder(DRAFT))


@cache
def pcm(*names: str) -> bytes:
    """Return bundled recordings, one after the other."""
    return b"".join(piece for name in names for piece in decode_file(HUMAN / name))


def options_for(audio: bytes, **options: object) -> DecodingOptions:
    """Return options for a recording, with its log-mel maximum if it is long."""
    maximum = log_mel_max([audio]) if len(audio) // 2 > WINDOW_SAMPLES else {}
    return DecodingOptions.greedy(log_mel_max=maximum, **options)


_transcribed: dict[tuple[object, ...], Transcription] = {}


def transcribed(
    mode: Mode, audio: bytes, options: DecodingOptions, *, dtype: str = "float32"
) -> Transcription:
    """Transcribe a recording in a mode, once for all tests."""
    key = mode, audio, repr(options), dtype
    if key not in _transcribed:
        drafts = None if mode is Mode.TARGET_ONLY else draft()
        pair = InlinePair(target(dtype), drafts, mode=mode, max_new_tokens=checkpoint(TARGET).max_new_tokens)
        _transcribed[key] = pair.transcribe([audio], options)[0]
    return _transcribed[key]


def reference(audio: bytes, options: DecodingOptions) -> OracleText:
    """Return the text of transformers' ``generate``."""
    torch.set_num_threads(1)  # tests run side by side
    return transcribe(_transformers(), audio, options)


@cache
def _transformers() -> WhisperForConditionalGeneration:
    """Return transformers' whisper-base, which encodes each window once for all tests."""
    model = as_transformers(checkpoint(TARGET))
    encode, encoded = model.model.encoder.forward, {}

    def encode_once(input_features: torch.Tensor, **_: object) -> BaseModelOutput:
        key = input_features.numpy().tobytes()
        if key not in encoded:
            encoded[key] = encode(input_features).last_hidden_state
        return BaseModelOutput(encoded[key])

    model.model.encoder.forward = encode_once
    return model
