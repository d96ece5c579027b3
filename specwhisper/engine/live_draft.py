"""The draft of live audio: texts of a piece while it grows, then candidates.

The draft encodes what was said in a piece so far, and decodes it again with its last text as a hint. These
hypotheses are shown. Once the target opens the window of the piece, the last one is sent as candidates. The
draft does not follow the target within a window: what a correction leaves of the candidates is a hint there.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from specwhisper.engine.draft_session import Drafted, DraftSession
from specwhisper.live import LiveOptions
from specwhisper.speculation.belief import Belief
from specwhisper.speculation.hints import Hint
from specwhisper.speculation.statistics import DraftReport
from specwhisper.transcription.live_transcript import num_before_repeats
from specwhisper.transcription.live_windows import LiveWindows, Piece, max_new_tokens
from specwhisper.types import (
    HOP_SAMPLES,
    SAMPLE_RATE,
    Candidates,
    Commit,
    Hypothesis,
    Window,
    WindowOpened,
)

FIRST_MS = 1_000  # audio of a piece's first hypothesis: with less, most words are wrong
MAX_BLOCK_TOKENS = 64  # what every target takes


@dataclass(slots=True, eq=False)
class LiveDraft(DraftSession):
    """The draft of a live session.

    Attributes
    ----------
    piece : which is drafted now; ``None`` between two hypotheses.
    hypotheses : the last whole one of each piece without final text, by its first sample.
    opened : the target's window, until its candidates are sent.
    drafted : what is to be passed on.
    knows_language : whether the draft knows the language of the last hypothesis.
    """

    windows: LiveWindows = field(kw_only=True)
    piece: Piece | None = None
    hypotheses: dict[int, tuple[Piece, tuple[int, ...]]] = field(default_factory=dict)
    opened: Window | None = None
    drafted: list[Drafted] = field(default_factory=list)
    num_windows: int = 0
    knows_language: bool = True

    @property
    def has_work(self) -> bool:
        return bool(self.drafted) or self.can_draft()

    def take_drafted(self) -> list[Drafted]:
        drafted, self.drafted = self.drafted, []
        return drafted

    def _limit(self, belief: Belief) -> int:
        return self.max_positions  # it waits for no commit

    def block_is_due(self) -> bool:
        """Return ``False``: candidates are sent once a hypothesis is whole."""
        return False

    def next_window(self) -> Window | None:
        """Begin the next hypothesis, if one is due and the language is known; return its window."""
        if self.piece is not None:
            return None
        self.piece = piece = next(filter(self._is_due, self.windows.pieces.all), None)
        language = self.windows.language or self.windows.language_before or self.vocabulary.default_language
        if piece is None or (language is None and not self.note_language(is_known=False)):
            return None
        self.num_windows += 1
        start_frame, num_samples = piece.start_sample // HOP_SAMPLES, piece.end_sample - piece.start_sample
        return Window(
            id=self.num_windows,
            start_frame=start_frame,
            num_frames=-(-num_samples // HOP_SAMPLES),
            prompt=self.vocabulary.prompt(self.options, language),
            max_new_tokens=max_new_tokens(num_samples),
        )

    def _is_due(self, piece: Piece) -> bool:
        """Return whether a piece has enough audio that no hypothesis has."""
        empty = piece._replace(end_sample=piece.start_sample, is_complete=False)
        known, _ = self.hypotheses.get(piece.start_sample, (empty, ()))
        if piece.is_complete:
            return not known.is_complete
        live = self.options.live or LiveOptions()
        step_ms = live.step_ms if piece.start_sample in self.hypotheses else FIRST_MS
        return piece.end_sample - known.end_sample >= step_ms * SAMPLE_RATE // 1000

    def note_language(self, *, is_known: bool) -> bool:
        """Note whether the draft knows the next hypothesis's language, and return it."""
        if is_known != self.knows_language:
            self.knows_language = is_known
            self.drafted.append(Drafted(None, knows_language=is_known))
        if not is_known:
            self.piece = None
        return is_known

    def begin_hypothesis(self) -> None:
        """Take the last hypothesis of the piece as a hint for this one."""
        belief, piece = self.belief, self.piece
        if belief is not None and piece is not None and piece.start_sample in self.hypotheses:
            _, tokens = self.hypotheses[piece.start_sample]
            belief.stale = Hint(tokens, self.vocabulary.word_of)

    def end_hypothesis(self) -> None:
        """Take a hypothesis that is whole: show it, and send it where it is awaited."""
        belief, piece = self.belief, self.piece
        if piece is None or belief is None or not self.is_ready:
            return
        tokens = tuple(belief.tokens)
        end = num_before_repeats(tokens, self.vocabulary)
        if self.can_draft() and end == len(tokens):
            return
        self.belief = self.piece = None
        self.hypotheses[piece.start_sample] = piece, tokens[:end]
        text = self.vocabulary.decode(tokens[:end])
        shown = Hypothesis(
            piece.utterance, piece.start_sample, piece.end_sample, text, is_complete=piece.is_complete
        )
        self.drafted.append(Drafted(None, self.take_report(), hypothesis=shown))
        self._send()

    def on_window_opened(self, opened: WindowOpened) -> None:
        """Send the hypothesis of a window that the target has opened."""
        self.windows.on_window_opened(opened.window)
        self.opened = opened.window if not opened.window.attempt else None
        self._send()

    def on_commit(self, commit: Commit) -> None:
        """Forget a piece whose text is final."""
        if commit.is_final:
            self.opened = None
        self.windows.on_commit(commit)
        known = {piece.start_sample for piece in self.windows.pieces.all}
        if self.piece is not None and self.piece.start_sample not in known:
            self.belief = self.piece = None  # the target was faster
        self.hypotheses = {start: each for start, each in self.hypotheses.items() if start in known}

    def _send(self) -> None:
        """Send the candidates of the open window, if its piece has a hypothesis."""
        window, current = self.opened, self.windows.pieces.current
        if window is None or current is None or current.start_sample not in self.hypotheses:
            return
        piece, tokens = self.hypotheses[current.start_sample]
        is_whole = piece.is_complete or piece.end_sample >= window.end_sample
        if current.is_complete and not is_whole:
            return  # it is on its way
        self.opened = None
        if not is_whole:
            tokens = self.vocabulary.without_ending(tokens)
        known, untimed = len(window.prefix), self.vocabulary.no_timestamps
        if tokens and not known and untimed is not None and untimed not in window.prompt:
            tokens = (self.vocabulary.timestamp_begin, *tokens)  # else the prefix has its time
        for number, start in enumerate(range(0, len(tokens), MAX_BLOCK_TOKENS), start=1):
            block = tokens[start : start + MAX_BLOCK_TOKENS]
            self.drafted.append(
                Drafted(Candidates(window.id, known + start, known, block, block_number=number))
            )

    def take_report(self) -> DraftReport:
        report, self.report = self.report, DraftReport()
        return report
