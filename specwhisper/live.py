"""What a caller may ask of live audio: when an utterance ends, and when its text is final."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from specwhisper.errors import InvalidRequest, check_between

FRAME_SAMPLES = 160  # a mel frame


class StabilityPolicy(StrEnum):
    """When text of live audio is final."""

    # Once two decodings in a row agree on it (LocalAgreement-2, Liu et al., Interspeech 2020).
    LOCAL_AGREEMENT = "local-agreement"
    # Once the decoder looks away from the last moments for it (AlignAtt, arXiv 2305.11408).
    ALIGN_ATT = "align-att"


@dataclass(frozen=True, slots=True)
class LivePosition:
    """Where a live session goes on: on another server, or after the connection was lost.

    Attributes
    ----------
    start_sample : first sample of the open window; audio is sent from there on.
    num_utterances : those that were complete.
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
                f"start_sample is {self.start_sample}: a session goes on at a multiple of {FRAME_SAMPLES}, "
                "where its last position said."
            )


@dataclass(frozen=True, slots=True)
class LiveOptions:
    """How live audio is decoded: again and again while somebody speaks, until the text is final.

    Attributes
    ----------
    step_ms : speech between two decodings; a target that cannot keep up leaves some out.
    policy : when text is final.
    margin_ms : of ``align-att``: what the decoder looks at that close to the end may still change.
    trim_ms : a longer window is cut where a final sentence ends.
    recalls : whether what the last decoding wrote is proposed to the next one; it never changes the text.
    position : where the session goes on; by default it begins.
    """

    step_ms: int = 500
    policy: StabilityPolicy = StabilityPolicy.LOCAL_AGREEMENT
    margin_ms: int = 400
    trim_ms: int = 15_000
    recalls: bool = True
    position: LivePosition = LivePosition()

    def __post_init__(self) -> None:
        for name, lowest, highest in (
            ("step_ms", 100, 10_000),
            ("margin_ms", 0, 5_000),
            ("trim_ms", 1_000, 28_000),
        ):
            check_between(name, getattr(self, name), lowest, highest)


@dataclass(frozen=True, slots=True)
class EndpointingOptions:
    """When an utterance begins and ends, by the probability that somebody speaks.

    Attributes
    ----------
    threshold : probability above which somebody speaks; 0.15 below it nobody does.
    prefix_padding_ms : heard before it, so that no first sound is cut off.
    pause_ms : silence after which the utterance is decoded at once: it may have ended.
    silence_duration_ms : silence after which it has ended.
    min_speech_ms : shorter noises are no speech.
    """

    threshold: float = 0.5
    prefix_padding_ms: int = 300
    pause_ms: int = 200
    silence_duration_ms: int = 500
    min_speech_ms: int = 160

    def __post_init__(self) -> None:
        for name, lowest, highest in (
            ("threshold", 0.05, 0.95),
            ("prefix_padding_ms", 0, 2_000),
            ("pause_ms", 32, 10_000),
            ("silence_duration_ms", 32, 10_000),
            ("min_speech_ms", 0, 2_000),
        ):
            check_between(name, getattr(self, name), lowest, highest)
        if self.pause_ms > self.silence_duration_ms:
            raise InvalidRequest(
                f"pause_ms is {self.pause_ms}: it must be at most silence_duration_ms, which is "
                f"{self.silence_duration_ms}."
            )
