"""The values that draft and target exchange, free of protobuf, torch and sockets.

Positions count the tokens generated in a window: position 0 is the first token after the prompt. Token ids
are always the target's. Samples count the 16 kHz mono stream from its first sample. All durations are in
the unit their name ends with.
"""

from specwhisper.types.audio import (
    CONTEXT_SAMPLES,
    FRAMES_PER_TIMESTAMP,
    HOP_SAMPLES,
    SAMPLE_RATE,
    WINDOW_FRAMES,
    WINDOW_SAMPLES,
    AudioChunk,
    EndUtterance,
    VoiceEvent,
    VoiceMark,
)
from specwhisper.types.keyed import Keyed
from specwhisper.types.messages import (
    NS_PER_S,
    UNKNOWN_AGE_NS,
    Candidates,
    Commit,
    CompletePiece,
    ConfirmEvery,
    Failed,
    Finished,
    FromTarget,
    Hypothesis,
    Outcome,
    Resume,
    TimedHint,
    Timing,
    ToTarget,
    Window,
    WindowOpened,
    WordAlignment,
)
from specwhisper.types.session import (
    DEFAULT_MAX_NUM_BATCHED_TOKENS,
    DEFAULT_MAX_WIDTH,
    GPU_MAX_NUM_BATCHED_TOKENS,
    LIVE_MODES,
    MAX_HINT_TEXT_BYTES,
    SERVER_MODES,
    Limits,
    Mode,
    default_num_batched_tokens,
)
from specwhisper.types.transcript import Segment, TimeOrder, Word
from specwhisper.types.weights import DTYPES, DeviceMap

__all__ = [
    "CONTEXT_SAMPLES",
    "DEFAULT_MAX_NUM_BATCHED_TOKENS",
    "DEFAULT_MAX_WIDTH",
    "DTYPES",
    "FRAMES_PER_TIMESTAMP",
    "GPU_MAX_NUM_BATCHED_TOKENS",
    "HOP_SAMPLES",
    "LIVE_MODES",
    "MAX_HINT_TEXT_BYTES",
    "NS_PER_S",
    "SAMPLE_RATE",
    "SERVER_MODES",
    "UNKNOWN_AGE_NS",
    "WINDOW_FRAMES",
    "WINDOW_SAMPLES",
    "AudioChunk",
    "Candidates",
    "Commit",
    "CompletePiece",
    "ConfirmEvery",
    "DeviceMap",
    "EndUtterance",
    "Failed",
    "Finished",
    "FromTarget",
    "Hypothesis",
    "Keyed",
    "Limits",
    "Mode",
    "Outcome",
    "Resume",
    "Segment",
    "TimeOrder",
    "TimedHint",
    "Timing",
    "ToTarget",
    "VoiceEvent",
    "VoiceMark",
    "Window",
    "WindowOpened",
    "Word",
    "WordAlignment",
    "default_num_batched_tokens",
]
