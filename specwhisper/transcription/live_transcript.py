"""Build the transcript of live audio from messages: final text, and text that may still change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from specwhisper.live import LivePosition
from specwhisper.speculation.statistics import SpeculationStatistics
from specwhisper.transcription.open_window import OpenWindow
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
)

FRAME_S = HOP_SAMPLES / SAMPLE_RATE


class LiveTranscript:
    """Keeps the text of the open utterance, and nothing of those before it.

    The text of a step is read in this order: final text (never changes), verified text (the target's, by
    this step or the last one), draft text (not verified).

    Attributes
    ----------
    num_samples : audio so far, set by the caller.
    language, language_probs : of the open utterance, or the last one.
    statistics : how the draft has done so far.
    steps : decodings that are complete; the caller clears the list once it has sent them.
    """

    is_unverified = False

    def __init__(self, vocabulary: Vocabulary, position: LivePosition = LivePosition()) -> None:  # noqa: B008 (it is frozen)
        self._vocabulary = vocabulary
        self._window: Window | None = None  # the last one that was opened
        self._commits: OpenWindow | None = None  # of that window; None once its step is decided
        self._last_step: tuple[int, ...] = ()  # the last step's tokens, as long as no commit contradicts them
        self._belief: tuple[Window, tuple[int, ...]] | None = None  # the draft's
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
        """Where another session can continue."""
        return LivePosition(self._start_sample, self._num_utterances, tuple(self._final))

    @property
    def span_s(self) -> tuple[float, float]:
        """Start and end of the text that is not final, in seconds."""
        return self._final_end_s, max(self._final_end_s, self.num_samples / SAMPLE_RATE)

    @property
    def verified_text(self) -> str:
        """The target's text after the final text, from this step or the last one."""
        return self._vocabulary.decode_unfinished(self._verified)

    @property
    def draft_text(self) -> str:
        """The draft's text after the verified text; it may be of newer audio."""
        return self._vocabulary.decode_unfinished(self._drafted, after=self._verified)

    @property
    def unfinished(self) -> tuple[int, ...]:
        """Text tokens of verified and draft text."""
        return (*self._verified, *self._drafted)

    def text_after(self, known: Sequence[int], tokens: Sequence[int]) -> str:
        """Return the part of other tokens' text that continues a known text."""
        text, known = self._text(tokens), self._text(known)
        rest = text[continuation(known, text, self._may_begin) :]
        return self._vocabulary.decode_unfinished(rest, after=known)

    @property
    def _is_open(self) -> bool:
        return self._commits is not None and not self._commits.is_complete

    @property
    def _verified(self) -> tuple[int, ...]:
        committed = self._commits.tokens if self._commits else []
        text = self._text([*committed, *self._last_step[len(committed) :]])
        return text[continuation(self._final, text, self._may_begin) :]

    @property
    def _drafted(self) -> tuple[int, ...]:
        if self._belief is None:
            return ()
        known = (*self._final, *self._verified)
        believed = self._text(self._belief[1])
        if believed[: len(known)] == known:  # verified text may break off within a word
            return believed[len(known) :]
        return believed[continuation(known, believed, self._may_begin) :]

    def believe(self, window: Window, tokens: tuple[int, ...]) -> None:
        """Take in the draft's belief of a window; one that is older than the last window is dropped."""
        if self._window is None or window.id > self._window.id or (self._is_open and window == self._window):
            self._belief = (window, tokens)
            self._drop_outdated_belief()

    def pass_over(self, sample: int) -> None:
        """Note that the audio before a sample is silence that no session will need again."""
        if not self._is_open and not self._final:
            self._start_sample = max(self._start_sample, sample // HOP_SAMPLES * HOP_SAMPLES)

    def observe(self, message: WindowOpened | Candidates | Commit) -> list[Segment]:
        """Take in one message; return the text that it makes final."""
        self.statistics.observe(message)
        match message:
            case WindowOpened():
                self._open(message)
            case Commit() if self._commits is not None and self._is_open:
                if message.window_id == self._commits.window.id:
                    return self._append(message, self._commits)
        return []

    def _open(self, opened: WindowOpened) -> None:
        self._window, self._commits = opened.window, OpenWindow(opened.window)
        if opened.expected or opened.window.start_sample != self._start_sample:
            self._last_step = opened.expected
        else:  # a target that reuses no candidates sends none; readers see the last step's text all the same
            self._last_step = self._vocabulary.without_ending(self._last_step)
        self._start_sample = opened.window.start_sample
        self._final = self._final[len(self._final) - opened.num_final :] if opened.num_final else ()
        self.language = self._vocabulary.prompt_language(opened.window.prompt) or "en"
        if self._belief is not None and self._belief[0].id < opened.window.id:
            self._belief = None
        self._drop_outdated_belief()

    def _drop_outdated_belief(self) -> None:
        """Drop a belief that begins before the open window: all text of that audio is final."""
        if self._belief is not None and self._belief[0].start_sample < self._start_sample:
            self._belief = None

    def _append(self, commit: Commit, commits: OpenWindow) -> list[Segment]:
        commits.append(commit)
        self.language_probs = commit.language_probs or self.language_probs
        committed, window = tuple(commits.tokens), commits.window
        if committed != self._last_step[: len(committed)]:
            self._last_step = ()
        if self._belief is not None and self._belief[0].id == window.id:
            if committed != self._belief[1][: len(committed)]:
                self._belief = None  # the draft will report what it believes now
        if not commit.is_final:
            return []
        if self._belief is not None and self._belief[0].id <= window.id:
            self._belief = None  # all of its audio has been decoded
        num_forwards = self.statistics.num_forwards - self._num_forwards
        self._num_forwards = self.statistics.num_forwards
        self.steps.append(DecodedStep(window.start_sample, window.end_sample, num_forwards))
        if commit.step is None:  # the window is decoded again: its text stays until then
            return []
        return self._settle(commit, commit.step, commits)

    def _settle(self, commit: Commit, step: Step, commits: OpenWindow) -> list[Segment]:
        """Move a step's final text from the verified text to the final text."""
        segment = self._final_segment(commit, step, commits)
        self._final = (*self._final, *self._text(segment.tokens))
        self._last_step = tuple(commits.tokens) if commit.outcome is Outcome.KEPT else ()
        self._commits = None
        if step.is_last:
            self._num_utterances = step.utterance
            self._final, self._last_step = (), ()
            self._start_sample = commits.window.end_sample
            self._final_end_s = max(self._final_end_s, commits.window.end_sample / SAMPLE_RATE)
            self._drop_outdated_belief()
        return [segment] if segment.text or step.is_last else []

    def _final_segment(self, commit: Commit, step: Step, commits: OpenWindow) -> Segment:
        tokens = tuple(commits.tokens[step.final_start : step.final_end])
        start_s, end_s = self._final_end_s, self._final_end_s
        if commit.words:
            start_s = commit.words[0].start_sample / SAMPLE_RATE
            end_s = commit.words[-1].end_sample / SAMPLE_RATE
        elif tokens:
            start_s, end_s = self._time_s(commits, step.final_start), self._time_s(commits, step.final_end)
        start_s = max(start_s, self._final_end_s)
        self._final_end_s = end_s = max(end_s, start_s)
        segment = Segment(
            start_s=round(start_s, 2),
            end_s=round(end_s, 2),
            tokens=tokens,
            text=self._vocabulary.decode(tokens),
            seek=commits.window.start_frame,
            utterance=step.utterance,
            is_utterance_end=step.is_last,
            language=self.language,
        )
        return commits.with_scores(segment, step.final_start, step.final_end, commit.words, self._vocabulary)

    def _time_s(self, commits: OpenWindow, position: int) -> float:
        """Estimate when a token is spoken, in seconds: linearly between the timestamps around it."""
        begin, window = self._vocabulary.timestamp_begin, commits.window
        known = [(0, 0.0)]
        for i, token in enumerate(commits.tokens):
            if token >= begin:
                frames = min((token - begin) * FRAMES_PER_TIMESTAMP, window.num_frames)
                at_s = max(known[-1][1], frames * FRAME_S)
                known += [(i, at_s), (i + 1, at_s)]  # it takes no time itself
        known.append((len(commits.tokens), max(known[-1][1], window.num_frames * FRAME_S)))
        position = min(position, len(commits.tokens))
        before = max(entry for entry in known if entry[0] <= position)
        after = min(entry for entry in known if entry[0] >= position)
        share = (position - before[0]) / (after[0] - before[0]) if after[0] > before[0] else 0.0
        return window.start_frame * FRAME_S + before[1] + share * (after[1] - before[1])

    def _text(self, tokens: Sequence[int]) -> tuple[int, ...]:
        return tuple(token for token in tokens if token < self._vocabulary.end_of_text)

    def _may_begin(self, token: int) -> bool:
        return self._vocabulary.may_begin_word(token, self.language)
