"""The values that draft and target exchange, free of protobuf, torch and sockets.

Positions count the tokens generated in a window: position 0 is the first token after the prompt. Token ids
are always the target's. Samples count the 16 kHz mono stream from its first sample. All durations are in
the unit their name ends with.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum

from specwhisper.errors import InvalidRequest

SAMPLE_RATE = 16_000
HOP_SAMPLES = 160  # one mel frame is 10 ms
WINDOW_FRAMES = 3_000
WINDOW_SAMPLES = WINDOW_FRAMES * HOP_SAMPLES  # 30 s
FRAMES_PER_TIMESTAMP = 2  # one timestamp token is 20 ms
# Of weights. Identical to transformers is float32. int8 is for CPUs: what a slot holds is bfloat16 then, and
# states between layers are float32.
DTYPES = ("float32", "bfloat16", "float16", "int8")
CROSS_CACHES = ("int8", "float8")  # in which what is heard can be kept on a GPU


class Mode(StrEnum):
    """How a session uses the draft; the first four are modes of the split service."""

    TARGET_ONLY = "target-only"  # no candidates: the target decodes alone
    SYNC = "sync"  # one block in flight, the target waits for it
    PIPELINED = "pipelined"  # many blocks in flight, the target waits for them
    FULL = "full"  # many blocks in flight, the target decodes itself while it has none
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


DEFAULT_MAX_WIDTH = 16  # candidates of one session in one pass; on a server, one of them shall not slow all


@dataclass(frozen=True, slots=True)
class Limits:
    """What one session may send.

    A message beyond a limit ends it with an error that names the limit; candidates too far ahead are cut off.

    Attributes
    ----------
    max_block_tokens : most tokens in one candidate block.
    max_ahead_tokens : most candidate tokens beyond the committed end.
    max_message_bytes : largest message.
    max_ahead_samples : most audio beyond the open window's start; at least three windows: the open one, the
        next one with what its features need behind it, and room for the piece that is on its way.
    max_sessions : sessions the target holds at once.
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


@dataclass(frozen=True, slots=True)
class Window:
    """One decoding of one stretch of audio; its id is never used again for another.

    ``num_frames`` counts the mel frames of the recording in it, the padding to 30 s of a short one included.
    """

    id: int
    start_frame: int
    num_frames: int
    prompt: tuple[int, ...]
    max_new_tokens: int
    temperature: float = 0.0
    attempt: int = 0

    @property
    def start_sample(self) -> int:
        """First sample of the window in the stream."""
        return self.start_frame * HOP_SAMPLES

    @property
    def end_sample(self) -> int:
        """One past the last sample of the window."""
        return (self.start_frame + self.num_frames) * HOP_SAMPLES


class VoiceEvent(StrEnum):
    """What was heard in live audio."""

    BEGIN = "begin"  # somebody speaks, from a sample on; within an utterance: speaks on after a pause
    PAUSE = "pause"  # nobody speaks behind a sample, for now
    END = "end"  # the utterance has ended there


@dataclass(frozen=True, slots=True)
class VoiceMark:
    """A moment at which speech begins, pauses or ends, as a place in the stream."""

    event: VoiceEvent
    sample: int


@dataclass(frozen=True, slots=True)
class AudioChunk:
    """Canonical audio: s16le PCM, 16 kHz, mono, at a place in the stream.

    A chunk may repeat samples that were sent before; it may not leave a gap. ``is_last`` marks the end.
    ``marks`` tell where speech lies in live audio; they are of this chunk or earlier ones, in order.
    """

    start_sample: int
    pcm: bytes
    is_last: bool = False
    marks: tuple[VoiceMark, ...] = ()


NUM_PROPOSED = 16  # tokens a draft draws from, all of which it sends


@dataclass(frozen=True, slots=True)
class Proposal:
    """What a candidate was drawn from: the draft's likeliest ``tokens``; their ``probs`` sum to 1."""

    tokens: tuple[int, ...]
    probs: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Candidates:
    """The draft's advice: from position ``base`` on, I believe ``tokens``.

    ``known_committed`` is how many committed tokens the draft had applied when it drafted them. An empty
    block says that the draft has nothing to offer, so that a target which waits for candidates goes on alone.
    ``number`` counts the draft's blocks about a window, from 1. ``proposals``, one a token, are sent where
    acceptance is classical. ``start_frame`` is set where the target had not opened the window when this was
    drafted: where the draft expects it to begin.
    """

    window_id: int
    base: int
    known_committed: int
    tokens: tuple[int, ...]
    number: int = 0
    proposals: tuple[Proposal, ...] = ()
    start_frame: int | None = None


@dataclass(frozen=True, slots=True)
class Believed:
    """The tokens that the draft believes a window to have: those that are committed, then its own."""

    window: Window
    tokens: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Resume:
    """Continue an open window elsewhere: its parameters and what was committed in it so far.

    ``log_probs`` are those of ``committed``: they decide about falling back. ``previous`` are the tokens of
    the windows before it, for later prompts.
    """

    window: Window
    committed: tuple[int, ...]
    log_mel_max: float | None = None
    log_probs: tuple[float, ...] = ()
    previous: tuple[int, ...] = ()


UNKNOWN_AGE_NS = -1


@dataclass(frozen=True, slots=True)
class Timing:
    """What one pass cost, in nanoseconds.

    Attributes
    ----------
    batch_size : sessions that shared it.
    block_age_ns : how long the newest block that is dealt with had been there, so that a draft can tell what
        of its waiting was the network's; :data:`UNKNOWN_AGE_NS` for one that never came.
    align_ns : of the extra passes after a complete window.
    detect_ns : of the extra pass that detected the window's language.
    """

    queue_ns: int = 0
    forward_ns: int = 0
    encode_ns: int = 0
    batch_size: int = 0
    block_age_ns: int = 0
    align_ns: int = 0
    detect_ns: int = 0


@dataclass(frozen=True, slots=True)
class WordAlignment:
    """A word, tokens ``base`` to ``base + num_tokens`` of a window, and where it lies in the stream."""

    base: int
    num_tokens: int
    start_sample: int
    end_sample: int


class Outcome(StrEnum):
    """What becomes of a complete window."""

    KEPT = "kept"
    RETRIED = "retried"  # not good enough: its audio is decoded again at a higher temperature
    SKIPPED = "skipped"  # nothing is spoken in it


@dataclass(frozen=True, slots=True)
class WindowOpened:
    """The target has begun a window.

    Attributes
    ----------
    expected : what it will verify before any draft arrives, from an earlier decoding of the same audio.
    num_final : how many text tokens of live audio that lies in the window are final already, the newest ones.
    log_mel_max, previous : for :class:`Resume`.
    """

    window: Window
    log_mel_max: float | None = None
    expected: tuple[int, ...] = ()
    num_final: int = 0
    previous: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Step:
    """What a complete window of live audio has settled.

    Attributes
    ----------
    utterance : whose window it was; utterances are counted from 1.
    final_start, final_end : positions between which its tokens have become final; further ones may still
        change.
    is_last : whether the utterance ends with them.
    """

    utterance: int
    final_start: int
    final_end: int
    is_last: bool


@dataclass(frozen=True, slots=True)
class Commit:
    """Tokens the target has appended, from position ``base`` on; the answer to every candidate block.

    Attributes
    ----------
    log_probs, margins : per token, natural log-probability after the decoding rules and its distance to the
        second best; both of ``len(tokens)``.
    num_verified : candidates that went through the forward pass, of which ``num_accepted`` were kept.
    num_reused : how many of these, the first ones, were the target's own, from an earlier decoding of the
        same audio.
    num_self_decoded : 1 when the pass had no candidates, else 0.
    candidates_received : number of the newest candidate block of this window that was dealt with.
    held : position up to which (exclusive) tokens are committed or candidates wait for their pass.
    credit : position up to which (exclusive) candidates may be sent.
    is_final : the window is complete; ``outcome`` tells what becomes of it, ``words`` are its words where
        they were asked for.
    num_align_forwards : extra passes behind a complete window, for word times and for AlignAtt.
    step : what a complete window of live audio has settled; ``None`` for recordings.
    no_speech_prob : probability that nothing is spoken in the window; with the window's first tokens.
    language_probs : probability by language code; with the first tokens after a detection.
    """

    window_id: int
    base: int
    tokens: tuple[int, ...]
    log_probs: tuple[float, ...] = ()
    margins: tuple[float, ...] = ()
    num_verified: int = 0
    num_accepted: int = 0
    num_reused: int = 0
    num_self_decoded: int = 0
    candidates_received: int = 0
    held: int = 0
    credit: int = 0
    is_final: bool = False
    outcome: Outcome = Outcome.KEPT
    words: tuple[WordAlignment, ...] = ()
    num_align_forwards: int = 0
    step: Step | None = None
    no_speech_prob: float | None = None
    language_probs: Mapping[str, float] = field(default_factory=dict)
    timing: Timing = Timing()

    @property
    def num_drafted_verified(self) -> int:
        """Candidates of the draft that were judged: none behind one of the target's own that was wrong."""
        return self.num_verified - self.num_reused if self.num_accepted >= self.num_reused else 0

    @property
    def num_drafted_accepted(self) -> int:
        """Those of them that were kept."""
        return max(0, self.num_accepted - self.num_reused)


@dataclass(frozen=True, slots=True)
class DecodedStep:
    """A decoding of live audio: from which sample to which, and in how many passes of the target."""

    start_sample: int
    end_sample: int
    num_forwards: int


@dataclass(frozen=True, slots=True)
class Finished:
    """Every window is complete and the audio has ended: the transcript is whole."""


@dataclass(frozen=True, slots=True)
class Failed:
    """The session has ended by an error that is its own."""

    error: Exception


ToTarget = AudioChunk | Candidates | Resume
FromTarget = WindowOpened | Commit | Finished | Failed


@dataclass(frozen=True, slots=True)
class Word:
    """A word with its spaces and punctuation; times in seconds of the stream.

    ``confidence`` is the mean probability of its tokens, 0 where unknown.
    """

    start_s: float
    end_s: float
    text: str
    confidence: float = 0.0


@dataclass(frozen=True, slots=True)
class Segment:
    """A stretch of the transcript with its tokens, timestamps included; times in seconds of the stream.

    Attributes
    ----------
    confidence : mean probability of the tokens, 0 where unknown.
    avg_logprob, compression_ratio, temperature, no_speech_prob : of the window it was decoded in, as
        openai/whisper reports them; the ratio is over the text.
    seek : first mel frame of that window.
    words : where they were asked for.
    utterance : of live audio, the utterance it is a piece of, counted from 1; 0 of recordings.
    is_utterance_end : whether that ends with it; its text may be empty then.
    language : of live audio, where each utterance may have another; empty for the transcript's.
    """

    start_s: float
    end_s: float
    tokens: tuple[int, ...]
    text: str = ""
    confidence: float = 0.0
    avg_logprob: float = 0.0
    compression_ratio: float = 0.0
    temperature: float = 0.0
    no_speech_prob: float | None = None
    seek: int = 0
    words: tuple[Word, ...] = ()
    utterance: int = 0
    is_utterance_end: bool = False
    language: str = ""
