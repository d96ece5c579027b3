"""The options of live audio: when an utterance ends, and when its text is final."""

from __future__ import annotations

from dataclasses import dataclass

from specwhisper.errors import InvalidRequest, check_between
from specwhisper.validated import described, number, validate, whole

PIECE_SAMPLES = 320  # pieces begin and end at multiples of it: one timestamp token is 20 ms
MIN_SILENCE_MS = 32  # a frame of the voice activity detector


@dataclass(frozen=True, slots=True)
class FinalPiece:
    """Final text of live audio that later audio may be decoded after; timestamps count from its start."""

    start_sample: int
    tokens: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        check_sample("start_sample", self.start_sample)


@dataclass(frozen=True, slots=True)
class LivePosition:
    """Where a live session continues after an interruption, or elsewhere.

    Attributes
    ----------
    next_sample : where the audio begins that has no final text, a multiple of 320.
    num_utterances : utterances that have begun before it.
    is_speech : whether the last of them continues there.
    pieces : final text before it that the next window may hold.
    language : the last utterance's, where it was detected.
    num_ends : ends of utterances by the client that final text has answered.
    """

    next_sample: int = 0
    num_utterances: int = 0
    is_speech: bool = False
    pieces: tuple[FinalPiece, ...] = ()
    language: str | None = None
    num_ends: int = 0

    def __post_init__(self) -> None:
        check_sample("next_sample", self.next_sample)
        check_between("num_utterances", self.num_utterances, 0, 2**31)
        check_between("num_ends", self.num_ends, 0, 2**31)
        starts = [piece.start_sample for piece in self.pieces]
        if starts != sorted(set(starts)) or (starts and starts[-1] >= self.next_sample):
            raise InvalidRequest(
                "The pieces of a position are not in order: send the last resume point as it was received."
            )

    @property
    def start_sample(self) -> int:
        """First sample that the next window may hold: audio is sent from there on."""
        return self.pieces[0].start_sample if self.pieces else self.next_sample


def check_sample(name: str, sample: int) -> None:
    """Raise :class:`InvalidRequest` unless a sample may be one of a position."""
    check_between(name, sample, 0, 2**62)
    if sample % PIECE_SAMPLES:
        raise InvalidRequest(
            f"{name} is {sample}: a session continues at a multiple of {PIECE_SAMPLES}; "
            "send the last resume point as it was received."
        )


@described
@dataclass(frozen=True, slots=True)
class LiveOptions:
    """How live audio is decoded: by pieces, each once.

    A piece is complete when its utterance has ended, or is long.
    """

    step_ms: int = whole(400, 100, 10_000, "Milliseconds of speech between two texts of the draft.", "MS")
    confirm_every_ms: int | None = whole(  # a target that cannot keep up leaves some out
        None,
        100,
        10_000,
        "Milliseconds of speech between two texts of the target before an utterance ends. Default: none.",
        "MS",
    )

    def __post_init__(self) -> None:
        validate(self)


@described
@dataclass(frozen=True, slots=True)
class EndpointingOptions:
    """When an utterance begins, is cut and ends, by the probability of speech."""

    threshold: float = number(  # speech ends 0.15 below it
        0.5, 0.05, 0.95, "Audio above this probability is speech.", "P"
    )
    prefix_padding_ms: int = whole(
        300, 0, 2_000, "Milliseconds kept before detected speech, so that its onset is not clipped.", "MS"
    )
    silence_duration_ms: int = whole(
        300, MIN_SILENCE_MS, 10_000, "Milliseconds of silence that end an utterance.", "MS"
    )
    short_silence_ms: int = whole(
        800,
        MIN_SILENCE_MS,
        10_000,
        "Milliseconds of silence that end a short utterance, if longer than --silence-duration-ms.",
        "MS",
    )
    min_utterance_ms: int = whole(
        3_000, 0, 30_000, "Milliseconds of speech below which an utterance counts as short.", "MS"
    )
    max_piece_ms: int = whole(
        12_000, 2_000, 28_000, "Milliseconds after which an utterance is cut at its best pause.", "MS"
    )
    min_speech_ms: int = whole(160, 0, 2_000, "Milliseconds below which a sound is ignored.", "MS")

    def __post_init__(self) -> None:
        validate(self)
