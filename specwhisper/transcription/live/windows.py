"""Decode live audio by pieces: each once, after earlier audio and its text.

=============  ==================================  =========================================================
Window         Its audio                           Its text after the prefix
=============  ==================================  =========================================================
of a complete  earlier pieces, then this one       becomes final whole
piece
of a growing   the same, up to the newest sample   may change; only with ``confirm_every_ms``
piece
=============  ==================================  =========================================================

The prefix is the final text of the earlier pieces. A model continues it, so their text is not decoded again,
and words at a piece's border have both sides of their context.

A complete window of a complete piece ends in one of these ways:

==============================================  ===========  ===============================================
It                                              Outcome      Then
==============================================  ===========  ===============================================
is good by the thresholds                       ``KEPT``     its text is final
is silence                                      ``SKIPPED``  the piece has no text
failed, and a temperature is left               ``RETRIED``  it is decoded again at the next temperature
failed, and none is left                        ``KEPT``     its text is final
==============================================  ===========  ===============================================

Which windows there are depends on voice marks and samples alone, and so does the final text: not on
candidates, load, or windows of growing pieces.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from specwhisper.errors import InvalidRequest
from specwhisper.live import PIECE_SAMPLES, FinalPiece, LiveOptions, LivePosition
from specwhisper.options import DecodingOptions
from specwhisper.transcription.fallback import judge
from specwhisper.transcription.live.pieces import LivePieces, Piece
from specwhisper.transcription.prompting import CONDITION_BELOW_TEMPERATURE, PromptText
from specwhisper.transcription.segments import shift_timestamps
from specwhisper.transcription.sequential_windows import SequentialWindows
from specwhisper.transcription.several_languages.search import Probs, Voice
from specwhisper.transcription.several_languages.windows import LanguageWindows
from specwhisper.transcription.vocabulary import Vocabulary
from specwhisper.transcription.windows import ClosedWindow, Extent, TokenLimit, WhisperWindows, Windows
from specwhisper.types import HOP_SAMPLES, SAMPLE_RATE, AudioChunk, Commit, Outcome, Step, Window

MAX_WINDOW_SAMPLES = 29 * SAMPLE_RATE  # of earlier pieces and the one to decode


class LiveWindows(WhisperWindows):
    """Decides which audio is decoded, after which text; silence is never decoded."""

    is_live = is_clip = True

    def __init__(
        self,
        vocabulary: Vocabulary,
        options: DecodingOptions,
        words: PromptText | None = None,
        *,
        max_new_tokens: TokenLimit | None = None,
        follows: bool = False,
        voice: Voice | None = None,
    ) -> None:
        super().__init__(vocabulary, options, words, max_new_tokens=max_new_tokens, follows=follows)
        live = options.live or LiveOptions()
        self._common_language = self.language  # of all utterances; ``None`` if each may have another
        confirm_ms = live.confirm_every_ms
        self._confirm_samples = None if confirm_ms is None else confirm_ms * SAMPLE_RATE // 1000
        self._committed: list[int] = []  # of the target's window, on the draft's side
        self._confirmed_to = 0  # sample up to which a growing piece was decoded
        self._is_complete = True  # whether the open window's piece is
        self.begin_at(live.position)

    def begin_at(self, position: LivePosition) -> None:
        """Begin where another session had final text, before any audio."""
        _check_pieces(position.pieces, self._vocabulary)
        self.pieces = LivePieces(position)
        self._earlier = position.pieces  # final pieces that the next window may hold
        self._final_to, self._is_speech = position.next_sample, position.is_speech
        self._utterance = position.num_utterances  # of the last final piece
        self._language_before = position.language
        if position.is_speech:
            self.language = self._common_language or position.language
        self._turn()

    def append_audio(self, chunk: AudioChunk, end_sample: int) -> None:
        """Follow the voice marks of a chunk."""
        self.pieces.append_audio(end_sample, chunk.marks, is_last=chunk.is_last)
        self._turn()

    def ready_frames(self, audio: Extent) -> int | None:
        """Return the frames of the next window.

        ``None`` while there is none, 0 at the end.
        """
        if self._retry is not None:
            return self._retry.num_frames
        piece = self.pieces.current
        if piece is None:
            return 0 if self.pieces.has_ended else None
        if not (piece.is_complete or self._is_due(piece)):
            return None
        return _frames(piece.end_sample - self._window_start(piece))

    @property
    def language_before(self) -> str | None:
        """The language of the last final piece."""
        return self._language_before

    @property
    def may_wait(self) -> bool:
        """Whether the next window makes no text final."""
        piece = self.pieces.current
        return piece is not None and not piece.is_complete

    def language_span(self, num_frames: int | None) -> tuple[int, int] | None:
        """Return the frames of the piece: earlier ones may be in another language."""
        piece = self.pieces.current
        if self.language is not None or piece is None or not num_frames:
            return None
        return piece.start_sample // HOP_SAMPLES, _frames(piece.end_sample - piece.start_sample)

    def detected(self, probs: Probs) -> Probs:
        """Take the language of the piece; text in another one does not stay before it."""
        known = super().detected(probs)
        if self.language != self._language_before:
            self._earlier = ()
            self._turn()
        return known

    def open(self, num_frames: int) -> Window:
        """Open the window of the oldest piece, or of the one that grows."""
        piece = self.pieces.current
        if self._retry is not None or piece is None:
            return super().open(num_frames)
        self._is_complete, self._confirmed_to = piece.is_complete, piece.end_sample
        self.next_frame = self._window_start(piece) // HOP_SAMPLES
        window = super().open(num_frames)
        prefix = self._prefix(window)
        limit = len(prefix) + max_new_tokens(piece.end_sample - piece.start_sample)
        limit = min(window.max_new_tokens, limit)
        return replace(window, prefix=prefix, max_new_tokens=limit)

    def close(
        self,
        window: Window,
        tokens: Sequence[int],
        log_probs: Sequence[float] = (),
        no_speech_prob: float | None = None,
    ) -> ClosedWindow:
        """Close a window; the text of a complete piece becomes final."""
        new = tokens[len(window.prefix) :]
        outcome = judge(new, log_probs[len(window.prefix) :], no_speech_prob, self._options, self._vocabulary)
        if not self._is_complete:
            self.language = self._common_language or self._piece_language()
            self._turn()
            return ClosedWindow(outcome, (), self._vocabulary.without_ending(new))
        if outcome is Outcome.RETRIED:
            if window.attempt + 1 < len(self._options.temperatures):
                self._retry = window
                return ClosedWindow(outcome, (), tuple(new))
            outcome = Outcome.KEPT
        piece = self._finish(window, new if outcome is Outcome.KEPT else ())
        step = Step(piece.utterance, piece.start_sample, piece.is_last)
        return ClosedWindow(outcome, (), (), step, num_kept=len(new) if outcome is Outcome.KEPT else 0)

    @property
    def needed_from(self) -> int:
        """First sample that the next window may hold."""
        return self.next_frame * HOP_SAMPLES

    def on_window_opened(self, window: Window) -> None:
        """Follow the target to a window that it has opened."""
        self._followed, self._committed = window, []
        self.language = self._vocabulary.prompt_language(window.prompt) or self.language

    def on_commit(self, commit: Commit) -> None:
        """Follow the target's commits: one that makes a piece final finishes it here too."""
        if (window := self._followed) is None:
            return
        self._committed += commit.tokens
        piece = self.pieces.current
        if commit.step is not None and piece is not None and piece.is_complete:
            self._finish(window, self._committed if commit.outcome is Outcome.KEPT else ())
        if commit.is_final:
            self._followed = None

    @property
    def position(self) -> LivePosition:
        """Where another session can continue.

        That is after the last final text, or in the silence since.
        """
        next_sample = self._final_to
        if not self._is_speech:
            next_sample = max(next_sample, self.pieces.needed_from)
        return LivePosition(
            next_sample, self._utterance, self._is_speech, self._earlier, self._language_before
        )

    def _is_due(self, piece: Piece) -> bool:
        """Return whether a growing piece is to be decoded now."""
        if self._confirm_samples is None:
            return False
        known = max(self._confirmed_to, piece.start_sample)
        return piece.end_sample - known >= self._confirm_samples

    def _window_start(self, piece: Piece) -> int:
        """Return where the window of a piece begins."""
        held = self._held(piece)
        return held[0].start_sample if held else piece.start_sample

    def _held(self, piece: Piece) -> Sequence[FinalPiece]:
        """Return the final pieces that a window holds before a piece."""
        from_sample = piece.end_sample - MAX_WINDOW_SAMPLES
        room = self._vocabulary.max_length // 2
        num_held = 0
        for earlier in reversed(self._earlier):
            room -= len(earlier.tokens)
            if earlier.start_sample < from_sample or room < 0:
                break
            num_held += 1
        return self._earlier[len(self._earlier) - num_held :]

    def _prefix(self, window: Window) -> tuple[int, ...]:
        """Return the final text of the earlier pieces in a window."""
        piece = self.pieces.current
        prefix: list[int] = []
        for earlier in self._held(piece) if piece is not None else ():
            offset = earlier.start_sample // HOP_SAMPLES - window.start_frame
            prefix += shift_timestamps(earlier.tokens, -offset, self._vocabulary)
        return tuple(prefix)

    def _piece_language(self) -> str | None:
        """Return the language of the utterance, if a piece of it is final."""
        piece = self.pieces.current
        return self._language_before if piece is not None and piece.utterance == self._utterance else None

    def _finish(self, window: Window, new: Sequence[int]) -> Piece:
        """Finish the oldest piece with its final text, and turn to the next one."""
        piece = self.pieces.finish_current()
        tokens = [token for token in new if token not in self._vocabulary.ends]
        offset = piece.start_sample // HOP_SAMPLES - window.start_frame
        if window.temperature >= CONDITION_BELOW_TEMPERATURE:
            self._earlier = ()  # a text that may be wrong misleads
        else:
            final = FinalPiece(piece.start_sample, shift_timestamps(tokens, offset, self._vocabulary))
            self._earlier = (*self._earlier, final)
        self._final_to = -(-piece.end_sample // PIECE_SAMPLES) * PIECE_SAMPLES
        self._is_speech = not piece.is_last
        self._utterance, self._language_before = piece.utterance, self.language
        self.language = self._common_language if piece.is_last else self.language
        self._confirmed_to = 0
        self._turn()
        return piece

    def _turn(self) -> None:
        """Forget what no later window can hold."""
        needed_from = self.pieces.needed_from
        held = [piece for piece in self._earlier if piece.start_sample > needed_from - MAX_WINDOW_SAMPLES]
        self._earlier = tuple(held)
        if self._retry is None:
            self.next_frame = (held[0].start_sample if held else needed_from) // HOP_SAMPLES


def max_new_tokens(num_samples: int) -> int:
    """Return the most tokens of a text.

    No speech is faster: a model that writes more repeats itself.
    """
    return 32 + 25 * num_samples // SAMPLE_RATE


def follow_windows(vocabulary: Vocabulary, options: DecodingOptions) -> Windows:
    """Return windows for a draft, which follow those of its target."""
    return kind_of(options)(vocabulary, options, follows=True)


def kind_of(options: DecodingOptions) -> type[WhisperWindows]:
    """Return the kind of windows that a session has."""
    if options.live is not None:
        return LiveWindows
    return LanguageWindows if options.languages else SequentialWindows


def _frames(num_samples: int) -> int:
    return -(-num_samples // HOP_SAMPLES)


def _check_pieces(pieces: Sequence[FinalPiece], vocabulary: Vocabulary) -> None:
    tokens = [token for piece in pieces for token in piece.tokens]
    if any(token >= len(vocabulary) for token in tokens) or not vocabulary.ends.isdisjoint(tokens):
        raise InvalidRequest("The final tokens of a position are text and times: one of them is not.")
    if len(tokens) > vocabulary.max_length:
        raise InvalidRequest(
            f"A position has {len(tokens)} final tokens: a window of this model holds "
            f"{vocabulary.max_length}."
        )
