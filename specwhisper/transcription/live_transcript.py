"""Build the transcript of live audio from messages.

A live client sees these kinds of text, one after the other:

=========  ==================================================  =========================================
Kind       It is                                               It changes
=========  ==================================================  =========================================
final      returned by :meth:`LiveTranscript.observe`: the     never
           text of each piece that the target has decoded
verified   the target's last text of a piece that grows        seldom: when a later window differs
stable     the draft's text after it, once four hypotheses in  seldom: when two later hypotheses
           a row agree on it                                   disagree with it
tentative  the rest of the draft's text                        with each hypothesis
=========  ==================================================  =========================================
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from operator import itemgetter

from specwhisper.speculation.statistics import SpeculationStatistics
from specwhisper.transcription.segments import FRAME_S, around_words
from specwhisper.transcription.transcript import OpenWindow
from specwhisper.transcription.vocabulary import UNSPACED, Vocabulary
from specwhisper.types import (
    FRAMES_PER_TIMESTAMP,
    SAMPLE_RATE,
    Candidates,
    Commit,
    CompletePiece,
    Hypothesis,
    Outcome,
    Segment,
    TimedHint,
    TimeOrder,
    WindowOpened,
    WordAlignment,
)

NUM_STABLE = 4  # hypotheses in a row that have a stable word
MAX_TIMES = 3  # that a phrase follows itself; people say "no, no, no"
MAX_PERIOD = 40  # tokens of a phrase


def words_of(text: str, language: str) -> list[str]:
    """Cut a text into words, or characters in a language without spaces."""
    return list(text) if language in UNSPACED else re.findall(r"\s*\S+", text)


def num_agreed(before: Sequence[str], now: Sequence[str]) -> int:
    """Count the words with which two texts begin alike, but for case and punctuation."""
    pairs = zip(before, now, strict=False)
    differing = (i for i, (one, other) in enumerate(pairs) if _letters(one) != _letters(other))
    return next(differing, min(len(before), len(now)))


def continuation(known: Sequence[str], words: Sequence[str]) -> int:
    """Return the position at which ``words`` continue the ``known`` ones.

    The prefix before it is the one that the fewest edits turn into the known words; of several, the longest.
    """
    edits = list(range(len(words) + 1))
    for i, word in enumerate(known, start=1):
        diagonal, edits[0] = edits[0], i
        for j, other in enumerate(words, start=1):
            substitution = diagonal + (_letters(word) != _letters(other))
            diagonal, edits[j] = edits[j], min(substitution, edits[j] + 1, edits[j - 1] + 1)
    return min(range(len(words) + 1), key=lambda j: (edits[j], -j))


def num_before_repeats(tokens: Sequence[int], vocabulary: Vocabulary) -> int:
    """Count the tokens up to the end of the first of the phrases that end a text.

    All of them, unless the text ends with a phrase that is there more than :data:`MAX_TIMES` times, at
    whatever times of the audio.
    """
    tokens = [min(token, vocabulary.timestamp_begin) for token in tokens]
    for period in range(1, min(MAX_PERIOD, len(tokens) // (MAX_TIMES + 1)) + 1):
        start = len(tokens) - period
        while start and tokens[start - 1] == tokens[start - 1 + period]:
            start -= 1
        if len(tokens) - start >= period * (MAX_TIMES + 1):
            return start + period
    return len(tokens)


def _letters(word: str) -> str:
    return "".join(character for character in word.casefold() if character.isalnum())


@dataclass(slots=True)
class _Shown:
    """The text of a piece, of which the first ``num_stable`` words are stable.

    Attributes
    ----------
    kept : words that two hypotheses in a row had; two others in a row replace them.
    rest : the newest hypothesis after them.
    is_whole : whether it holds all words that were said.
    """

    kept: Sequence[str] = ()
    num_stable: int = 0
    rest: Sequence[str] = ()
    recent: deque[Sequence[str]] = field(default_factory=lambda: deque(maxlen=NUM_STABLE))
    is_whole: bool = False

    def add(self, words: Sequence[str], *, is_whole: bool) -> None:
        common = words[: num_agreed(self.recent[-1], words)] if self.recent else ()
        num_same = num_agreed(self.kept, common)
        if num_same < len(common) or num_same == len(self.kept):
            self.kept, self.num_stable = common, min(self.num_stable, num_same)
        if is_whole:  # it may have been cut before words that earlier hypotheses had
            self.kept = self.kept[: continuation(words, self.kept)]
            self.num_stable = min(self.num_stable, len(self.kept))
        self.recent.append(words)
        if len(self.recent) == NUM_STABLE:
            num_shared = min(num_agreed(each, words) for each in self.recent)
            self.num_stable = max(self.num_stable, min(num_shared, num_agreed(self.kept, words)))
        follows = num_agreed(self.kept, words) == len(self.kept)
        self.rest = words[len(self.kept) if follows else continuation(self.kept, words) :]
        self.is_whole = is_whole

    @property
    def words(self) -> list[str]:
        """All words to show: the last one of audio that was cut is a guess."""
        return [*self.kept, *(self.rest if self.is_whole else self.rest[:-1])]


class OpenText:
    """The draft's texts of the pieces without final text."""

    def __init__(self) -> None:
        self.language = ""  # before the first window
        self._pieces: dict[int, _Shown] = {}  # by first sample

    def show(self, hypothesis: Hypothesis) -> None:
        shown = self._pieces.setdefault(hypothesis.start_sample, _Shown())
        shown.add(words_of(hypothesis.text, self.language), is_whole=hypothesis.is_complete)

    def show_from(self, start_sample: int, words: Sequence[str]) -> None:
        """Take a recogniser's text, which replaces all text that begins there or later."""
        self._pieces = {start: each for start, each in self._pieces.items() if start <= start_sample}
        self._pieces.setdefault(start_sample, _Shown()).add(words, is_whole=True)

    def forget_before(self, sample: int) -> None:
        """Forget the pieces that begin before a sample: their text is final."""
        self._pieces = {start: each for start, each in self._pieces.items() if start >= sample}

    def after(self, verified: str) -> tuple[str, str]:
        """Return the stable and the tentative part of the text after the target's own."""
        known = words_of(verified, self.language)
        stable: list[str] = []
        tentative: list[str] = []
        for index, (_, shown) in enumerate(sorted(self._pieces.items(), key=itemgetter(0))):
            words = shown.words
            begin = continuation(known, words) if known and not index else 0
            if begin and words[begin - 1] != known[-1] and words[begin - 1].startswith(known[-1]):
                begin -= 1  # the target has written a part of the word
                words[begin] = words[begin].removeprefix(known[-1])
            end = begin if tentative else max(begin, shown.num_stable)
            stable += words[begin:end]
            tentative += words[end:]
        return "".join(stable), "".join(tentative)


NUM_RECENT = 8  # final texts that a recogniser may still return
OVERLAP_SAMPLES = SAMPLE_RATE // 2  # by which its times may be late


class LiveTranscript:
    """Keeps the text that is not final, and no text before it.

    Attributes
    ----------
    num_samples : audio so far, set by the caller.
    language, language_probs : those of the open utterance, or of the last one.
    is_unverified : whether the draft's text waits for a target because none is there; set by the caller.
    """

    settled_text = ""  # what only grows is final

    def __init__(self, vocabulary: Vocabulary, start_sample: int = 0) -> None:
        self._vocabulary = vocabulary
        self._window: OpenWindow | None = None
        self._last: tuple[int, ...] = ()  # the target's text of the piece that grows
        self._open = OpenText()
        self._recent: list[tuple[int, str]] = []  # the last final texts, and where they begin
        self._final_to = start_sample
        self._ordered = TimeOrder(start_sample / SAMPLE_RATE)
        self.num_samples = start_sample
        self.language = "" if vocabulary.languages else "en"
        self.language_probs: Mapping[str, float] = {}
        self.statistics = SpeculationStatistics()
        self.is_unverified = False

    @property
    def span_s(self) -> tuple[float, float]:
        """Start and end of the text that is not final, in seconds."""
        return self._final_to / SAMPLE_RATE, max(self._final_to, self.num_samples) / SAMPLE_RATE

    @property
    def verified_text(self) -> str:
        """The target's last text of the piece that grows, which may change."""
        tokens = self._last
        return self._vocabulary.decode_unfinished(tokens[: num_before_repeats(tokens, self._vocabulary)])

    @property
    def stable_text(self) -> str:
        return self._open.after(self.verified_text)[0]

    @property
    def tentative_text(self) -> str:
        return self._open.after(self.verified_text)[1]

    def show(self, hypothesis: Hypothesis) -> None:
        if hypothesis.start_sample >= self._final_to:
            self._open.show(hypothesis)

    def show_recognised(self, hint: TimedHint) -> None:
        """Take a recogniser's text, whose first words may be final already."""
        words = words_of(hint.text, self.language)
        final = [
            word
            for start, text in self._recent
            if start >= hint.start_sample - OVERLAP_SAMPLES
            for word in words_of(text, self.language)
        ]
        begin = continuation(final, words) if final else 0
        self._open.show_from(max(hint.start_sample, self._final_to), words[begin:])

    def forget_draft(self) -> None:
        self._open.forget_before(self.num_samples)

    def empty_end(self, utterance: int, sample: int) -> Segment:
        """Return the end of an utterance in which nothing was said."""
        at_s = round(sample / SAMPLE_RATE, 2)
        # What is said next has begun in the silence before it, maybe before this end.
        (end,) = self._ordered([Segment(at_s, at_s, (), utterance=utterance, is_utterance_end=True)])
        return end

    def lose_target(self) -> None:
        """Forget what a target had begun."""
        self._window, self._last = None, ()

    def observe(self, message: WindowOpened | Candidates | Commit) -> list[Segment]:
        """Take in one message; return the text that it makes final."""
        self.statistics.observe(message)
        match message:
            case WindowOpened(window=window):
                self._window = OpenWindow(window)
                self.language = self._vocabulary.prompt_language(window.prompt) or "en"
                self.language_probs = message.language_probs or self.language_probs
                self._open.language = self.language
            case Commit() if self._window is not None and message.window_id == self._window.window.id:
                return self._append(message, self._window)
        return []

    def _append(self, commit: Commit, opened: OpenWindow) -> list[Segment]:
        opened.append(commit)
        if not commit.is_final:
            return []
        self._window = None
        if commit.piece is None:  # it is decoded again, at another temperature or with more audio
            is_speech = commit.outcome is not Outcome.SKIPPED
            new = opened.tokens[len(opened.window.prefix) :]
            self._last = self._vocabulary.without_ending(new) if is_speech else ()
            return []
        self._last = ()
        segments = self._segments(commit, commit.piece, opened)
        self._final_to = max(self._final_to, opened.window.end_sample)
        self._open.forget_before(self._final_to)
        self._recent += [(round(segment.start_s * SAMPLE_RATE), segment.text) for segment in segments]
        del self._recent[:-NUM_RECENT]
        return segments

    def _segments(self, commit: Commit, piece: CompletePiece, complete: OpenWindow) -> list[Segment]:
        """Cut the final text of a piece where the model marks a new segment."""
        window, first = complete.window, len(complete.window.prefix)
        tokens = complete.tokens if commit.outcome is Outcome.KEPT else complete.tokens[:first]
        tokens = tokens[:-1] if tokens[-1:] and tokens[-1] in self._vocabulary.ends else tokens
        is_time = self._vocabulary.is_timestamp
        pairs = [i for i in range(first + 1, len(tokens)) if is_time(tokens[i - 1]) and is_time(tokens[i])]
        start_s, end_s = piece.start_sample / SAMPLE_RATE, window.end_sample / SAMPLE_RATE
        segments = []
        for start, end in pairwise([first, *pairs, len(tokens)]):
            text = self._vocabulary.decode(tokens[start:end])
            if not text.strip():
                continue
            times = [
                min(max(start_s, self._time_s(token, complete)), end_s)  # a model may name any time
                for token in tokens[start:end]
                if is_time(token)
            ]
            begins, ends = is_time(tokens[start]), len(times) > is_time(tokens[start])
            segment = Segment(
                start_s=round(times[0] if begins else start_s, 2),
                end_s=round(times[-1] if ends else end_s, 2),
                tokens=tuple(tokens[start:end]),
                text=text,
                seek=window.start_frame,
                utterance=piece.utterance,
                language=self.language,
            )
            words = [_from(word, piece.start_sample) for word in commit.words if start <= word.base < end]
            segments.append(complete.with_scores(segment, start, end, words, self._vocabulary))
            start_s = segments[-1].end_s
        if piece.is_utterance_end and not segments:
            seek, utterance = window.start_frame, piece.utterance
            segments.append(Segment(end_s, end_s, (), seek=seek, utterance=utterance, language=self.language))
        if piece.is_utterance_end:
            segments[-1] = replace(segments[-1], is_utterance_end=True)
        return list(self._ordered(around_words(segments)))

    def _time_s(self, token: int, complete: OpenWindow) -> float:
        frames = (token - self._vocabulary.timestamp_begin) * FRAMES_PER_TIMESTAMP
        return (complete.window.start_frame + frames) * FRAME_S


def _from(word: WordAlignment, sample: int) -> WordAlignment:
    """Return a word within its piece, whatever the attention to the audio before."""
    start, end = max(word.start_sample, sample), max(word.end_sample, sample)
    return replace(word, start_sample=start, end_sample=end)
