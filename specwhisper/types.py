"""The values that draft and target exchange, free of protobuf, torch and sockets.

Positions count the tokens generated in a window: position 0 is the first token after the prompt. Token ids
are always the target's. Samples count the 16 kHz mono stream from its first sample. All durations are in
the unit their name ends with.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from functools import cache
from typing import Any, Literal, NamedTuple, TypeAlias, TypeVar

from specwhisper.errors import InvalidRequest

# Accelerate's: a device, or "disk", by module.
DeviceMap: TypeAlias = dict[str, int | str] | Literal["auto"]
# Only float32 is identical to transformers. int8 is for CPUs; keys, values and states between layers are
# float32 then.
DTYPES = ("float32", "bfloat16", "float16", "int8")


class Keyed(Mapping[str, Any]):
    """A dataclass that is also a mapping of its fields and properties."""

    __slots__ = ()

    def __getitem__(self, key: str) -> Any:
        if key not in _names(type(self)):
            raise KeyError(key)
        return getattr(self, key)

    def __iter__(self) -> Iterator[str]:
        return iter(_names(type(self)))

    def __len__(self) -> int:
        return len(_names(type(self)))


@cache
def _names(kind: Any) -> tuple[str, ...]:
    properties = [name for name, member in vars(kind).items() if isinstance(member, property)]
    return tuple(
        name for name in (*(each.name for each in fields(kind)), *properties) if not name.startswith("_")
    )


# Audio on its way.
SAMPLE_RATE = 16_000
HOP_SAMPLES = 160  # one mel frame is 10 ms
WINDOW_FRAMES = 3_000
WINDOW_SAMPLES = WINDOW_FRAMES * HOP_SAMPLES  # 30 s
FRAMES_PER_TIMESTAMP = 2  # one timestamp token is 20 ms
CONTEXT_SAMPLES = 200  # how far a mel frame reaches to either side of its centre


class VoiceEvent(StrEnum):
    """A change between speech and silence in live audio."""

    BEGIN = "begin"  # an utterance begins at a sample
    CUT = "cut"  # a long utterance is cut there, and continues
    END = "end"  # the utterance has ended there
    BREAK = "break"  # the client has ended it there, maybe within a word: no text is continued after it


@dataclass(frozen=True, slots=True)
class VoiceMark:
    """The sample of the stream at which an utterance begins, is cut or ends."""

    event: VoiceEvent
    sample: int


@dataclass(frozen=True, slots=True)
class AudioChunk:
    """Canonical audio: s16le PCM, 16 kHz, mono, from a sample of the stream on.

    A chunk may repeat samples that were sent before; it may not leave a gap.

    ``marks``: where utterances begin, are cut and end in live audio, in this chunk or earlier ones, in order.
    """

    start_sample: int
    pcm: bytes
    is_last: bool = False
    marks: tuple[VoiceMark, ...] = ()


@dataclass(frozen=True, slots=True)
class EndUtterance:
    """The client ends the open utterance here, between two pieces of audio."""


# Most candidates of one session in one forward pass: on a server, one session must not slow down the others.
DEFAULT_MAX_WIDTH = 16
# Most tokens of all sessions in a forward pass. On a GPU a few hundred take no longer than reading the
# weights once.
DEFAULT_MAX_NUM_BATCHED_TOKENS, GPU_MAX_NUM_BATCHED_TOKENS = 256, 1_024
MAX_HINT_TEXT_BYTES = 4_000  # in a hint with a time: several minutes of speech


def default_num_batched_tokens(device: object, device_map: DeviceMap | None = None) -> int:
    """Return the most tokens of a forward pass on a device, as torch names it, or on those of a map."""
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
    max_ahead_tokens : most candidate tokens beyond the committed end.
    max_ahead_samples : most audio beyond the open window's start; at least three windows: the open one, the
        next one with the audio after it that its features need, and room for the chunk that is on its way.
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


# Messages between draft and target.
NS_PER_S = 1_000_000_000
ALL_BLOCKS = 2**32  # in place of a number: all blocks that were sent so far


@dataclass(frozen=True, slots=True)
class Window:
    """One decoding of one stretch of audio.

    Attributes
    ----------
    id : identifies this decoding; never used again.
    num_frames : mel frames of the recording in it, the silence up to 30 s of a short one included.
    max_new_tokens : limit on the tokens after the prompt.
    prefix : tokens with which its text begins, which are not decoded; in live audio, the final ones.
    attempt : number of earlier decodings of the same audio, at lower temperatures.
    redetects : whether the language is detected again after it.
    """

    id: int
    start_frame: int
    num_frames: int
    prompt: tuple[int, ...]
    max_new_tokens: int
    temperature: float = 0.0
    attempt: int = 0
    redetects: bool = False
    prefix: tuple[int, ...] = ()

    @property
    def start_sample(self) -> int:
        """First sample of the window in the stream."""
        return self.start_frame * HOP_SAMPLES

    @property
    def end_sample(self) -> int:
        """One past the last sample of the window."""
        return (self.start_frame + self.num_frames) * HOP_SAMPLES


@dataclass(frozen=True, slots=True)
class Candidates:
    """A block of the draft: the tokens that it proposes from position ``base`` on.

    An empty block means that the draft has no candidates; a target that waits for some then decodes one
    token by itself.

    Attributes
    ----------
    known_committed : number of committed tokens that the draft had applied when it drafted them.
    block_number : number of the block within the window, counted from 1.
    start_frame : frame at which the draft expects a window to begin that the target had not opened yet.
    """

    window_id: int
    base: int
    known_committed: int
    tokens: tuple[int, ...]
    block_number: int = 0
    start_frame: int | None = None


@dataclass(frozen=True, slots=True)
class TimedHint:
    """A text that the audio probably contains; its first word begins at a sample, about.

    It replaces all that was sent for that audio before.
    """

    start_sample: int
    text: str


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """The text that a draft believes live audio to have, of a piece so far.

    ``utterance``: number of its utterance, counted from 1.
    """

    utterance: int
    start_sample: int
    end_sample: int
    text: str
    is_complete: bool = False


@dataclass(frozen=True, slots=True)
class Resume:
    """Continue an open window on another target.

    Attributes
    ----------
    log_probs : natural log-probabilities of ``committed``, which decide about falling back.
    previous : tokens of the windows before it, for later prompts.
    """

    window: Window
    committed: tuple[int, ...]
    log_mel_max: float | None = None
    log_probs: tuple[float, ...] = ()
    previous: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class ConfirmEvery:
    """How much new live audio is between two texts of the target.

    ``None`` stands for no text before a piece is complete.
    """

    interval_ms: int | None


@dataclass(frozen=True, slots=True)
class Timing:
    """Durations of one forward pass, in nanoseconds.

    Attributes
    ----------
    batch_size : sessions that shared it.
    block_age_ns : time from the arrival of the newest block that the commit answers; a draft subtracts it to
        find the network's share.
    align_ns : the extra forward passes after a complete window.
    detect_ns : the extra forward pass that detected the window's language.
    token_ns : what one more token adds to a forward pass, by the target's estimate; 0 if that is unknown.
    """

    queue_ns: int = 0
    forward_ns: int = 0
    encode_ns: int = 0
    batch_size: int = 0
    block_age_ns: int = 0
    align_ns: int = 0
    detect_ns: int = 0
    token_ns: int = 0


class Span(NamedTuple):
    """A stretch of speech, in samples or frames."""

    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class WordAlignment:
    """The place of a word in a window and in the stream.

    It has the tokens ``base`` to ``base + num_tokens`` of the window. ``spoken`` is the same without its
    punctuation, where it has any; it does not leave the target.
    """

    base: int
    num_tokens: int
    start_sample: int
    end_sample: int
    spoken: WordAlignment | None = field(default=None, compare=False)


class Outcome(StrEnum):
    """The decision about a complete window."""

    KEPT = "kept"
    RETRIED = "retried"  # not good enough: its audio is decoded again at a higher temperature
    SKIPPED = "skipped"  # it holds no speech


@dataclass(frozen=True, slots=True)
class WindowOpened:
    """The target has opened a window.

    Attributes
    ----------
    opening : text of its earlier decoding of the same audio, with which the window likely begins; it verifies
        these tokens first, and the draft continues after them.
    log_mel_max, previous : for :class:`Resume`.
    language_probs : probability by language code, if the language was detected for this window.
    """

    window: Window
    log_mel_max: float | None = None
    opening: tuple[int, ...] = ()
    previous: tuple[int, ...] = ()
    language_probs: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CompletePiece:
    """A piece of live audio whose text, that of its window after the prefix, is final.

    It ends with the window. ``utterance``: number of its utterance, counted from 1.
    """

    utterance: int
    start_sample: int
    is_utterance_end: bool


@dataclass(frozen=True, slots=True)
class Commit:
    """Tokens that the target has appended, from position ``base`` on.

    Each candidate block is answered by one, which may be empty.

    Attributes
    ----------
    log_probs, margins : per token, natural log-probability after the decoding rules and its distance to the
        second best, which does not leave the target's process.
    num_verified : candidates that went through the forward pass, of which ``num_accepted`` were kept.
    num_hinted : number of candidates among them from hints, not from fresh blocks of the draft;
        ``num_hinted_first`` come before the draft's, the others after them.
    num_self_decoded : 1 when the forward pass had no candidates, else 0.
    answered_block : number of the newest candidate block of this window that this commit answers. For blocks
        that were lost with their target it is :data:`ALL_BLOCKS`.
    held : position up to which (exclusive) tokens are committed or candidates wait for their pass.
    credit : position up to which (exclusive) candidates may be sent.
    outcome : the decision about a complete window.
    words : a complete window's, if word times were asked for.
    num_transcribed : first tokens of a complete window that are part of the transcript, where its words
        decide that; ``None`` for those of all complete segments.
    num_align_forwards : extra forward passes after a complete window, for word times.
    piece : what a complete window of live audio has made final; ``None`` for recordings.
    no_speech_prob : probability that the window holds no speech; with the window's first tokens.
    """

    window_id: int
    base: int
    tokens: tuple[int, ...]
    log_probs: tuple[float, ...] = ()
    margins: tuple[float, ...] = ()
    num_verified: int = 0
    num_accepted: int = 0
    num_hinted: int = 0
    num_hinted_first: int = 0
    num_self_decoded: int = 0
    answered_block: int = 0
    held: int = 0
    credit: int = 0
    is_final: bool = False
    outcome: Outcome = Outcome.KEPT
    words: tuple[WordAlignment, ...] = ()
    num_transcribed: int | None = None
    num_align_forwards: int = 0
    piece: CompletePiece | None = None
    no_speech_prob: float | None = None
    timing: Timing = Timing()

    @property
    def num_drafted_verified(self) -> int:
        """Verified candidates of the draft; none after a rejected candidate of a hint."""
        return self.num_verified - self.num_hinted if self.num_accepted >= self.num_hinted_first else 0

    @property
    def num_drafted_accepted(self) -> int:
        """Accepted candidates of the draft."""
        return min(max(0, self.num_accepted - self.num_hinted_first), self.num_verified - self.num_hinted)


@dataclass(frozen=True, slots=True)
class Finished:
    """The audio has ended and every window is complete."""


@dataclass(frozen=True, slots=True)
class Failed:
    """The session has ended with an error of its own."""

    error: Exception


ToTarget = AudioChunk | Candidates | TimedHint | Resume | ConfirmEvery
FromTarget = WindowOpened | Commit | Finished | Failed


@dataclass(frozen=True, slots=True)
class Word(Keyed):
    """A word with its spaces and punctuation; times in seconds of the stream.

    ``confidence`` is the mean probability of its tokens, 0 where unknown; ``speaker`` is empty where unknown.
    ``word``, ``start``, ``end`` and ``probability`` are the names that other Whisper programs use.
    """

    start_s: float
    end_s: float
    text: str
    confidence: float = 0.0
    speaker: str = ""

    @property
    def word(self) -> str:
        return self.text

    @property
    def start(self) -> float:
        return self.start_s

    @property
    def end(self) -> float:
        return self.end_s

    @property
    def probability(self) -> float:
        return self.confidence


@dataclass(frozen=True, slots=True)
class Segment(Keyed):
    """A stretch of the transcript; times in seconds of the stream.

    ``start`` and ``end`` are the names that other Whisper programs use.

    Attributes
    ----------
    tokens : as decoded, timestamps included. They include those of a word that is left out of the text
        because the window before ends with it.
    confidence : mean probability of the tokens, 0 where unknown.
    avg_logprob, compression_ratio, temperature, no_speech_prob : values of the window it was decoded in, as
        openai/whisper reports them; the ratio is over the text.
    seek : first mel frame of that window.
    words : where word times were asked for.
    utterance : number of its utterance in live audio, counted from 1; 0 in recordings.
    is_utterance_end : whether the utterance ends with it; its text may be empty then.
    language : code of its window's language; of live audio, of its utterance's. Empty where unknown.
    speaker : name of the speaker of most of it; empty where unknown.
    id : its place in a :class:`Transcription`, counted from 0.
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
    speaker: str = ""
    id: int = field(default=0, compare=False)

    @property
    def start(self) -> float:
        return self.start_s

    @property
    def end(self) -> float:
        return self.end_s


BRIEFEST_S = 0.02
Spoken = TypeVar("Spoken", Word, Segment)


class TimeOrder:
    """Moves segments and words, so that none begins before the last one ends, or before ``end_s``.

    A word that would have no time left keeps 20 ms, if it had them.
    """

    def __init__(self, end_s: float = 0.0) -> None:
        self._segments_end_s = self._words_end_s = end_s

    def __call__(self, segments: Iterable[Segment]) -> tuple[Segment, ...]:
        """Return the next segments in order."""
        return tuple(map(self._placed, segments))

    def _placed(self, segment: Segment) -> Segment:
        words = []
        for word in segment.words:
            words.append(_not_before(word, self._words_end_s, kept_s=BRIEFEST_S))
            self._words_end_s = words[-1].end_s
        segment = _not_before(segment, self._segments_end_s)
        self._segments_end_s = segment.end_s
        return replace(segment, words=tuple(words))


def _not_before(spoken: Spoken, time_s: float, *, kept_s: float = 0.0) -> Spoken:
    if spoken.start_s >= time_s:
        return replace(spoken, end_s=max(spoken.end_s, spoken.start_s))
    kept_s = max(0.0, min(kept_s, spoken.end_s - spoken.start_s))
    return replace(spoken, start_s=time_s, end_s=max(spoken.end_s, time_s, round(time_s + kept_s, 6)))
