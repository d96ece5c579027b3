"""Whisper models in a draft server's process: the draft, and perhaps a target with its sessions' streams.

A server without a draft, or with one of another kind, doesn't load this module, only the protocols
of a draft in ``draft_source``.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from time import perf_counter_ns
from typing import Any

from specwhisper.engine.process import redirect_logs, return_freed_memory
from specwhisper.engine.target_engine import TargetEngine
from specwhisper.errors import ServerDraining, ServerFull, UnsupportedOption
from specwhisper.model.backend import Encoder
from specwhisper.model.backends import library_for, load_encoder, load_encoders
from specwhisper.model.checkpoints.checkpoint import Checkpoint, load_checkpoint
from specwhisper.model.model import WhisperModel
from specwhisper.model.translated import TranslatedModel, open_draft
from specwhisper.observe.metrics import EngineMetrics, Registry
from specwhisper.options import DecodingOptions
from specwhisper.types import (
    AudioChunk,
    Commit,
    Failed,
    Finished,
    Limits,
    Mode,
    WindowOpened,
    default_num_batched_tokens,
)
from specwhisper.wire.pacing import PIECE_BYTES
from specwhisper_draft_server.config import DraftConfig
from specwhisper_draft_server.drafting import Drafting, PlaceDraft
from specwhisper_draft_server.metrics import DraftMetrics
from specwhisper_draft_server.transcriber import ANY, Message, Requirements, TargetDescription

ADDRESS = "in this process"


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
    """Return the draft model's engine, which ``place`` places once a target is known."""
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


class LocalTargetStream:
    """A session's stream to a target in this process; see :class:`TargetStream`."""

    address = ADDRESS
    min_round_trip_ns = 0
    piece_bytes = PIECE_BYTES

    def __init__(
        self,
        session_id: str,
        target: TargetDescription,
        engine: TargetEngine,
        events: asyncio.Queue[Any],
        note: Callable[[object], None],
    ) -> None:
        self.target = target
        self._note = note
        self.limits = engine.verifier.limits
        self._id = session_id
        self._engine = engine
        self._events = events
        self.going_away = asyncio.Event()  # never set: both are in one process

    def send(self, message: Message) -> None:
        self._note(message)
        self._engine.thread.post(partial(self._engine.verifier.submit, self._id, message, perf_counter_ns()))

    async def send_audio(self, chunk: AudioChunk) -> None:
        self._note(chunk)
        await self._engine.thread.call(partial(self._engine.verifier.submit, self._id, chunk))

    async def events(self) -> AsyncIterator[WindowOpened | Commit]:
        while not isinstance(event := await self._events.get(), Finished):
            if isinstance(event, Failed):
                raise event.error
            yield event

    def leave(self) -> None:
        self._events.put_nowait(Failed(ServerDraining("The session has left its target.")))


class LocalTranscriber:
    """A target in this process; see :class:`Transcriber`. ``note`` is called with each message to it."""

    address = ADDRESS

    def __init__(
        self,
        checkpoint: Checkpoint,
        engine: TargetEngine,
        note: Callable[[object], None] = lambda message: None,
    ) -> None:
        self._checkpoint = checkpoint
        self._engine = engine
        self._note = note

    def known(
        self, requirements: Requirements = ANY, *, in_outages: bool = False
    ) -> TargetDescription | None:
        """Return ``None``: :meth:`describe` needs no round trip."""
        return None

    async def describe(self, requirements: Requirements = ANY) -> TargetDescription:
        return TargetDescription(
            model=self._checkpoint.name,
            weights_digest=self._checkpoint.weights_digest,
            vocabulary=self._checkpoint.vocabulary,
            num_mel_bins=self._checkpoint.num_mel_bins,
            limits=self._engine.verifier.limits,
        )

    @asynccontextmanager
    async def open(
        self,
        session_id: str,
        target: TargetDescription,
        mode: Mode,
        options: DecodingOptions,
        *,
        draft_model: str,
        same_weights: bool = False,
        avoid: str = "",
        within_s: float | None = None,
    ) -> AsyncIterator[LocalTargetStream]:
        if within_s is not None:
            raise ServerFull("No other target is available.")
        own_id = f"{session_id}-{secrets.token_hex(4)}"  # one may open before the last one is left
        events: asyncio.Queue[Any] = asyncio.Queue()
        async with self._engine.session(own_id, mode, options, events.put_nowait):
            yield LocalTargetStream(own_id, target, self._engine, events, self._note)

    async def check_room(self, target: TargetDescription) -> None:
        await self._engine.check_room()

    async def check_health(self) -> None:
        await self._engine.check_health()

    async def close(self) -> None:
        await self._engine.stop()
