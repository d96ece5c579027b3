"""Whisper models in a draft server's process: the draft, and perhaps a target.

A server without a draft, or with one of another kind, doesn't load this module, only the protocols
of a draft in ``draft_source``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from specwhisper.engine.process import redirect_logs, return_freed_memory
from specwhisper.engine.target_engine import TargetEngine
from specwhisper.errors import UnsupportedOption
from specwhisper.model.backend import Encoder
from specwhisper.model.backends import library_for, load_encoder, load_encoders
from specwhisper.model.checkpoints.checkpoint import Checkpoint, load_checkpoint
from specwhisper.model.model import WhisperModel
from specwhisper.model.translated import TranslatedModel, open_draft
from specwhisper.observe.metrics import EngineMetrics, Registry
from specwhisper.types import Limits, default_num_batched_tokens
from specwhisper_draft_server.config import DraftConfig
from specwhisper_draft_server.drafting import Drafting
from specwhisper_draft_server.local_target import LocalTranscriber
from specwhisper_draft_server.metrics import DraftMetrics
from specwhisper_draft_server.placement import PlaceDraft
from specwhisper_draft_server.transcriber import TargetDescription


def load_draft(config: DraftConfig) -> Checkpoint:
    checkpoint = load_checkpoint(
        config.draft_model, revision=config.revision, dtype=config.dtype, is_draft=True
    )
    library = library_for(checkpoint, config.device)
    if config.cut_windows and library != "onnx":
        raise UnsupportedOption(f"--cut-windows is for ONNX Runtime, not for {library}: leave it out.")
    redirect_logs(library)
    return replace(checkpoint, tokenizer=None)  # the target converts prompts


def load_target(config: DraftConfig, target_model: str) -> Checkpoint:
    checkpoint = load_checkpoint(target_model, revision=config.target_revision, dtype=config.target_dtype)
    redirect_logs(library_for(checkpoint, config.target_device))
    return checkpoint


def load_encoders_of(
    config: DraftConfig, draft: Checkpoint | None, target: Checkpoint | None
) -> tuple[Encoder | None, Encoder | None]:
    devices = {"draft_device": config.device, "target_device": config.target_device}
    if draft is not None and target is not None:
        return load_encoders(draft, target, config.max_sessions, **devices)
    return (
        None if draft is None else load_encoder(draft, config.device),
        None if target is None else load_encoder(target, config.target_device),
    )


def drafting_of(
    config: DraftConfig,
    checkpoint: Checkpoint,
    encoder: Encoder | None,
    place: PlaceDraft | None,
    on_failure: Callable[[], None],
) -> Drafting:
    """Return the draft model's engine; the model is placed once a target is known.

    Parameters
    ----------
    encoder : the checkpoint's.
    place : places the draft for a target's vocabulary; by default the checkpoint.
    """
    place = place or partial(place_and_warm_up, config, checkpoint, encoder)
    failpoints = config.failpoints
    return Drafting(
        checkpoint,
        place if failpoints is None else lambda to: failpoints.wrap_model(place(to), "draft"),
        timeout_s=config.draft_timeout_s,
        on_failure=on_failure,
    )


def place_and_warm_up(
    config: DraftConfig, checkpoint: Checkpoint, encoder: Encoder | None, target: TargetDescription
) -> WhisperModel | TranslatedModel:
    """Place the draft and warm it up; afterwards only the model has the weights."""
    model = open_draft(
        *(checkpoint, config.max_sessions, target.vocabulary),
        device=config.device,
        encoder=encoder,
        cut_windows=config.cut_windows,
    )
    model.warm_up()
    checkpoint.weights.close()  # last: placing is retried if anything fails
    return_freed_memory()
    return model


def local_transcriber(
    config: DraftConfig, target: Checkpoint, encoder: Encoder | None, metrics: DraftMetrics
) -> LocalTranscriber:
    limits = Limits(max_sessions=config.max_sessions)
    model = WhisperModel(target, config.max_sessions, device=config.target_device, encoder=encoder)
    target.weights.close()  # the model has its own copy, in its device's layout
    model.warm_up()
    registry = Registry("specwhisper_target", metrics.collected)
    registry.export_build(target.name, target.dtype, config.target_device)
    figures = EngineMetrics(registry)
    engine = TargetEngine(
        model,
        limits=limits,
        max_num_batched_tokens=default_num_batched_tokens(config.target_device),
        max_new_tokens=target.max_new_tokens,
        observe=figures.observe,
    )
    figures.watch(engine.verifier)
    return LocalTranscriber(target, engine, figures.on_message)
