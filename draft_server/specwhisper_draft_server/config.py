"""Settings of a draft server."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

from specwhisper.errors import InvalidRequest
from specwhisper.extras import offers
from specwhisper.rpc.addresses import split_address
from specwhisper.rpc.channels import OPEN, Credentials, client_credentials
from specwhisper.rpc.serving_options import SHORT_CALLS, ServingOptions
from specwhisper.rpc.tokens import TARGET_TOKEN
from specwhisper.settings.setting import (
    DRAFTING,
    MODEL,
    OBSERVABILITY,
    SECURITY,
    SERVING,
    Made,
    Offered,
    Setting,
)
from specwhisper.settings.shared import Cores, Device, Port, Revision, Threads
from specwhisper.speculation.draft_length import MAX_GAMMA, DraftLength
from specwhisper.testing.loading import load_failpoints
from specwhisper.transcription.speakers import SpeakerModels
from specwhisper.types import DTYPES, Mode

if TYPE_CHECKING:
    from specwhisper_draft_server.drafts.source import LoadDraft

DEFAULT_PORT = 50_051
DEFAULT_TARGET = "127.0.0.1:50052"
MAX_MESSAGE_BYTES = 32 * 1024 * 1024  # a whole recording, for Recognize


def draft_failpoints() -> Any:
    return load_failpoints(os.environ, "draft")


@dataclass(frozen=True, kw_only=True)
class DraftConfig(ServingOptions):
    """Settings of ``specwhisper-draft-server``.

    Attributes
    ----------
    target_credentials : for the connections to targets.
    max_audio_s : longest recording ``Recognize`` accepts, in seconds.
    extras : settings of packages beside the core, by the names of their entry points.
    """

    draft_model: Annotated[
        str,
        Setting(
            MODEL,
            "Draft model: demo-draft-tiny, demo-draft-distil, a Whisper size (tiny ...), a hub id, folder "
            "or file.",
            metavar="MODEL",
        ),
    ] = "demo-draft-tiny"
    revision: Revision = None
    device: Device = "cpu"
    dtype: Annotated[
        str,
        Setting(
            MODEL,
            "Numeric type of the draft's weights: float32; on a CPU with VNNI int8; with PyTorch (the extra "
            "server) bfloat16 or float16. The text is the same with each.",
            metavar="TYPE",
            choices=DTYPES,
        ),
    ] = "float32"
    cut_windows: Annotated[
        bool,
        Setting(
            MODEL,
            "Windows of recordings encoded only as far as they hold audio and 6 s more, not to 30 s; on "
            "CPUs. Short ones are encoded many times faster; the draft may be right less often. Live audio "
            "always is encoded so. Without effect where draft and target share an encoder.",
        ),
    ] = False
    threads: Threads = None
    cores: Cores = None

    target: Annotated[
        str,
        Setting(
            DRAFTING,
            "Addresses of target servers or locators; a target with more free slots gets more sessions.",
            metavar="HOST:PORT,...",
        ),
    ] = DEFAULT_TARGET
    target_model: Annotated[
        str | None,
        Setting(
            DRAFTING, "Target model to run in this process; default: none, --target is used.", metavar="MODEL"
        ),
    ] = None
    target_revision: Annotated[
        str | None, Setting(DRAFTING, "Commit or tag of --target-model on the hub.", metavar="REVISION")
    ] = None
    target_device: Annotated[
        str, Setting(DRAFTING, "Device of --target-model, as --device.", metavar="DEVICE")
    ] = "cpu"
    target_dtype: Annotated[
        str,
        Setting(
            DRAFTING,
            "Numeric type of --target-model: float32 (text identical to transformers); on a CPU with VNNI "
            "int8; with PyTorch (the extra server) bfloat16 or float16.",
            metavar="TYPE",
            choices=DTYPES,
        ),
    ] = "float32"
    target_credentials: Annotated[
        Credentials,
        Made(
            partial(client_credentials, variable=TARGET_TOKEN),
            prefix="target",
            words={"peer": "targets", "variable": f"${TARGET_TOKEN}"},
        ),
    ] = OPEN
    mode: Annotated[
        Mode,
        Setting(
            DRAFTING,
            "Mode of sessions that request none: target-only, sync, pipelined or full; the text is the same "
            "with each.",
            metavar="MODE",
        ),
    ] = Mode.FULL
    gamma: Annotated[
        int | None,
        Setting(
            DRAFTING, "Draft tokens per block; default: chosen by each session.", "N", min=1, max=MAX_GAMMA
        ),
    ] = None
    connect_timeout_s: Annotated[
        float,
        Setting(
            DRAFTING,
            "Seconds a session waits for a target that refuses connections.",
            metavar="SECONDS",
            min=0,
        ),
    ] = 5.0
    resume_timeout_s: Annotated[
        float,
        Setting(
            DRAFTING,
            "Seconds a session that lost its target waits for another one.",
            metavar="SECONDS",
            min=0,
        ),
    ] = 60.0
    draft_timeout_s: Annotated[
        float,
        Setting(
            DRAFTING,
            "Seconds the draft engine may take to load its model, open a session or run a step; after that, "
            "sessions run target-only.",
            metavar="SECONDS",
            above=0,
        ),
    ] = 15.0

    port: Port = DEFAULT_PORT
    max_sessions: Annotated[int, Setting(SERVING, "Concurrent sessions of clients.", metavar="N", min=1)] = 8
    max_message_bytes: Annotated[
        int,
        Setting(
            SERVING,
            "Largest message, and so the largest file for Recognize, in bytes.",
            metavar="BYTES",
            min=65_536,
        ),
    ] = MAX_MESSAGE_BYTES
    parity_check_every: Annotated[
        int | None,
        Setting(
            OBSERVABILITY,
            "Parity check of one recording in N: the target decodes it again alone, and the texts are "
            "compared; default: none.",
            metavar="N",
            min=1,
        ),
    ] = None
    allow_latency_injection: Annotated[
        bool,
        Setting(SECURITY, "Permission for clients to inject latency before the target, for experiments."),
    ] = False
    max_audio_s: float = 4 * 3600.0
    failpoints: Annotated[Any, Made(draft_failpoints)] = None
    extras: Annotated[Mapping[str, Any], Offered("draft_settings")] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
        for address in self.targets:
            split_address(address)
        if self.mode is Mode.ONE_PROCESS:
            raise InvalidRequest(
                "--mode is one-process: a draft server offers target-only, sync, pipelined and full."
            )
        self.length(self.mode, None)
        self.other_draft()

    def other_draft(self) -> LoadDraft | None:
        """Return what loads a draft of another kind than a Whisper model, if the settings name one.

        Raises
        ------
        UnsupportedOption : if it cannot draft with these settings.
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
        """Limit of concurrent calls on one connection: all sessions may share one."""
        return self.max_sessions + SHORT_CALLS

    def length(self, mode: Mode, gamma: int | None) -> DraftLength:
        """Return the draft length of a session that requests a mode and perhaps a gamma."""
        return DraftLength(mode, gamma or self.gamma)
