"""Where a recording stands, to continue it on another target.

That target needs the open window, the tokens committed in it, and the audio from its start on, since
committed tokens never change.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from specwhisper.errors import InvalidRequest
from specwhisper.options import DecodingOptions
from specwhisper.transcription.vocabulary import Vocabulary
from specwhisper.types import CONTEXT_SAMPLES, Commit, Resume


def audio_needed_from(start_sample: int) -> int:
    """Return the first sample that is needed to decode a window."""
    return max(0, start_sample - CONTEXT_SAMPLES)


@dataclass(frozen=True, slots=True)
class ResumePoint:
    """Where a recording stands, for a session of another draft and target.

    Attributes
    ----------
    resume : the message that the target is sent.
    is_sent : whether the client has the text of the window, which is complete but for its last token.
    no_speech_prob : the probability that the window holds no speech.
    language_probs : those of the recording, if its language was detected.
    """

    resume: Resume
    is_sent: bool = False
    no_speech_prob: float | None = None
    language_probs: Mapping[str, float] = field(default_factory=dict)

    def commit(self, max_ahead_tokens: int) -> Commit:
        """Return one commit of all committed tokens, with which a draft and a transcript begin here."""
        resume, end = self.resume, len(self.resume.committed)
        return Commit(
            resume.window.id,
            base=0,
            tokens=resume.committed,
            log_probs=resume.log_probs,
            held=end,
            credit=end + max_ahead_tokens,
            no_speech_prob=self.no_speech_prob,
        )


def check_resume(resume: Resume, vocabulary: Vocabulary, options: DecodingOptions) -> None:
    """Raise :class:`InvalidRequest` for a window that is complete or does not fit."""
    window, committed = resume.window, resume.committed
    room = vocabulary.max_length - len(window.prompt)
    if not (vocabulary.start_of_transcript in window.prompt and 1 <= window.max_new_tokens <= room):
        raise InvalidRequest(
            f"A resumed window with a prompt of {len(window.prompt)} tokens and {window.max_new_tokens} "
            f"to generate does not fit this target's {vocabulary.max_length}."
        )
    if window.prefix:
        raise InvalidRequest(
            f"A resumed window has a prefix of {len(window.prefix)} tokens: only windows of live audio have "
            "one, and that is continued by its position."
        )
    if len(resume.log_probs) != len(committed):
        raise InvalidRequest(
            f"Resume has {len(committed)} committed tokens but {len(resume.log_probs)} log-probabilities."
        )
    if window.attempt >= len(options.temperatures):
        raise InvalidRequest(
            f"Window {window.id} is attempt {window.attempt}, but the options name "
            f"{len(options.temperatures)} temperatures: resume it with the options it was opened with."
        )
    if len(committed) == window.max_new_tokens or not vocabulary.ends.isdisjoint(committed):
        raise InvalidRequest(f"Window {window.id} is complete: resume a session with a window that is open.")
