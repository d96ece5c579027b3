"""The demo pair and recorded speech, in place of the scripted models."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from random import Random

from experiments.common import serve_scripted
from experiments.common.audio.samples import load_samples
from experiments.common.inline_pair import InlinePair
from experiments.common.serve_scripted import DraftSettings, TargetSettings
from experiments.common.servers.forked import Probes
from specwhisper.audio.recording import log_mel_max
from specwhisper.model.checkpoints.checkpoint import load_checkpoint
from specwhisper.model.model import WhisperModel
from specwhisper.options import DecodingOptions
from specwhisper.types import Segment

TARGET, DRAFT = "demo-target", "demo-draft-tiny"
MODELS = {"target": TARGET, "draft": DRAFT}
SHORTEST, NUM_JOINED = 5, 3


@cache
def speech_of(seed: int) -> bytes:
    """Return some of the shorter bundled recordings, joined."""
    return b"".join(sample.pcm for sample in Random(seed).sample(load_samples(None)[:SHORTEST], NUM_JOINED))


@cache
def options_of(seed: int) -> DecodingOptions:
    """Return decoding options with the recording's log-mel maximum, which no stream can know."""
    return DecodingOptions.greedy(language="en", log_mel_max=log_mel_max([speech_of(seed)]))


@cache
def expected_segments(seed: int) -> Sequence[Segment]:
    model = WhisperModel(load_checkpoint(TARGET), 1)
    return InlinePair(model).transcribe([speech_of(seed)], options_of(seed))[0].segments


async def serve_target(settings: TargetSettings, probes: Probes) -> None:
    await serve_scripted.serve_target(settings, probes, _placed(TARGET, settings.max_sessions))


async def serve_draft(settings: DraftSettings, probes: Probes) -> None:
    await serve_scripted.serve_draft(settings, probes, _placed(DRAFT, settings.max_sessions))


def _placed(name: str, num_slots: int) -> WhisperModel:
    """Place a model, and let this process serve its checkpoint, not the scripted one."""
    checkpoint = load_checkpoint(name)
    serve_scripted.scripted_checkpoint = lambda *_, **__: checkpoint
    return WhisperModel(checkpoint, num_slots)
