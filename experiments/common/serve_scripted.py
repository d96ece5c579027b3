"""Real servers with scripted models."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from experiments.common.models.in_memory import weights_in_memory
from experiments.common.models.scripted import VOCABULARY, ScriptedModel
from experiments.common.models.speech import SPOKEN_MULTILINGUAL, EnergyVad, SpeechOrNoiseModel
from experiments.common.servers.emptiest import always_choose_emptiest
from experiments.common.servers.forked import Probes
from specwhisper.engine.process import prepare_process
from specwhisper.model.checkpoints.checkpoint import Checkpoint
from specwhisper.model.checkpoints.sizes import ModelSizes
from specwhisper.model.choosing import Row, Scores
from specwhisper.rpc.serving import serve
from specwhisper.testing.loading import VARIABLE, load_failpoints
from specwhisper.types import Limits
from specwhisper.wire.v1 import verification_pb2_grpc
from specwhisper_draft_server import voice_activity as voice
from specwhisper_draft_server.config import DraftConfig
from specwhisper_draft_server.server import running_service as running_draft
from specwhisper_draft_server.server import services_of
from specwhisper_target_server.config import TargetConfig
from specwhisper_target_server.server import SERVICE_NAME as VERIFICATION
from specwhisper_target_server.server import running_service as running_target

ERROR_RATE = 0.2  # share of wrong draft tokens


def scripted_checkpoint(name: str = "scripted", **changes: Any) -> Checkpoint:
    """Return the checkpoint that a server sees for a scripted model."""
    checkpoint = Checkpoint(
        name=name,
        sizes=ModelSizes(*8 * [1], num_mel_bins=ScriptedModel.num_mel_bins),
        vocabulary=VOCABULARY,
        weights=weights_in_memory({}),
        weights_digest=f"digest of {name}",
    )
    return replace(checkpoint, **changes)


class PacedModel(SpeechOrNoiseModel):
    def __init__(self, num_slots: int, *, pass_ms: float, seed: int = 0, error_rate: float = 0.0) -> None:
        super().__init__(num_slots, vocabulary=SPOKEN_MULTILINGUAL, seed=seed, error_rate=error_rate)
        self._pass_s = pass_ms / 1_000

    def score(self, rows: Sequence[Row]) -> list[Scores]:
        time.sleep(self._pass_s)
        return super().score(rows)


@dataclass(frozen=True, slots=True)
class TargetSettings:
    """Settings of a scripted target server.

    Attributes
    ----------
    seed : seed of its text; the digest does not depend on it.
    weights : name of its weights, on which the digest depends.
    failpoints : as in the environment variable.
    """

    port: int = 0
    max_sessions: int = 16
    seed: int = 0
    pass_ms: float = 0.0
    drain_timeout_s: float = 30.0
    failpoints: str = ""
    weights: str = "scripted"


@dataclass(frozen=True, slots=True)
class DraftSettings:
    """Settings of a scripted draft server.

    Attributes
    ----------
    chooses_emptiest : whether sessions start at the target with the most free slots, not at a random one.
    """

    target: str
    port: int = 0
    max_sessions: int = 16
    pass_ms: float = 0.0
    drain_timeout_s: float = 30.0
    resume_timeout_s: float = 60.0
    idle_timeout_s: float = 60.0
    max_audio_s: float = 4 * 3600.0
    failpoints: str = ""
    chooses_emptiest: bool = False


async def serve_target(settings: TargetSettings, probes: Probes, model: PacedModel | None = None) -> None:
    """Serve until a signal; a given model needs ``max_sessions`` slots."""
    limits = Limits(max_sessions=settings.max_sessions)
    config = TargetConfig(
        limits=limits,
        port=settings.port,
        drain_timeout_s=settings.drain_timeout_s,
        failpoints=load_failpoints({VARIABLE: settings.failpoints}, "target"),
    )
    prepare_process(config.device, 1, None)
    checkpoint = scripted_checkpoint(
        vocabulary=SPOKEN_MULTILINGUAL, weights_digest=f"digest of {settings.weights}"
    )
    model = model or PacedModel(settings.max_sessions, pass_ms=settings.pass_ms, seed=settings.seed)
    async with running_target(config, checkpoint, model) as service:
        probes["taken_slots"] = lambda: settings.max_sessions - service.num_free_slots
        add = partial(verification_pb2_grpc.add_VerificationServicer_to_server, service)
        await serve({VERIFICATION: add}, config, on_drain=service.announce_drain)


async def serve_draft(settings: DraftSettings, probes: Probes, model: PacedModel | None = None) -> None:
    """Serve until a signal; voice activity is any sound."""
    voice._model = EnergyVad
    if settings.chooses_emptiest:
        always_choose_emptiest()
    failpoints = load_failpoints({VARIABLE: settings.failpoints}, "draft")
    config = DraftConfig(
        target=settings.target,
        max_sessions=settings.max_sessions,
        resume_timeout_s=settings.resume_timeout_s,
        max_audio_s=settings.max_audio_s,
        port=settings.port,
        drain_timeout_s=settings.drain_timeout_s,
        idle_timeout_s=settings.idle_timeout_s,
        failpoints=failpoints,
    )
    prepare_process(config.device, 1, None)
    checkpoint = scripted_checkpoint("scripted-draft", vocabulary=SPOKEN_MULTILINGUAL)
    placed = model or PacedModel(config.max_sessions, pass_ms=settings.pass_ms, error_rate=ERROR_RATE)
    async with running_draft(config, checkpoint, lambda _: placed) as service:
        probes["sessions"] = lambda: service.num_sessions
        probes["hanging"] = lambda: failpoints.num_hanging if failpoints is not None else 0
        probes["taken_slots"] = lambda: _num_taken(service.num_free_draft_slots, config.max_sessions)
        await serve(services_of(service, config), config, check_health=service.check_health)


def _num_taken(num_free: int | None, num_slots: int) -> int:
    return 0 if num_free is None else num_slots - num_free
