"""Messages between draft and target."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from specwhisper.types.audio import HOP_SAMPLES, AudioChunk

NS_PER_S = 1_000_000_000
UNKNOWN_AGE_NS = -1


@dataclass(frozen=True, slots=True)
class Window:
    """One decoding of one stretch of audio.

    Attributes
    ----------
    id : of this decoding; never used again for another.
    num_frames : mel frames of the recording in it, the silence up to 30 s of a short one included.
    max_new_tokens : limit on the tokens after the prompt.
    prefix : tokens with which its text begins, which are not decoded: of live audio, what is final in it.
    attempt : number of earlier decodings of the same audio, at lower temperatures.
    redetects : whether the language is detected anew after it.
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
    """A text that the audio is believed to say from a time on.

    It replaces all that was sent for that audio before.

    Attributes
    ----------
    start_sample : at which its first word begins, about.
    """

    start_sample: int
    text: str


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """The text that a draft believes live audio to have, of a piece so far.

    Attributes
    ----------
    utterance : number of its utterance, counted from 1.
    start_sample, end_sample : its audio.
    is_complete : whether the piece ends there.
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
    log_probs : of ``committed``, natural: they decide about falling back.
    previous : tokens of the windows before it, for later prompts.
    """

    window: Window
    committed: tuple[int, ...]
    log_mel_max: float | None = None
    log_probs: tuple[float, ...] = ()
    previous: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class ConfirmEvery:
    """How often the target writes text of live audio that grows.

    Attributes
    ----------
    interval_ms : new audio between two texts; ``None`` for none before a piece is complete.
    """

    interval_ms: int | None


@dataclass(frozen=True, slots=True)
class Timing:
    """Durations of one forward pass, in nanoseconds.

    Attributes
    ----------
    batch_size : sessions that shared it.
    block_age_ns : time from the arrival of the newest block that the commit answers; a draft subtracts it to
        find the network's share. :data:`UNKNOWN_AGE_NS` for a block that never arrived.
    align_ns : of the extra forward passes after a complete window.
    detect_ns : of the extra forward pass that detected the window's language.
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


@dataclass(frozen=True, slots=True)
class WordAlignment:
    """The place of a word in a window and in the stream.

    It has the tokens ``base`` to ``base + num_tokens`` of the window.

    Attributes
    ----------
    spoken : the same without its punctuation, where it has any; it does not leave the target.
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
    """

    window: Window
    log_mel_max: float | None = None
    opening: tuple[int, ...] = ()
    previous: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class CompletePiece:
    """A piece of live audio whose text, that of its window after the prefix, is final.

    Attributes
    ----------
    utterance : number of its utterance, counted from 1.
    start_sample : where the piece begins; it ends with the window.
    is_utterance_end : whether the utterance ends with it.
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
    answered_block : number of the newest candidate block of this window that this commit answers.
    held : position up to which (exclusive) tokens are committed or candidates wait for their pass.
    credit : position up to which (exclusive) candidates may be sent.
    is_final : whether the window is complete.
    outcome : the decision about a complete window.
    words : of a complete window, where word times were asked for.
    num_transcribed : first tokens of a complete window that are part of the transcript, where its words
        decide that; ``None`` for those of all complete segments.
    num_align_forwards : extra forward passes after a complete window, for word times.
    piece : what a complete window of live audio has made final; ``None`` for recordings.
    no_speech_prob : probability that the window holds no speech; with the window's first tokens.
    language_probs : probability by language code; with the first tokens after a detection.
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
    language_probs: Mapping[str, float] = field(default_factory=dict)
    timing: Timing = Timing()

    @property
    def num_drafted_verified(self) -> int:
        """Verified candidates of the draft.

        A rejected candidate of a hint before them leaves none.
        """
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
