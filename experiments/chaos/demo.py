"""The demo pair instead of scripted models: real weights and recorded speech."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, partial
from random import Random

from experiments.common.audio.samples import load_samples
from experiments.common.serve_scripted import DraftSettings, TargetSettings
from experiments.common.servers.emptiest import always_choose_emptiest
from experiments.common.servers.forked import Probes
from specwhisper.audio.scan import log_mel_max
from specwhisper.engine.inline_pair import InlinePair
from specwhisper.engine.process import prepare_process
from specwhisper.model.checkpoints.checkpoint import load_checkpoint
from specwhisper.model.model import WhisperModel
from specwhisper.options import DecodingOptions
from specwhisper.rpc.serving import serve
from specwhisper.testing.loading import VARIABLE, load_failpoints
from specwhisper.types import Limits, Segment
from specwhisper.wire.v1 import verification_pb2_grpc
from specwhisper_draft_server.config import DraftConfig
from specwhisper_draft_server.server import running_service as running_draft
from specwhisper_draft_server.server import services_of
from specwhisper_target_server.config import TargetConfig
from specwhisper_target_server.server import SERVICE_NAME as VERIFICATION
from specwhisper_target_server.server import running_service as running_target

TARGET, DRAFT = "demo-target", "demo-draft-tiny"
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
    """Return the target's own segments, decoded in one process."""
    model = WhisperModel(load_checkpoint(TARGET), 1)
    return InlinePair(model).transcribe([speech_of(seed)], options_of(seed))[0].segments


async def serve_target(settings: TargetSettings, probes: Probes) -> None:
    """Serve the demo target until a signal."""
    limits = Limits(max_sessions=settings.max_sessions)
    config = TargetConfig(
        model=TARGET,
        limits=limits,
        port=0,
        drain_timeout_s=settings.drain_timeout_s,
        failpoints=load_failpoints({VARIABLE: settings.failpoints}, "target"),
    )
    prepare_process(config.device, 1, None)
    async with running_target(config, load_checkpoint(TARGET)) as service:
        probes["taken_slots"] = lambda: settings.max_sessions - service.num_free_slots
        add = partial(verification_pb2_grpc.add_VerificationServicer_to_server, service)
        await serve({VERIFICATION: add}, config, on_drain=service.announce_drain)


async def serve_draft(settings: DraftSettings, probes: Probes) -> None:
    """Serve the demo draft until a signal."""
    if settings.chooses_emptiest:
        always_choose_emptiest()
    failpoints = load_failpoints({VARIABLE: settings.failpoints}, "draft")
    config = DraftConfig(
        target=settings.target,
        draft_model=DRAFT,
        max_sessions=settings.max_sessions,
        resume_timeout_s=settings.resume_timeout_s,
        port=0,
        drain_timeout_s=settings.drain_timeout_s,
        failpoints=failpoints,
    )
    prepare_process(config.device, 1, None)
    async with running_draft(config, load_checkpoint(DRAFT)) as service:
        probes["taken_slots"] = lambda: service.num_sessions
        probes["hanging"] = lambda: failpoints.num_hanging if failpoints is not None else 0
        await serve(services_of(service, config), config, check_health=service.check_health)
