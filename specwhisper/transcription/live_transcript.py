"""Follow a live session from the draft's side: what has become final, and what may still change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import exp

from specwhisper.errors import InvalidCandidates
from specwhisper.live import LivePosition
from specwhisper.speculation.statistics import SpeculationStatistics
from specwhisper.transcription.fallback import avg_logprob, text_compression_ratio
from specwhisper.transcription.stability import continuation
from specwhisper.transcription.vocabulary import Vocabulary
from specwhisper.types import (
    FRAMES_PER_TIMESTAMP,
    HOP_SAMPLES,
    SAMPLE_RATE,
    Candidates,
    Commit,
    DecodedStep,
    Outcome,
    Segment,
    Step,
    Window,
    WindowOpened,
    Word,
)

FRAME_S = HOP_SAMPLES / SAMPLE_RATE


class LiveTranscript:
    """Keeps the open utterance and nothing of those before it, however long the session.

    Attributes
    ----------
    num_samples : audio so far; whoever feeds it says so.
    language, language_probs : of the open utterance, or the last one.
    statistics : how the draft has done so far.
    steps : decodings that are complete; whoever tells them clears them.
    """

    is_unverified = False

    def __init__(self, vocabulary: Vocabulary, position: LivePosition = LivePosition()) -> None:  # noqa: B008 (it is frozen)
        self._vocabulary = vocabulary
        self._language_of = {token: code for code, token in vocabulary.languages.items()}
        self._window: Window | None = None  # the last one that was opened
        self._is_open = False
        self._committed: list[int] = []
        self._log_probs: list[float] = []
        self._no_speech_prob: float | None = None
        self._expected: tuple[int, ...] = ()  # verified by the last step, and not contradicted since
        self._believed: tuple[Window, tuple[int, ...]] | None = None
        self._final = position.final_tokens  # text of the open window
        self._num_utterances = position.num_utterances
        self._start_sample = position.start_sample
        self._final_end_s = position.start_sample / SAMPLE_RATE
        self.num_samples = position.start_sample
        self.language = "en"
        self.language_probs: Mapping[str, float] = {}
        self.statistics = SpeculationStatistics()
        self.steps: list[DecodedStep] = []
        self._num_forwards = 0  # of all steps that are complete

    @property
    def position(self) -> LivePosition:
        """Where another session would go on."""
        return LivePosition(self._start_sample, self._num_utterances, tuple(self._final))

    @property
    def span_s(self) -> tuple[float, float]:
        """What is not final begins and ends here, in seconds."""
        return self._final_end_s, max(self._final_end_s, self.num_samples / SAMPLE_RATE)

    @property
    def verified_text(self) -> str:
        """What the target has written behind the final text, in this step or the last one."""
        return self._vocabulary.decode_unfinished(self._verified)

    @property
    def draft_text(self) -> str:
        """What the draft believes to follow it, of newer audio perhaps."""
        return self._vocabulary.decode_unfinished(self._drafted, after=self._verified)

    @property
    def unfinished(self) -> tuple[int, ...]:
        """Text tokens of both."""
        return (*self._verified, *self._drafted)

    def behind(self, known: Sequence[int], tokens: Sequence[int]) -> str:
        """Read what of tokens, as somebody else has written them, goes on behind text that is known."""
        text, known = self._text(tokens), self._text(known)
        rest = text[continuation(known, text, self._may_begin) :]
        return self._vocabulary.decode_unfinished(rest, after=known)

    @property
    def _drafted(self) -> tuple[int, ...]:
        if self._believed is None:
            return ()
        known = (*self._final, *self._verified)
        believed = self._text(self._believed[1])
        if believed[: len(known)] == known:  # verified text may break off within a word
            return believed[len(known) :]
        return believed[continuation(known, believed, self._may_begin) :]

    @property
    def _verified(self) -> tuple[int, ...]:
        text = self._text([*self._committed, *self._expected[len(self._committed) :]])
        return text[continuation(self._final, text, self._may_begin) :]

    def believe(self, window: Window, tokens: tuple[int, ...]) -> None:
        """Take in all that the draft believes of a window; what is older than the last one is of no use."""
        if self._window is None or window.id > self._window.id or (self._is_open and window == self._window):
            self._believed = (window, tokens)
            self._forget_beliefs()

    def pass_over(self, sample: int) -> None:
        """Note that nothing before a sample is of use any more, in silence."""
        if not self._is_open and not self._final:
            self._start_sample = max(self._start_sample, sample // HOP_SAMPLES * HOP_SAMPLES)

    def observe(self, message: WindowOpened | Candidates | Commit) -> list[Segment]:
        """Take in one message and give the text that it makes final."""
        self.statistics.observe(message)
        match message:
            case WindowOpened():
                self._begin(message)
            case Commit() if self._is_open and self._window and message.window_id == self._window.id:
                return self._append(message, self._window)
        return []

    def _begin(self, opened: WindowOpened) -> None:
        self._window, self._is_open = opened.window, True
        self._committed, self._log_probs = [], []
        if opened.expected or opened.window.start_sample != self._start_sample:
            self._expected = opened.expected
        else:  # the target recalls nothing; the reader does
            self._expected = self._vocabulary.without_ending(self._expected)
        self._start_sample = opened.window.start_sample
        self._final = self._final[len(self._final) - opened.num_final :] if opened.num_final else ()
        spoken = (self._language_of[i] for i in opened.window.prompt if i in self._language_of)
        self.language = next(spoken, "en")
        if self._believed is not None and self._believed[0].id < opened.window.id:
            self._believed = None
        self._forget_beliefs()

    def _forget_beliefs(self) -> None:
        """Forget what is believed of audio before the open window: all that is said there is final."""
        if self._believed is not None and self._believed[0].start_sample < self._start_sample:
            self._believed = None

    def _append(self, commit: Commit, window: Window) -> list[Segment]:
        start = len(self._committed)
        if commit.base > start:
            raise InvalidCandidates(f"A commit at position {commit.base} leaves a gap behind {start}.")
        fresh = commit.tokens[start - commit.base :]
        self._committed += fresh
        if tuple(self._committed) != self._expected[: len(self._committed)]:
            self._expected = ()
        if self._believed is not None and self._believed[0].id == window.id:
            if tuple(self._committed) != self._believed[1][: len(self._committed)]:
                self._believed = None  # the draft will say what it believes now
        self._log_probs += commit.log_probs[len(commit.log_probs) - len(fresh) :] if fresh else ()
        self._no_speech_prob = commit.no_speech_prob if start == 0 else self._no_speech_prob
        self.language_probs = commit.language_probs or self.language_probs
        if not commit.is_final:
            return []
        self._is_open = False
        if self._believed is not None and self._believed[0].id <= window.id:
            self._believed = None  # all that it was about has been decoded
        num_forwards = self.statistics.num_forwards - self._num_forwards
        self._num_forwards = self.statistics.num_forwards
        self.steps.append(DecodedStep(window.start_sample, window.end_sample, num_forwards))
        step = commit.step
        if step is None:  # it failed and is tried again
            return []
        segment = self._final_segment(commit, step, window)
        self._final = (*self._final, *self._text(segment.tokens))
        self._expected = tuple(self._committed) if commit.outcome is Outcome.KEPT else ()
        self._committed = []
        if step.is_last:
            self._num_utterances = step.utterance
            self._final, self._expected = (), ()
            self._start_sample = window.end_sample
            self._final_end_s = max(self._final_end_s, window.end_sample / SAMPLE_RATE)
            self._forget_beliefs()
        return [segment] if segment.text or step.is_last else []

    def _final_segment(self, commit: Commit, step: Step, window: Window) -> Segment:
        tokens = tuple(self._committed[step.final_start : step.final_end])
        words = tuple(
            Word(
                start_s=word.start_sample / SAMPLE_RATE,
                end_s=word.end_sample / SAMPLE_RATE,
                text=self._vocabulary.decode(self._committed[word.base : word.base + word.num_tokens]),
                confidence=self._confidence(word.base, word.base + word.num_tokens),
            )
            for word in commit.words
        )
        start_s = self._time_s(window, step.final_start) if tokens else self._final_end_s
        end_s = self._time_s(window, step.final_end) if tokens else self._final_end_s
        if words:
            start_s, end_s = words[0].start_s, words[-1].end_s
        start_s = max(start_s, self._final_end_s)
        self._final_end_s = end_s = max(end_s, start_s)
        return Segment(
            start_s=round(start_s, 2),
            end_s=round(end_s, 2),
            tokens=tokens,
            text=self._vocabulary.decode(tokens),
            confidence=self._confidence(step.final_start, step.final_end),
            avg_logprob=avg_logprob(self._log_probs),
            compression_ratio=text_compression_ratio(self._vocabulary.decode(self._committed)),
            temperature=window.temperature,
            no_speech_prob=self._no_speech_prob,
            seek=window.start_frame,
            words=words,
            utterance=step.utterance,
            is_utterance_end=step.is_last,
            language=self.language,
        )

    def _time_s(self, window: Window, position: int) -> float:
        """Estimate when a position of the window is spoken: in proportion between the times around it."""
        begin = self._vocabulary.timestamp_begin
        known = [(0, 0.0)]
        for i, token in enumerate(self._committed):
            if token >= begin:
                frames = min((token - begin) * FRAMES_PER_TIMESTAMP, window.num_frames)
                at_s = max(known[-1][1], frames * FRAME_S)
                known += [(i, at_s), (i + 1, at_s)]  # it takes no time itself
        known.append((len(self._committed), max(known[-1][1], window.num_frames * FRAME_S)))
        position = min(position, len(self._committed))
        before = max(entry for entry in known if entry[0] <= position)
        behind = min(entry for entry in known if entry[0] >= position)
        share = (position - before[0]) / (behind[0] - before[0]) if behind[0] > before[0] else 0.0
        return window.start_frame * FRAME_S + before[1] + share * (behind[1] - before[1])

    def _text(self, tokens: Sequence[int]) -> tuple[int, ...]:
        return tuple(token for token in tokens if token < self._vocabulary.end_of_text)

    def _may_begin(self, token: int) -> bool:
        return self._vocabulary.may_begin_word(token, self.language)

    def _confidence(self, start: int, end: int) -> float:
        probs = [exp(log_prob) for log_prob in self._log_probs[start:end]]
        return sum(probs) / len(probs) if probs else 0.0
