"""The options of live audio: when an utterance ends, and when its text is final."""

from __future__ import annotations

from dataclasses import dataclass

from specwhisper.errors import InvalidRequest, check_between
from specwhisper.validated import flag, number, validate, whole

FRAME_SAMPLES = 160  # a mel frame
MIN_SILENCE_MS = 32  # a frame of the voice activity detector


@dataclass(frozen=True, slots=True)
class LivePosition:
    """Where a live session continues after an interruption, or elsewhere.

    Attributes
    ----------
    start_sample : first sample of the open window, a multiple of 160; audio is sent from there on.
    num_utterances : utterances that were complete.
    final_tokens : text of the open window that is final.
    """

    start_sample: int = 0
    num_utterances: int = 0
    final_tokens: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        check_between("start_sample", self.start_sample, 0, 2**62)
        check_between("num_utterances", self.num_utterances, 0, 2**31)
        if self.start_sample % FRAME_SAMPLES:
            raise InvalidRequest(
                f"start_sample is {self.start_sample}: a session continues at a multiple of {FRAME_SAMPLES}; "
                "pass on the last position as it was received."
            )


@dataclass(frozen=True, slots=True)
class LiveOptions:
    """How live audio is decoded: repeatedly, until two steps agree on text.

    Attributes
    ----------
    step_ms : speech between two decodings; a target that cannot keep up leaves some out.
    trim_ms : a longer window is cut where a final sentence ends.
    reuses_candidates : whether the text of the last decoding becomes candidates of the next one; it never
        changes the text.
    position : where the session continues; by default it begins.
    """

    step_ms: int = whole(500, 100, 10_000)
    trim_ms: int = whole(15_000, 1_000, 28_000)
    reuses_candidates: bool = flag(True)
    position: LivePosition = LivePosition()

    def __post_init__(self) -> None:
        validate(self)


@dataclass(frozen=True, slots=True)
class EndpointingOptions:
    """When an utterance begins and ends, by the probability of speech.

    Attributes
    ----------
    threshold : probability above which there is speech; 0.15 below it there is none.
    prefix_padding_ms : audio before an utterance that belongs to it, so that no first sound is cut off.
    pause_ms : silence after which the utterance is decoded at once: it may have ended.
    silence_duration_ms : silence after which it has ended.
    sentence_silence_ms : silence after which it has ended if the target's text ends a sentence there;
        ``None`` for ``silence_duration_ms``, whatever the text.
    min_utterance_ms, short_silence_ms : an utterance shorter than the first needs the second, if it is longer
        than ``silence_duration_ms``, to end.
    max_piece_ms : a longer piece of an utterance is cut at its best pause.
    min_speech_ms : shorter noises are no speech.
    """

    threshold: float = number(0.5, 0.05, 0.95)
    prefix_padding_ms: int = whole(300, 0, 2_000)
    pause_ms: int = whole(200, MIN_SILENCE_MS, 10_000)
    silence_duration_ms: int = whole(500, MIN_SILENCE_MS, 10_000)
    sentence_silence_ms: int | None = whole(None, MIN_SILENCE_MS, 10_000)
    min_utterance_ms: int = whole(4_000, 0, 30_000)
    short_silence_ms: int = whole(1_000, MIN_SILENCE_MS, 10_000)
    max_piece_ms: int = whole(12_000, 2_000, 28_000)
    min_speech_ms: int = whole(160, 0, 2_000)

    def __post_init__(self) -> None:
        validate(self)
        longer = {"silence_duration_ms": self.silence_duration_ms}
        if self.sentence_silence_ms is not None:
            longer = {"sentence_silence_ms": self.sentence_silence_ms} | longer
        name, shorter_ms = "pause_ms", self.pause_ms
        for longer_name, longer_ms in longer.items():
            if shorter_ms > longer_ms:
                raise InvalidRequest(
                    f"{name} is {shorter_ms}: it must be at most {longer_name}, which is {longer_ms}."
                )
            name, shorter_ms = longer_name, longer_ms
