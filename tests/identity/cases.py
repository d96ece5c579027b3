"""What the identity promise is proved on: random checkpoints, recordings, and drafts of every quality."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from functools import cache, cached_property

import numpy as np
import torch
from torch import nn
from transformers import WhisperForConditionalGeneration

from specwhisper.audio.scan import log_mel_max
from specwhisper.types import WINDOW_SAMPLES, DecodingOptions, Task
from specwhisper.whisper.checkpoint import Checkpoint, checkpoint_from_model
from specwhisper.whisper.model import WhisperModel
from specwhisper.whisper.pairing import draft_ids
from tests import oracle
from tests.checkpoints import Shape, build_model, perturbed
from tests.identity.remembering import heard_once

SAMPLES_PER_S = 16_000


@dataclass(frozen=True)
class Case:
    """One checkpoint under one set of options, and the lengths of the recordings it transcribes.

    ``end_logit`` is added to the logit of end-of-text and ``time_logit`` to those of timestamps: random
    weights alone would hardly ever end a window.
    """

    name: str
    shape: Shape
    lengths_s: tuple[float, ...]
    timestamps: bool = True
    max_new_tokens: int | None = 40
    end_logit: float = 3.0
    time_logit: float = -1.5
    language: str = "en"
    task: Task = Task.TRANSCRIBE


CASES = (
    Case("tiny-like", Shape(seed=11), (0.5, 29.99, 65.0)),
    Case(
        "large-v3-like",
        Shape(
            num_mel_bins=128, cantonese=True, d_model=96, heads=3, encoder_layers=2, decoder_layers=3, seed=13
        ),
        (3.0, 65.0),
        end_logit=3.0,
    ),
    Case(
        "any-first-time",
        Shape(max_initial_timestamp=None, heads=4, encoder_layers=3, seed=14),
        (3.0, 30.0, 65.0),
        end_logit=3.0,
        language="de",
        task=Task.TRANSLATE,
    ),
    Case(
        "mostly-timestamps",
        Shape(max_initial_timestamp=None, d_model=48, heads=3, seed=20),
        (0.5, 29.99, 65.0),
        time_logit=1.0,
    ),
    Case(
        "english-only",
        Shape(english_only=True, d_model=48, heads=4, decoder_layers=1, seed=15),
        (0.5, 3.0, 31.0, 65.0),
        end_logit=2.0,
    ),
    Case(
        "short-context",
        Shape(max_target_positions=30, seed=17),
        (3.0, 30.0, 65.0),
        max_new_tokens=None,
        end_logit=0.0,
    ),
    Case(
        "shortest-context",
        Shape(
            num_mel_bins=128, cantonese=True, max_target_positions=12, decoder_layers=4, d_model=32, seed=18
        ),
        (0.5, 31.0, 65.0),
        max_new_tokens=None,
        end_logit=2.0,
    ),
    Case(
        "two-tokens",
        Shape(seed=21, cantonese=True, encoder_layers=2),
        (3.0, 31.0),
        max_new_tokens=2,
        end_logit=-5.0,
    ),
    Case(
        "no-timestamps",
        Shape(128, cantonese=True, d_model=128, heads=2, seed=12),
        (0.5, 3.0, 29.99, 30.0),
        timestamps=False,
        end_logit=2.5,
        time_logit=-6.0,
    ),
    Case(
        "english-only-no-timestamps",
        Shape(english_only=True, d_model=32, heads=1, decoder_layers=3, seed=16),
        (0.5, 3.0, 29.99, 30.0),
        timestamps=False,
    ),
    Case(
        "stray-timestamps",  # written although none were asked for: transformers cuts the window by them
        Shape(max_target_positions=24, heads=8, seed=19),
        (0.5, 3.0, 30.0),
        timestamps=False,
        max_new_tokens=None,
        end_logit=1.0,
        time_logit=0.0,
    ),
)
DRAFTS = ("itself", "noisy", "older", "shorter", "stranger")


@dataclass(frozen=True)
class Batch:
    """Recordings that one call transcribes side by side, and what transformers makes of each."""

    pcms: tuple[bytes, ...]
    options: DecodingOptions
    oracles: tuple[oracle.OracleText, ...]


class Prepared:
    """A case with its models in memory."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.model, self.tokens = build_model(case.shape)
        _tilt(self.model, end_logit=case.end_logit, time_logit=case.time_logit)
        self.options = DecodingOptions(
            language=case.language,
            task=case.task,
            timestamps=case.timestamps,
            max_new_tokens=case.max_new_tokens,
        )
        self.pcms = tuple(recording(case.shape.seed, length_s) for length_s in case.lengths_s)
        self._suppress_what_it_likes()
        self.checkpoint = heard_once(checkpoint_from_model(self.model, self.tokens, name=case.name))
        self._drafts: dict[str, Checkpoint] = {"itself": self.checkpoint}

    @cached_property
    def batches(self) -> list[Batch]:
        """Short recordings together, each long one alone: only there is the loudest moment an option."""
        short = tuple(pcm for pcm in self.pcms if not is_long(pcm))
        groups = [(short, self.options)] if short else []
        groups += [
            ((pcm,), replace(self.options, log_mel_max=log_mel_max([pcm])))
            for pcm in self.pcms
            if is_long(pcm)
        ]
        return [
            Batch(pcms, options, tuple(oracle.transcribe(self.model, pcm, options) for pcm in pcms))
            for pcms, options in groups
        ]

    @cached_property
    def oracles(self) -> list[oracle.OracleText]:
        """All oracle texts."""
        return [text for batch in self.batches for text in batch.oracles]

    def _suppress_what_it_likes(self) -> None:
        """Forbid what the model says first, then what it says most, so that both lists bind."""
        generation = self.model.generation_config
        end = generation.eos_token_id
        first = self._said()[0]
        generation.begin_suppress_tokens = [*generation.begin_suppress_tokens, first]
        text = [token for token in self._said() if token < end and token != first]
        generation.suppress_tokens = sorted({*generation.suppress_tokens, max(text, key=text.count)})

    def _said(self) -> list[int]:
        windows = oracle.transcribe(self.model, self.pcms[-1], self.options).windows
        return [token for window in windows for token in window.tokens]

    def target(self, num_slots: int) -> WhisperModel:
        """The target as we run it."""
        return WhisperModel(self.checkpoint, num_slots)

    def draft(self, kind: str, num_slots: int) -> WhisperModel:
        """A draft of one of the :data:`DRAFTS`, speaking the target's vocabulary."""
        if kind not in self._drafts:
            self._drafts[kind] = heard_once(getattr(self, f"_{kind}")())
        draft, target = self._drafts[kind], self.checkpoint
        ids = draft_ids(draft.vocabulary, target.vocabulary, draft_name=draft.name, target_name=target.name)
        return WhisperModel(draft, num_slots, vocabulary=target.vocabulary, ids=ids)

    def _noisy(self) -> Checkpoint:
        return perturbed(self.model, self.tokens, noise=0.01)

    def _older(self) -> Checkpoint:
        """The same weights in the other mel count and the other vocabulary, as tiny is to large-v3."""
        model, tokens = build_model(self._other_shape)
        theirs = {token: i for i, token in enumerate(self.tokens)}
        state = self.model.state_dict()
        fitting = {key: value for key, value in state.items() if value.shape == model.state_dict()[key].shape}
        model.load_state_dict(fitting, strict=False)
        heard = state["model.encoder.conv1.weight"].permute(2, 0, 1)  # taps x channels x mel bins
        bins, theirs_bins = model.config.num_mel_bins, self.model.config.num_mel_bins
        resampled = nn.functional.interpolate(heard, bins, mode="linear") * theirs_bins / bins
        model.model.encoder.conv1.weight.data = resampled.permute(1, 2, 0).contiguous()
        rows = torch.tensor([theirs.get(token, 0) for token in tokens])
        model.model.decoder.embed_tokens.weight.data = state["model.decoder.embed_tokens.weight"][rows]
        model.tie_weights()
        return checkpoint_from_model(model, tokens, name="older")

    def _shorter(self) -> Checkpoint:
        """Noisy, and its context ends before the target's does."""
        model = copy.deepcopy(self.model)
        positions = min(24, self.case.shape.max_target_positions - 3)
        model.config.max_target_positions = positions
        embedding = model.model.decoder.embed_positions
        embedding.weight = nn.Parameter(embedding.weight[:positions])
        return perturbed(model, self.tokens, noise=0.004)

    def _stranger(self) -> Checkpoint:
        """Weights of its own: nearly everything it says is wrong."""
        model, tokens = build_model(replace(self._other_shape, seed=99))
        return checkpoint_from_model(model, tokens, name="stranger")

    @property
    def _other_shape(self) -> Shape:
        shape = self.case.shape
        return replace(shape, num_mel_bins=208 - shape.num_mel_bins, cantonese=not shape.cantonese)


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
    num_samples = int(length_s * SAMPLES_PER_S)
    time_s = np.arange(num_samples) / SAMPLES_PER_S
    pitch_hz = random.integers(100, 2_000, int(length_s) + 1)[time_s.astype(int)]
    samples = random.normal(0, 0.1, num_samples) + 0.5 * np.sin(2 * np.pi * pitch_hz * time_s)
    samples *= np.linspace(0.05, 1, num_samples)
    samples[time_s % 4 > 3] = 0
    return (samples.clip(-1, 1) * 32767).astype("<i2").tobytes()


def _tilt(model: WhisperForConditionalGeneration, *, end_logit: float, time_logit: float) -> None:
    """Give one dimension of the last hidden state to a constant, and add to logits through it."""
    decoder, generation = model.model.decoder, model.generation_config
    with torch.no_grad():
        decoder.layer_norm.weight[0] = 0.0
        decoder.layer_norm.bias[0] = 1.0
        decoder.embed_tokens.weight[:, 0] = 0.0
        decoder.embed_tokens.weight[generation.eos_token_id, 0] = end_logit
        decoder.embed_tokens.weight[generation.no_timestamps_token_id + 1 :, 0] = time_logit
