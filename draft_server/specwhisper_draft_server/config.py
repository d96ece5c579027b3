"""What a draft server can be told."""

from __future__ import annotations

from dataclasses import dataclass, field

from specwhisper.errors import InvalidRequest
from specwhisper.rpc.addresses import split_address
from specwhisper.rpc.channels import OPEN, Credentials
from specwhisper.rpc.serving import ServingOptions
from specwhisper.speculation.draft_length import DraftLength
from specwhisper.types import DTYPES, Mode

DEFAULT_PORT = 50_051
DEFAULT_TARGET = "127.0.0.1:50052"
MAX_MESSAGE_BYTES = 32 * 1024 * 1024  # a whole recording, for Recognize


@dataclass(frozen=True, slots=True)
class DraftConfig:
    """Settings of a draft server, checked when they are made.

    Attributes
    ----------
    target : addresses of target servers, or of whatever answers ``Locate`` for many, with commas between.
    cores : the only ones the process runs on; ``None`` for all.
    target_credentials : how targets are reached, and who this server is to them.
    target_model, target_revision, target_device, target_dtype : a target to run in this process instead.
    draft_model : bundled name, Whisper size, hub id or folder.
    mode, gamma, depth, min_confidence : how sessions draft unless they ask otherwise; what is ``None`` is
        chosen for each session as it goes.
    drafts_next_window : before the target opens it, in a second slot for each session.
    compress_audio : send FLAC to the target instead of PCM.
    connect_timeout_s : how long a session waits for a target that is not there, or not yet.
    resume_timeout_s : how long a session whose target is lost waits for another one.
    draft_timeout_s : how long the draft engine may take to place its model, to open a session, or for one
        step; then sessions run target-only.
    riva : offer NVIDIA Riva's service too; ``None`` where its client is installed.
    audit_every : of so many recordings one is decoded again by the target alone; ``None`` for none.
    max_audio_s : longest recording ``Recognize`` takes, in seconds.
    """

    target: str = DEFAULT_TARGET
    target_credentials: Credentials = OPEN
    target_model: str | None = None
    target_revision: str | None = None
    target_device: str = "cpu"
    target_dtype: str = "float32"
    draft_model: str = "demo-draft-tiny"
    revision: str | None = None
    device: str = "cpu"
    dtype: str = "float32"
    threads: int | None = None
    cores: tuple[int, ...] | None = None
    mode: Mode = Mode.FULL
    gamma: int | None = None
    depth: int | None = None
    min_confidence: float | None = None
    drafts_next_window: bool = True
    compress_audio: bool = False
    connect_timeout_s: float = 5.0
    resume_timeout_s: float = 60.0
    draft_timeout_s: float = 15.0
    max_sessions: int = 8
    riva: bool | None = None
    audit_every: int | None = None
    max_audio_s: float = 4 * 3600.0
    serving: ServingOptions = field(
        default_factory=lambda: ServingOptions(port=DEFAULT_PORT, max_message_bytes=MAX_MESSAGE_BYTES)
    )

    def __post_init__(self) -> None:
        for address in self.targets:
            split_address(address)
        if self.mode is Mode.ONE_PROCESS:
            raise InvalidRequest(
                "--mode is one-process: a draft server offers target-only, sync, pipelined and full."
            )
        self.length(self.mode, None)
        for flag, dtype in (("--dtype", self.dtype), ("--target-dtype", self.target_dtype)):
            if dtype not in DTYPES:
                raise InvalidRequest(f"{flag} is '{dtype}': choose one of {', '.join(DTYPES)}.")
        if self.max_sessions < 1:
            raise InvalidRequest(f"--max-sessions is {self.max_sessions}: it must be at least 1.")
        if not self.connect_timeout_s >= 0:
            raise InvalidRequest(f"--connect-timeout is {self.connect_timeout_s}: it must be 0 or more.")
        if not self.resume_timeout_s >= 0:
            raise InvalidRequest(f"--resume-timeout is {self.resume_timeout_s}: it must be 0 or more.")
        if not self.draft_timeout_s > 0:
            raise InvalidRequest(f"--draft-timeout is {self.draft_timeout_s}: it must be more than 0.")
        if self.audit_every is not None and self.audit_every < 1:
            raise InvalidRequest(f"--audit-every is {self.audit_every}: it must be at least 1.")
        if self.threads is not None and self.threads < 1:
            raise InvalidRequest(f"--threads is {self.threads}: it must be at least 1.")

    @property
    def targets(self) -> tuple[str, ...]:
        """The addresses in ``target``."""
        return tuple(address.strip() for address in self.target.split(","))

    @property
    def num_slots(self) -> int:
        """Slots that the draft model needs."""
        return self.max_sessions * (2 if self.drafts_next_window else 1)

    def length(self, mode: Mode, gamma: int | None) -> DraftLength:
        """Give how a session drafts that asks for a mode and, perhaps, a draft length."""
        return DraftLength.of(mode, gamma or self.gamma, self.depth, self.min_confidence)
