"""The text of one live session on several targets, one after the other, with the draft alone between them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from specwhisper.live import LivePosition
from specwhisper.speculation.statistics import SpeculationStatistics
from specwhisper.transcription.live_transcript import LiveTranscript
from specwhisper.types import SAMPLE_RATE, DecodedStep, Segment


class MergedTranscript:
    """Reads as :class:`LiveTranscript` does, whoever writes just now.

    What the draft wrote alone is never final; utterance by utterance it gives way to what a target writes.

    Parameters
    ----------
    part : the transcript of the first target's session.
    """

    def __init__(self, part: LiveTranscript) -> None:
        self._part = part
        self._is_alone = False  # whether it is the draft's
        self._verified = part.position  # where the draft alone began
        self._written: dict[int, tuple[int, ...]] = {}  # by the draft alone, tokens by utterance
        self._final: tuple[int, ...] = ()  # what has become final since, of the open utterance
        self._counted = SpeculationStatistics()  # of targets that are lost
        self._language: str | None = None  # that parts which have ended heard last
        self._heard_samples = part.num_samples  # by them
        self._told_to_s = 0.0  # end of the last segment

    def go_on(self, part: LiveTranscript) -> None:
        """Go on with what another target writes, from :attr:`position`."""
        if self._is_alone:
            self._write(self._part.position.num_utterances + 1, self._part.unfinished)
        else:
            self._counted.add(self._part.statistics)
        self._leave(part, is_alone=False)

    def go_on_alone(self, part: LiveTranscript) -> None:
        """Go on with what the draft writes alone, for lack of a target."""
        self._counted.add(self._part.statistics)
        self._verified, self._written = self._part.position, {}
        self._leave(part, is_alone=True)

    def _leave(self, part: LiveTranscript, *, is_alone: bool) -> None:
        self._heard_samples, self._language = self.num_samples, self.spoken
        self._part, self._is_alone, self._final = part, is_alone, ()

    def take(self, segments: Sequence[Segment]) -> list[Segment]:
        """Take in what has become final of the part; give what is final of the whole."""
        if self._is_alone:
            for segment in segments:
                self._write(segment.utterance, segment.tokens)
            return []
        for segment in segments:
            self._final += tuple(segment.tokens)
            if segment.is_utterance_end:
                self._final = ()
                self._written = {n: text for n, text in self._written.items() if n > segment.utterance}
        return [self._in_order(segment) for segment in segments]

    def _in_order(self, segment: Segment) -> Segment:
        """Let nothing begin before what was told by a target that is lost: its times are estimates too."""
        start_s = max(segment.start_s, self._told_to_s)
        self._told_to_s = max(segment.end_s, start_s)
        words = tuple(
            replace(word, start_s=max(word.start_s, start_s), end_s=max(word.end_s, start_s))
            for word in segment.words
        )
        return replace(segment, start_s=start_s, end_s=self._told_to_s, words=words)

    def _write(self, utterance: int, tokens: Sequence[int]) -> None:
        if self._part.behind((), tokens).strip():
            self._written[utterance] = (*self._written.get(utterance, ()), *tokens)

    @property
    def is_unverified(self) -> bool:
        """Whether some of the draft text was written alone."""
        return self._is_alone or bool(self._written)

    @property
    def num_samples(self) -> int:
        """Audio so far; what is heard again does not count twice."""
        return max(self._heard_samples, self._part.num_samples)

    @property
    def language(self) -> str:
        """Of the open utterance, or the last one."""
        return self.spoken or self._part.language

    @property
    def spoken(self) -> str | None:
        """The language that was heard last; ``None`` while nothing was."""
        return self._part.language if self._part.statistics.num_windows else self._language

    @property
    def language_probs(self) -> Mapping[str, float]:
        """By code, where the language was detected."""
        return self._part.language_probs

    @property
    def statistics(self) -> SpeculationStatistics:
        """How the draft has done on all targets."""
        total = SpeculationStatistics()
        total.add(self._counted)
        if not self._is_alone:
            total.add(self._part.statistics)
        return total

    @property
    def position(self) -> LivePosition:
        """Where another session would go on: behind the last verified word."""
        return self._verified if self._is_alone else self._part.position

    @property
    def steps(self) -> list[DecodedStep]:
        """Decodings of the target; whoever tells them clears them."""
        return [] if self._is_alone else self._part.steps

    @steps.setter
    def steps(self, steps: list[DecodedStep]) -> None:
        self._part.steps = steps

    @property
    def span_s(self) -> tuple[float, float]:
        """What is not final begins and ends here, in seconds."""
        return self.position.start_sample / SAMPLE_RATE, self.num_samples / SAMPLE_RATE

    @property
    def verified_text(self) -> str:
        """What the target has written that is not final."""
        return "" if self._is_alone else self._part.verified_text

    @property
    def draft_text(self) -> str:
        """What the draft has written alone, and what it believes to follow."""
        part = self._part
        if self._is_alone:
            return self._written_from(0) + part.verified_text + part.draft_text
        current = part.position.num_utterances + 1
        # What is not verified yet of the open utterance stands behind what is.
        rest = part.behind((*self._final, *part.unfinished), self._written.get(current, ()))
        return part.draft_text + rest + self._written_from(current + 1)

    def _written_from(self, utterance: int) -> str:
        later = (tokens for number, tokens in sorted(self._written.items()) if number >= utterance)
        return "".join(self._part.behind((), tokens) for tokens in later)
