"""The text of a live session, over all parts on targets and without one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from specwhisper.live import LivePosition
from specwhisper.speculation.statistics import SpeculationStatistics
from specwhisper.transcription.live_transcript import LiveTranscript
from specwhisper.transcription.segments import Borders
from specwhisper.types import SAMPLE_RATE
from specwhisper_draft_server.sessions.update import SessionUpdate


class MergedTranscript:
    """The merged transcripts of one live session's parts.

    It reads as :class:`LiveTranscript` does. A part is what one target wrote, or the draft without one.
    Draft-only text is never final. It is replaced, utterance by utterance, once a target has decoded the same
    audio.

    Parameters
    ----------
    part : the transcript of the first target's part.
    """

    stable_text = ""

    def __init__(self, part: LiveTranscript) -> None:
        self._part = part
        self._is_draft_only = False  # whether the current part is
        self._resume_position = part.position  # where the draft-only part began
        self._unverified: dict[int, tuple[int, ...]] = {}  # draft-only tokens, by utterance
        self._final: tuple[int, ...] = ()  # final since then, in the open utterance
        self._earlier = SpeculationStatistics()  # of the targets' parts that have ended
        self._language: str | None = None  # the last one of earlier parts
        self._earlier_samples = part.num_samples  # received in earlier parts
        self._borders = Borders()

    def follow_target(self, part: LiveTranscript) -> None:
        """Continue with another target's part, from :attr:`position`."""
        if self._is_draft_only:
            self._add_unverified(self._part.position.num_utterances + 1, self._part.unfinished)
        else:
            self._earlier.add(self._part.statistics)
        self._follow(part, is_draft_only=False)

    def follow_draft(self, part: LiveTranscript) -> None:
        """Continue with a draft-only part, from :attr:`position`."""
        self._earlier.add(self._part.statistics)
        self._resume_position, self._unverified = self._part.position, {}
        self._follow(part, is_draft_only=True)

    def _follow(self, part: LiveTranscript, *, is_draft_only: bool) -> None:
        self._earlier_samples, self._language = self.num_samples, self.detected_language
        self._part, self._is_draft_only, self._final = part, is_draft_only, ()

    def take(self, update: SessionUpdate) -> SessionUpdate:
        """Add an update of the part; return it for the whole session.

        Draft-only text is not final.
        """
        if self._is_draft_only:
            for segment in update.segments:
                self._add_unverified(segment.utterance, segment.tokens)
            return replace(update, segments=(), steps=())
        for segment in update.segments:
            self._final += tuple(segment.tokens)
            if segment.is_utterance_end:
                self._final = ()
                self._unverified = {n: text for n, text in self._unverified.items() if n > segment.utterance}
        return replace(update, segments=self._borders(update.segments))

    def _add_unverified(self, utterance: int, tokens: Sequence[int]) -> None:
        if self._part.text_after((), tokens).strip():
            self._unverified[utterance] = (*self._unverified.get(utterance, ()), *tokens)

    @property
    def is_unverified(self) -> bool:
        """Whether some of the draft text was written without a target."""
        return self._is_draft_only or bool(self._unverified)

    @property
    def num_samples(self) -> int:
        """Samples received so far; audio that is decoded again counts once."""
        return max(self._earlier_samples, self._part.num_samples)

    @property
    def language(self) -> str:
        """Language code of the open utterance, or of the last one."""
        return self.detected_language or self._part.language

    @property
    def detected_language(self) -> str | None:
        """Language code of the last window; ``None`` before the first."""
        return self._part.language if self._part.statistics.num_windows else self._language

    @property
    def language_probs(self) -> Mapping[str, float]:
        """Probabilities by language code, where the language was detected."""
        return self._part.language_probs

    @property
    def statistics(self) -> SpeculationStatistics:
        """Statistics of all targets' parts."""
        total = SpeculationStatistics()
        total.add(self._earlier)
        if not self._is_draft_only:
            total.add(self._part.statistics)
        return total

    @property
    def position(self) -> LivePosition:
        """Where another session would continue: after the last final word."""
        return self._resume_position if self._is_draft_only else self._part.position

    @property
    def span_s(self) -> tuple[float, float]:
        """Start and end of the text that is not final, in seconds."""
        return self.position.start_sample / SAMPLE_RATE, self.num_samples / SAMPLE_RATE

    @property
    def settled_text(self) -> str:
        """Verified text that only grows: of live audio it is final."""
        return self._part.settled_text

    @property
    def verified_text(self) -> str:
        """Text of the target that is not final."""
        return "" if self._is_draft_only else self._part.verified_text

    @property
    def tentative_text(self) -> str:
        """Draft-only text, and the draft's text after it."""
        part = self._part
        if self._is_draft_only:
            return self._unverified_from(0) + part.verified_text + part.tentative_text
        current = part.position.num_utterances + 1
        # Of the open utterance, only the words after those that are verified by now.
        rest = part.text_after((*self._final, *part.unfinished), self._unverified.get(current, ()))
        return part.tentative_text + rest + self._unverified_from(current + 1)

    def _unverified_from(self, utterance: int) -> str:
        later = (tokens for number, tokens in sorted(self._unverified.items()) if number >= utterance)
        return "".join(self._part.text_after((), tokens) for tokens in later)
