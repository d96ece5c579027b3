"""Build the transcript of live audio from messages.

A live client sees three kinds of text, one after the other:

========  =====================================================  ======================================
Kind      It is                                                  It changes
========  =====================================================  ======================================
final     returned by :meth:`LiveTranscript.observe`: the        never
          segments that each complete step makes final
verified  the open step's committed tokens, followed by the      with each commit
          last step's as long as the commits agree with it
draft     the draft's belief after the verified text, of the     with each block of the draft; it is
          open step or of one that the target has yet to open    dropped once a commit contradicts it
========  =====================================================  ======================================

A last word that its model has not ended yet, by the next word or the end of the text, is left out.

A step is decoded from the start of its window, so it writes final text again. :func:`continuation` finds
where its text continues after the final text. ``draft_only.py`` of the draft server adds a fourth kind for
the time without a target: unverified text.

=====================  ===============================================================================
State of the step      The verified text is made of
=====================  ===============================================================================
none opened            nothing
open                   the tokens that are committed, then the last step's
to be decoded again    the failed try's tokens; then those are the last step's
closed                 its tokens, of which some are final by now; nothing if it was silence
=====================  ===============================================================================
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from specwhisper.live import LivePosition
from specwhisper.speculation.statistics import SpeculationStatistics
from specwhisper.transcription.open_window import OpenWindow
from specwhisper.transcription.segments import FRAME_S, Borders
from specwhisper.transcription.stability import continuation, up_to_last_word
from specwhisper.transcription.vocabulary import UNSPACED, Vocabulary
from specwhisper.types import (
    FRAMES_PER_TIMESTAMP,
    HOP_SAMPLES,
    SAMPLE_RATE,
    Believed,
    Candidates,
    Commit,
    DecodedStep,
    Outcome,
    Segment,
    Step,
    Window,
    WindowOpened,
)

SENTENCE_ENDS = (".", "?", "!", "。", "？", "！", "।", "؟")  # noqa: RUF001
CLOSING_MARKS = "\"')]}”’»」』"  # noqa: RUF001


class LiveTranscript:
    """Keeps the text of the open utterance, and no text of those before it.

    Attributes
    ----------
    num_samples : audio so far, set by the caller.
    language, language_probs : of the open utterance, or the last one.
    statistics : how the draft has done so far.
    steps : steps that are complete, without those that were taken.
    sentence_end_sample : up to there the open utterance is decoded, and its text ends a sentence; ``None`` if
        it does not.
    """

    is_unverified = False
    settled_text = ""  # what only grows is final

    def __init__(self, vocabulary: Vocabulary, position: LivePosition = LivePosition()) -> None:  # noqa: B008 (it is frozen)
        self._vocabulary = vocabulary
        self._window: Window | None = None  # the last one that was opened
        self._step: OpenWindow | None = None  # the commits of that window; None once the step is closed
        self._last_step: tuple[int, ...] = ()  # the last step's tokens, until a commit contradicts them
        self._belief: Believed | None = None
        self._final = position.final_tokens  # text of the open window
        self._num_utterances = position.num_utterances
        self._start_sample = position.start_sample
        self._final_end_s = position.start_sample / SAMPLE_RATE
        self._borders = Borders(self._final_end_s)
        self.num_samples = position.start_sample
        self.language = "en"
        self.language_probs: Mapping[str, float] = {}
        self.statistics = SpeculationStatistics()
        self.steps: list[DecodedStep] = []
        self.sentence_end_sample: int | None = None
        self._num_forwards = 0  # of the target, for all steps that are complete

    def take_steps(self) -> list[DecodedStep]:
        """Return the steps that were completed since the last call."""
        steps, self.steps = self.steps, []
        return steps

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
        return self._vocabulary.decode_unfinished(self._interim[0])

    @property
    def draft_text(self) -> str:
        """The draft's text after the verified text; it may be of newer audio."""
        verified, drafted = self._interim
        return self._vocabulary.decode_unfinished(drafted, after=verified)

    @property
    def unfinished(self) -> tuple[int, ...]:
        """Text tokens of verified and draft text."""
        verified, drafted = self._interim
        return (*verified, *drafted)

    def text_after(self, known: Sequence[int], tokens: Sequence[int]) -> str:
        """Return the part of other tokens' text that continues a known text."""
        known = self._vocabulary.text_tokens(known)
        return self._vocabulary.decode_unfinished(self._continuation(known, tokens), after=known)

    @property
    def _is_open(self) -> bool:
        return self._step is not None and not self._step.is_complete

    @property
    def _interim(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Tokens of verified and of draft text; a word that the next token may continue is left out."""
        verified = self._verified()
        drafted = self._drafted((*self._final, *verified))
        if self.language not in UNSPACED and not self._is_ended(is_drafted=bool(drafted)):
            count = up_to_last_word((*verified, *drafted), self._may_begin)
            verified, drafted = verified[:count], drafted[: max(0, count - len(verified))]
        return verified, drafted

    def _is_ended(self, *, is_drafted: bool) -> bool:
        """Return whether the text ends where its model, or the last step, ended it."""
        if is_drafted and self._belief is not None:
            return self._belief.tokens[-1] >= self._vocabulary.end_of_text
        return not self._is_open or self._step is None or len(self._step.tokens) <= len(self._last_step)

    def _verified(self) -> tuple[int, ...]:
        committed = self._step.tokens if self._step else []
        return self._continuation(self._final, [*committed, *self._last_step[len(committed) :]])

    def _drafted(self, known: tuple[int, ...]) -> tuple[int, ...]:
        if self._belief is None:
            return ()
        believed = self._vocabulary.text_tokens(self._belief.tokens)
        if believed[: len(known)] == known:  # verified text may break off within a word
            return believed[len(known) :]
        return self._continuation(known, believed)

    def _continuation(self, known: Sequence[int], tokens: Sequence[int]) -> tuple[int, ...]:
        """Return the text tokens with which a text continues another one that is known."""
        text = self._vocabulary.text_tokens(tokens)
        return text[continuation(known, text, self._may_begin) :]

    def update_belief(self, window: Window, tokens: tuple[int, ...]) -> None:
        """Replace the draft's belief; one of a window before the last one is dropped."""
        if self._window is None or window.id > self._window.id or (self._is_open and window == self._window):
            self._belief = Believed(window, tokens)
            self._drop_belief_of_final_audio()

    def skip_silence(self, sample: int) -> None:
        """Continue at a sample before which there is only silence."""
        if not self._is_open and not self._final:
            self._start_sample = max(self._start_sample, sample // HOP_SAMPLES * HOP_SAMPLES)

    def observe(self, message: WindowOpened | Candidates | Commit) -> list[Segment]:
        """Take in one message; return the text that it makes final."""
        self.statistics.observe(message)
        match message:
            case WindowOpened():
                self._open(message)
            case Commit() if self._step is not None and self._is_open:
                if message.window_id == self._step.window.id:
                    return self._append(message, self._step)
        return []

    def _open(self, opened: WindowOpened) -> None:
        self._window, self._step = opened.window, OpenWindow(opened.window)
        if opened.opening or opened.window.start_sample != self._start_sample:
            self._last_step = opened.opening
        else:  # a target that reuses no candidates sends none; readers see the last step's text all the same
            self._last_step = self._vocabulary.without_ending(self._last_step)
        self._start_sample = opened.window.start_sample
        self._final = self._final[len(self._final) - opened.num_final :] if opened.num_final else ()
        self.language = self._vocabulary.prompt_language(opened.window.prompt) or "en"
        if self._belief is not None and self._belief.window.id < opened.window.id:
            self._belief = None
        self._drop_belief_of_final_audio()

    def _drop_belief_of_final_audio(self) -> None:
        """Drop a belief of audio before the open window: its text is final."""
        if self._belief is not None and self._belief.window.start_sample < self._start_sample:
            self._belief = None

    def _append(self, commit: Commit, step: OpenWindow) -> list[Segment]:
        step.append(commit)
        self.language_probs = commit.language_probs or self.language_probs
        committed, window = tuple(step.tokens), step.window
        if committed != self._last_step[: len(committed)]:
            self._last_step = ()
        if self._belief is not None and self._belief.window.id == window.id:
            if committed != self._belief.tokens[: len(committed)]:
                self._belief = None  # the draft will report what it believes now
        if not commit.is_final:
            return []
        if self._belief is not None and self._belief.window.id <= window.id:
            self._belief = None  # all of its audio has been decoded
        num_forwards = self.statistics.num_forwards - self._num_forwards
        self._num_forwards = self.statistics.num_forwards
        self.steps.append(DecodedStep(window.start_sample, window.end_sample, num_forwards))
        if commit.step is None:  # the window is decoded again: its text stays until then
            return []
        return self._close_step(commit, commit.step, step)

    def _close_step(self, commit: Commit, closed: Step, step: OpenWindow) -> list[Segment]:
        """Move a step's final text from the verified text to the final text."""
        segment = self._final_segment(commit, closed, step)
        self._final = (*self._final, *self._vocabulary.text_tokens(segment.tokens))
        self._last_step = tuple(step.tokens) if commit.outcome is Outcome.KEPT else ()
        self._step = None
        is_sentence = not closed.is_last and ends_sentence(self._vocabulary.decode(self._last_step))
        self.sentence_end_sample = step.window.end_sample if is_sentence else None
        if closed.is_last:
            self._num_utterances = closed.utterance
            self._final, self._last_step = (), ()
            self._start_sample = step.window.end_sample
            self._final_end_s = max(self._final_end_s, step.window.end_sample / SAMPLE_RATE)
            self._drop_belief_of_final_audio()
        return [segment] if segment.text or closed.is_last else []

    def _final_segment(self, commit: Commit, closed: Step, step: OpenWindow) -> Segment:
        start, end = closed.final_start, closed.final_end
        tokens = tuple(step.tokens[start:end])
        start_s, end_s = self._final_end_s, self._final_end_s
        if commit.words:
            start_s = commit.words[0].start_sample / SAMPLE_RATE
            end_s = commit.words[-1].end_sample / SAMPLE_RATE
        elif tokens:
            start_s, end_s = self._time_s(step, start), self._time_s(step, end)
        start_s = max(start_s, self._final_end_s)
        self._final_end_s = end_s = max(end_s, start_s)
        segment = Segment(
            start_s=round(start_s, 2),
            end_s=round(end_s, 2),
            tokens=tokens,
            text=self._vocabulary.decode(tokens),
            seek=step.window.start_frame,
            utterance=closed.utterance,
            is_utterance_end=closed.is_last,
            language=self.language,
        )
        segment = step.with_scores(segment, start, end, commit.words, self._vocabulary)
        return self._borders([segment])[0]

    def _time_s(self, step: OpenWindow, position: int) -> float:
        """Estimate when a token is spoken, in seconds.

        Tokens are spread evenly between the timestamps around them.
        """
        begin, window = self._vocabulary.timestamp_begin, step.window
        known = [(0, 0.0)]  # positions, and their times in the window
        for i, token in enumerate(step.tokens):
            if token >= begin:
                frames = min((token - begin) * FRAMES_PER_TIMESTAMP, window.num_frames)
                at_s = max(known[-1][1], frames * FRAME_S)
                known += [(i, at_s), (i + 1, at_s)]  # it takes no time itself
        known.append((len(step.tokens), max(known[-1][1], window.num_frames * FRAME_S)))
        position = min(position, len(step.tokens))
        before = max(entry for entry in known if entry[0] <= position)
        after = min(entry for entry in known if entry[0] >= position)
        share = (position - before[0]) / (after[0] - before[0]) if after[0] > before[0] else 0.0
        return window.start_frame * FRAME_S + before[1] + share * (after[1] - before[1])

    def _may_begin(self, token: int) -> bool:
        return self._vocabulary.may_begin_word(token, self.language)


def ends_sentence(text: str) -> bool:
    """Return whether a text ends with a whole sentence.

    Dots in a row end one that is broken off.
    """
    text = text.rstrip().rstrip(CLOSING_MARKS).rstrip()
    return text.endswith(SENTENCE_ENDS) and not text.endswith("..")
