"""A prepared case: target, drafts of every quality, and the oracle's text."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any

import numpy as np
import torch
from torch import nn
from transformers import WhisperForConditionalGeneration, WhisperTokenizer

from experiments.common.audio.samples import load_samples
from experiments.common.inline_pair import InlinePair
from experiments.common.models.checkpoints import (
    PUBLISHED,
    Shape,
    build_model,
    build_tokenizer,
    checkpoint_from_model,
    perturbed,
)
from experiments.exactness.cases import Case
from experiments.exactness.oracle import OracleText, Steered, transcribe
from specwhisper.audio.recording import log_mel_max
from specwhisper.model.backend import Encoder, Features
from specwhisper.model.backends import has_same_encoder, load_encoder, share
from specwhisper.model.checkpoints.checkpoint import Checkpoint, load_checkpoint
from specwhisper.model.checkpoints.names import resolve
from specwhisper.model.model import Model, WhisperModel
from specwhisper.model.translated import open_draft
from specwhisper.options import DecodingOptions
from specwhisper.types import SAMPLE_RATE, WINDOW_SAMPLES


class CachingEncoder:
    """Computes each window once: encoding takes most of the time of repeated runs."""

    max_windows = 1  # encoded one by one, since each may be known

    def __init__(self, encoder: Encoder) -> None:
        self._encoder = encoder
        self._outputs: dict[bytes, Any] = {}

    def __call__(self, windows: Sequence[Features]) -> Sequence[Any]:
        return [self._encode(features) for features in windows]

    def _encode(self, features: Features) -> Any:
        key = hashlib.blake2b(features.tobytes()).digest()
        if key not in self._outputs:
            (self._outputs[key],) = self._encoder([features])
        return self._outputs[key]


Parts = tuple[Checkpoint, nn.Module]  # a model's checkpoint and its encoder
DRAFTS = ("itself", "noisy", "older", "shorter", "stranger", "distil", "foreign")


@dataclass(frozen=True)
class Batch:
    """Recordings transcribed side by side, the options of each, and what transformers writes."""

    pcms: tuple[bytes, ...]
    options: tuple[DecodingOptions, ...]
    oracles: tuple[OracleText, ...]


class Prepared:
    """A case with its models in memory; ``drafts`` are the kinds it is decoded with, one for each mode."""

    def __init__(self, case: Case) -> None:
        self.case, self.drafts, self.options = case, case.drafts, case.options
        self.model, self.tokens = build_model(case.shape)
        tilt(self.model, end_logit=case.end_logit, time_logit=case.time_logit)
        self.model.generation_config.language = case.own_language
        self.tokenizer = build_tokenizer(case.shape)
        self.pcms = tuple(recording(case.shape.seed, length_s) for length_s in case.lengths_s)
        self.checkpoint = self._checkpoint()
        self._suppress_frequent_tokens()
        self._drafts: dict[str, Parts] = {"itself": (self.checkpoint, self.encoder)}

    def _checkpoint(self) -> Checkpoint:
        return checkpoint_from_model(self.model, self.tokens, name=self.case.name, tokenizer=self.tokenizer)

    def _suppress_frequent_tokens(self) -> None:
        """Suppress the model's first and its most frequent token, so that both lists have an effect."""
        generation = self.model.generation_config
        end = generation.eos_token_id
        first = next(iter(self._written()), end)
        generation.begin_suppress_tokens = [*generation.begin_suppress_tokens, first]
        self.checkpoint = self._checkpoint()
        text = [token for token in self._written() if token < end and token != first]
        often = {max(text, key=text.count)} if text else set()
        generation.suppress_tokens = sorted({*generation.suppress_tokens, *often})
        self.checkpoint = self._checkpoint()

    def _written(self) -> list[int]:
        """Return the tokens of the last recording, from our engine: it is faster than transformers."""
        text = InlinePair(self.target(1)).transcribe(self.pcms[-1:], self.recording_options[-1])[0]
        return [token for window in text.window_tokens for token in window]

    @cached_property
    def encoder(self) -> nn.Module:
        return CachingEncoder(load_encoder(self.checkpoint))

    @cached_property
    def recording_options(self) -> tuple[DecodingOptions, ...]:
        """Options of each recording; of long ones the loudest moment is one."""
        return tuple(
            replace(self.options, log_mel_max=log_mel_max([pcm], padding=self.options.padding))
            if is_long(pcm)
            else self.options
            for pcm in self.pcms
        )

    @cached_property
    def batch(self) -> Batch:
        oracles = tuple(map(self.oracle, self.pcms, self.recording_options))
        return Batch(self.pcms, self.recording_options, oracles)

    def oracle(self, pcm: bytes, options: DecodingOptions) -> OracleText:
        return transcribe(self.model, pcm, options, tokenizer=self.tokenizer)

    def target(self, num_slots: int, encoder: nn.Module | None = None) -> WhisperModel:
        return WhisperModel(self.checkpoint, num_slots, encoder=encoder or self.encoder)

    def steered(self, num_slots: int, encoder: nn.Module | None = None) -> Steered:
        """Return the target, which continues from the oracle's token at the oracle's ties."""
        lengths = [len(pcm) // 2 for pcm in self.pcms]
        oracles = dict(zip(lengths, self.batch.oracles, strict=True))
        return Steered(self.target(num_slots, encoder), oracles)

    def draft(self, kind: str, num_slots: int) -> Model:
        return self._opened(*self._parts(kind), num_slots)

    def pair(self, kind: str, num_slots: int) -> tuple[Steered, Model]:
        """Return target and draft; they share an encoder where theirs are the same."""
        draft, drafts_encoder = self._parts(kind)
        encoder = self.encoder
        if has_same_encoder(draft, self.checkpoint):
            drafts_encoder, encoder = share(encoder, num_slots)
        return self.steered(num_slots, encoder), self._opened(draft, drafts_encoder, num_slots)

    def _opened(self, draft: Checkpoint, encoder: nn.Module, num_slots: int) -> Model:
        return open_draft(draft, num_slots, self.checkpoint.vocabulary, encoder=encoder)

    def _parts(self, kind: str) -> Parts:
        if kind not in self._drafts:
            checkpoint = self._draft_checkpoint(kind)
            self._drafts[kind] = checkpoint, CachingEncoder(load_encoder(checkpoint))
        return self._drafts[kind]

    def _draft_checkpoint(self, kind: str) -> Checkpoint:
        shape = self.case.shape
        other = replace(shape, num_mel_bins=208 - shape.num_mel_bins, cantonese=not shape.cantonese)
        model = copy.deepcopy(self.model) if kind in ("shorter", "distil") else self.model
        match kind:
            case "noisy":
                return perturbed(model, self.tokens, noise=0.01)
            case "older":  # the same weights in the other mel count and vocabulary, as tiny is to large-v3
                return self._with_other_tokens(other, kind)
            case "foreign":  # each byte is a token, and it has languages if the target has none
                bytewise = replace(shape, words="bytes", english_only=not shape.english_only)
                return self._with_other_tokens(bytewise, kind)
            case "shorter":  # noisy, and its context ends before the target's does
                positions = min(24, shape.max_target_positions - 3)
                model.config.max_target_positions = positions
                embedding = model.model.decoder.embed_positions
                embedding.weight = nn.Parameter(embedding.weight[:positions])
                return perturbed(model, self.tokens, noise=0.004)
            case "distil":  # with the first and the last layer of the decoder, as distil-whisper
                layers = model.model.decoder.layers
                model.model.decoder.layers = nn.ModuleList([layers[0], layers[-1]])
                model.config.decoder_layers = 2
                return checkpoint_from_model(model, self.tokens, name=kind)
            case "stranger":  # nearly all of its tokens are wrong
                return checkpoint_from_model(*build_model(replace(other, seed=99)), name=kind)
            case _:
                return checkpoint_from_model(*build_model(replace(PUBLISHED[kind], seed=98)), name=kind)

    def _with_other_tokens(self, shape: Shape, name: str) -> Checkpoint:
        model, tokens = build_model(shape)
        theirs = {token: i for i, token in enumerate(self.tokens)}
        state = self.model.state_dict()
        fitting = {key: value for key, value in state.items() if value.shape == model.state_dict()[key].shape}
        model.load_state_dict(fitting, strict=False)
        taps = state["model.encoder.conv1.weight"].permute(2, 0, 1)  # taps x channels x mel bins
        bins, theirs_bins = model.config.num_mel_bins, self.model.config.num_mel_bins
        resampled = nn.functional.interpolate(taps, bins, mode="linear") * theirs_bins / bins
        model.model.encoder.conv1.weight.data = resampled.permute(1, 2, 0).contiguous()
        rows = torch.tensor([theirs.get(token, 0) for token in tokens])
        model.model.decoder.embed_tokens.weight.data = state["model.decoder.embed_tokens.weight"][rows]
        model.tie_weights()
        return checkpoint_from_model(model, tokens, name=name)


class DemoPair(Prepared):
    """The demo pair and its samples, as a case is prepared: trained weights and real speech."""

    def __init__(self, options: DecodingOptions) -> None:
        tiny, distil = "demo-draft-tiny", "demo-draft-distil"
        self.drafts, self.options = (tiny, distil, tiny, distil), options
        folder = resolve("demo-target")
        self.model = WhisperForConditionalGeneration.from_pretrained(folder).float().eval()
        self.checkpoint = load_checkpoint("demo-target")
        self.tokenizer = WhisperTokenizer.from_pretrained(folder)
        # transformers takes no longer recording without timestamps.
        samples = [sample for sample in load_samples(None) if options.timestamps or sample.fits_one_window]
        self.pcms = tuple(sample.pcm for sample in samples)
        self._drafts = {}

    def _draft_checkpoint(self, kind: str) -> Checkpoint:
        return load_checkpoint(kind)


@cache
def prepared(case: Case) -> Prepared:
    """Build a case once for all tests of the process."""
    return Prepared(case)


def is_long(pcm: bytes) -> bool:
    """Whether transformers decodes it in several windows of 30 s."""
    return len(pcm) // 2 > WINDOW_SAMPLES


@cache
def recording(seed: int, length_s: float) -> bytes:
    """Noise of rising loudness under a melody, with pauses; s16le.

    Every window sounds different, and what the silence in it counts as depends on the loudest moment of all.
    """
    random = np.random.default_rng(seed)
    num_samples = int(length_s * SAMPLE_RATE)
    time_s = np.arange(num_samples) / SAMPLE_RATE
    pitch_hz = random.integers(100, 2_000, int(length_s) + 1)[time_s.astype(int)]
    samples = random.normal(0, 0.1, num_samples) + 0.5 * np.sin(2 * np.pi * pitch_hz * time_s)
    samples *= np.linspace(0.05, 1, num_samples)
    samples[time_s % 4 > 3] = 0
    return (samples.clip(-1, 1) * 32767).astype("<i2").tobytes()


def tilt(model: WhisperForConditionalGeneration, *, end_logit: float, time_logit: float) -> None:
    """Return one dimension of the last hidden state to a constant, and add to logits through it."""
    decoder, generation = model.model.decoder, model.generation_config
    with torch.no_grad():
        decoder.layer_norm.weight[0] = 0.0
        decoder.layer_norm.bias[0] = 1.0
        decoder.embed_tokens.weight[:, 0] = 0.0
        decoder.embed_tokens.weight[generation.eos_token_id, 0] = end_logit
        decoder.embed_tokens.weight[generation.no_timestamps_token_id + 1 :, 0] = time_logit
