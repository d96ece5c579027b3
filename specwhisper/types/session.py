"""Terms of a session: how it uses the draft, and what it may send."""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import StrEnum

from specwhisper.errors import InvalidRequest
from specwhisper.types.audio import WINDOW_SAMPLES
from specwhisper.types.weights import DeviceMap

# Most candidates of one session in one forward pass: on a server, one session must not slow down the others.
DEFAULT_MAX_WIDTH = 16
# Of all sessions in a forward pass. A GPU multiplies some hundred tokens while it reads the weights.
DEFAULT_MAX_NUM_BATCHED_TOKENS, GPU_MAX_NUM_BATCHED_TOKENS = 256, 1_024
MAX_HINT_TEXT_BYTES = 4_000  # of a hint with a time: several minutes of speech


def default_num_batched_tokens(device: object, device_map: DeviceMap | None = None) -> int:
    """Return the most tokens of a forward pass on a device, as torch names it.

    A map is for models that one GPU does not hold.
    """
    is_gpu = str(device).startswith("cuda") or device_map is not None
    return GPU_MAX_NUM_BATCHED_TOKENS if is_gpu else DEFAULT_MAX_NUM_BATCHED_TOKENS


class Mode(StrEnum):
    """How a session uses the draft; the split service has the first four modes."""

    TARGET_ONLY = "target-only"  # no candidates: the target decodes alone
    SYNC = "sync"  # one block in flight, the target waits for it
    PIPELINED = "pipelined"  # many blocks in flight, the target waits for them
    FULL = "full"  # many blocks in flight, the target decodes by itself while it has none
    ONE_PROCESS = "one-process"  # draft and target in one process, one block at a time

    @property
    def drafts(self) -> bool:
        """Whether candidates are proposed at all."""
        return self is not Mode.TARGET_ONLY

    @property
    def self_decodes(self) -> bool:
        """Whether the target decodes by itself when it has no candidates."""
        return self in (Mode.TARGET_ONLY, Mode.FULL)

    @property
    def is_lock_step(self) -> bool:
        """Whether the draft stops until its last block is answered."""
        return self in (Mode.SYNC, Mode.ONE_PROCESS)


SERVER_MODES = tuple(mode for mode in Mode if mode is not Mode.ONE_PROCESS)
LIVE_MODES = (Mode.TARGET_ONLY, Mode.FULL)  # the draft of live audio never waits


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one session.

    A message beyond a limit ends the session with an error that names the limit; candidates too far ahead are
    cut off.

    Attributes
    ----------
    max_block_tokens : most tokens in one candidate block.
    max_ahead_tokens : most candidate tokens beyond the committed end.
    max_message_bytes : largest message.
    max_ahead_samples : most audio beyond the open window's start; at least three windows: the open one, the
        next one with the audio after it that its features need, and room for the chunk that is on its way.
    max_sessions : sessions the target has room for.
    """

    max_block_tokens: int = 64
    max_ahead_tokens: int = 256
    max_message_bytes: int = 262_144
    max_ahead_samples: int = 4 * WINDOW_SAMPLES
    max_sessions: int = 16

    def __post_init__(self) -> None:
        for limit in fields(self):
            if getattr(self, limit.name) < 1:
                raise InvalidRequest(f"{limit.name} is {getattr(self, limit.name)}: it must be at least 1.")
        if self.max_ahead_samples < 3 * WINDOW_SAMPLES:
            raise InvalidRequest(
                f"max_ahead_samples is {self.max_ahead_samples}: it must be at least {3 * WINDOW_SAMPLES}."
            )
