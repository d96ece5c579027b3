"""Settings of a draft server."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from specwhisper.extras import offers
from specwhisper.failpoints import Failpoints, read_failpoints
from specwhisper.rpc.addresses import to_addresses
from specwhisper.rpc.channels import Credentials, credentials_part
from specwhisper.rpc.serving_options import SHORT_CALLS, ServingOptions
from specwhisper.rpc.tokens import TARGET_TOKEN
from specwhisper.settings.setting import (
    DRAFTING,
    MODEL,
    OBSERVABILITY,
    SECURITY,
    SERVING,
    offered,
)
from specwhisper.settings.shared import (
    cores_option,
    device_option,
    dtype_option,
    port_option,
    revision_option,
    seconds_option,
    threads_option,
)
from specwhisper.speculation.draft_length import MAX_GAMMA, DraftLength
from specwhisper.transcription.speakers import SpeakerModels
from specwhisper.types import SERVER_MODES, Mode
from specwhisper.validated import ABOVE_0, choice, option, switch, text, whole

if TYPE_CHECKING:
    from specwhisper_draft_server.draft_source import LoadDraft

DEFAULT_PORT = 50_051
DEFAULT_TARGET = "127.0.0.1:50052"
LOCAL_TARGET, RECOGNISER = ("target_model",), ("draft_recogniser",)


@dataclass(frozen=True, kw_only=True)
class DraftConfig(ServingOptions):
    """Settings of ``specwhisper-draft-server``."""

    draft_model: str = text(
        "demo-draft-tiny",
        "Draft model: demo-draft-tiny, demo-draft-distil, a Whisper size (tiny ...), a hub id, folder or "
        "file.",
        "MODEL",
        panel=MODEL,
    )
    revision: str | None = revision_option(panel=MODEL, not_with=RECOGNISER)
    device: str = device_option(panel=MODEL, not_with=RECOGNISER)
    dtype: str = dtype_option(
        "Numeric type of the draft's weights: float32; on a CPU with VNNI int8; with PyTorch (the extra "
        "server) bfloat16 or float16. The text is the same with each.",
        panel=MODEL,
        not_with=RECOGNISER,
    )
    cut_windows: bool = switch(
        False,
        "Encode windows of recordings only as far as they hold audio and 6 s more, not to 30 s; on CPUs. "
        "Short ones are encoded many times faster; the draft may be right less often. Live audio is always "
        "encoded this way. Without effect where draft and target share an encoder.",
        panel=MODEL,
        not_with=RECOGNISER,
    )
    threads: int | None = threads_option()
    cores: tuple[int, ...] | None = cores_option()

    target: str = option(
        DEFAULT_TARGET,
        "Addresses of target servers or locators; a target with more free slots gets more sessions.",
        "HOST:PORT,...",
        read=to_addresses,
        panel=DRAFTING,
        not_with=LOCAL_TARGET,
    )
    target_model: str | None = text(
        None, "Target model to run in this process; default: none, --target is used.", "MODEL", panel=DRAFTING
    )
    target_revision: str | None = revision_option(
        "Commit or tag of --target-model on the hub.", panel=DRAFTING, needs=LOCAL_TARGET
    )
    target_device: str = device_option(
        "Device of --target-model, as --device.", panel=DRAFTING, needs=LOCAL_TARGET
    )
    target_dtype: str = dtype_option(
        "Numeric type of --target-model: float32 (text identical to transformers); on a CPU with VNNI int8; "
        "with PyTorch (the extra server) bfloat16 or float16.",
        panel=DRAFTING,
        needs=LOCAL_TARGET,
    )
    target_credentials: Credentials = credentials_part(
        "targets", "target", TARGET_TOKEN, not_with=LOCAL_TARGET
    )
    mode: Mode = choice(
        Mode.FULL,
        "Mode of sessions that request none: target-only, sync, pipelined or full; the text is the same with "
        "each.",
        "MODE",
        SERVER_MODES,
        panel=DRAFTING,
    )
    gamma: int | None = whole(
        None, 1, MAX_GAMMA, "Draft tokens per block; default: chosen by each session.", panel=DRAFTING
    )
    connect_timeout_s: float = seconds_option(
        "connect-timeout", 5.0, 0, "Seconds a session waits for a target that refuses connections.", DRAFTING
    )
    resume_timeout_s: float = seconds_option(
        "resume-timeout", 60.0, 0, "Seconds a session that lost its target waits for another one.", DRAFTING
    )
    draft_timeout_s: float = seconds_option(
        "draft-timeout",
        15.0,
        ABOVE_0,
        "Seconds the draft engine may take to load its model, open a session or run a step; after that, "
        "sessions run target-only.",
        DRAFTING,
    )

    port: int = port_option(DEFAULT_PORT)
    max_sessions: int = whole(8, 1, math.inf, "Concurrent sessions of clients.", panel=SERVING)
    max_message_bytes: int = whole(
        32 * 1024 * 1024,
        65_536,
        math.inf,
        "Largest message, and so the largest file for Recognize, in bytes.",
        "BYTES",
        panel=SERVING,
    )
    parity_check_every: int | None = whole(
        None,
        1,
        math.inf,
        "Parity check of one recording in N: the target decodes it again alone, and the texts are compared; "
        "default: none.",
        panel=OBSERVABILITY,
    )
    allow_latency_injection: bool = switch(
        False, "Let clients inject latency before the target, for experiments.", panel=SECURITY
    )
    max_audio_s: float = 4 * 3600.0  # longest recording that Recognize accepts
    failpoints: Failpoints | None = field(default_factory=partial(read_failpoints, os.environ, "draft"))
    extras: Mapping[str, Any] = offered("draft_settings")

    def __post_init__(self) -> None:
        super().__post_init__()
        self.length(self.mode, None)
        self.other_draft()

    def other_draft(self) -> LoadDraft | None:
        """Return what loads a draft of another kind than a Whisper model, if the settings name one.

        Raise :class:`UnsupportedOption` if it cannot draft with these settings.
        """
        found = [entry.load()(self) for entry in offers("drafts").values()]
        return next((load for load in found if load is not None), None)

    @property
    def speakers(self) -> SpeakerModels | None:
        """Finds the speakers of recordings and of live audio; ``None`` without models."""
        return self.extras.get("speakers")

    @property
    def targets(self) -> tuple[str, ...]:
        return tuple(address.strip() for address in self.target.split(","))

    @property
    def max_concurrent_streams(self) -> int:
        """Limit of concurrent calls on one connection, which all sessions may share."""
        return self.max_sessions + SHORT_CALLS

    def length(self, mode: Mode, gamma: int | None) -> DraftLength:
        """Return the draft length for a session's mode and, if it requests one, gamma."""
        return DraftLength(mode, gamma or self.gamma)
