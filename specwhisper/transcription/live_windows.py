"""Decode live audio by pieces: each once, after earlier audio and its text.

A window holds earlier pieces, then this one. Its prefix is the final text of the earlier pieces. A model
continues it, so their text is not decoded again, and words at a piece's border have both sides of their
context. With ``confirm_every_ms`` a growing piece has windows too, up to its newest sample; their text may
change.

A complete window of a complete piece ends in one of these ways:

==============================================  ===========  ===============================================
It                                              Outcome      Then
==============================================  ===========  ===============================================
is good by the thresholds                       ``KEPT``     its text is final
is silence, or shorter than any word            ``SKIPPED``  the piece has no text
failed, and a temperature is left               ``RETRIED``  it is decoded again, without what is before
failed, and none is left                        ``RETRIED``  it is decoded as where the model was surest
the same, decoded so                            ``KEPT``     its text is final
==============================================  ===========  ===============================================

Which windows there are and the final text depend on voice marks and samples alone: not on candidates, load,
or windows of growing pieces.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import dropwhile
from typing import NamedTuple

from specwhisper.errors import InvalidRequest
from specwhisper.live import PIECE_SAMPLES, FinalPiece, LiveOptions, LivePosition
from specwhisper.options import DecodingOptions
from specwhisper.transcription.language_search import Probs, Voice, among, choose
from specwhisper.transcription.prompting import PromptText
from specwhisper.transcription.segments import shift_timestamps
from specwhisper.transcription.sequential_windows import LanguageWindows, SequentialWindows
from specwhisper.transcription.vocabulary import Vocabulary
from specwhisper.transcription.windows import (
    ClosedWindow,
    Extent,
    Plan,
    TokenLimit,
    WhisperWindows,
    Windows,
    avg_logprob,
    judge,
)
from specwhisper.types import (
    HOP_SAMPLES,
    SAMPLE_RATE,
    AudioChunk,
    Commit,
    CompletePiece,
    Outcome,
    VoiceEvent,
    VoiceMark,
    Window,
)

MAX_PIECE_SAMPLES = 29 * SAMPLE_RATE  # with the window's last second, no word is cut off
# How far before its mark an utterance may begin: its padding, and the speech that endpointing waits for.
MAX_LOOK_BACK_SAMPLES = 5 * SAMPLE_RATE


class Piece(NamedTuple):
    """An utterance of live audio, or a part of a long one.

    Attributes
    ----------
    start_sample, end_sample : where its audio begins and ends; so far, while it grows.
    is_complete : whether it grows no longer.
    is_broken : whether its client ended it in speech: no later text is decoded after its text.
    """

    utterance: int
    start_sample: int
    end_sample: int
    is_complete: bool = False
    is_last: bool = False
    is_broken: bool = False


class LivePieces:
    """The pieces of a session that have no final text.

    Draft and target follow them alike.

    Attributes
    ----------
    num_complete : pieces that were completed, with those that have final text.
    """

    def __init__(self, position: LivePosition) -> None:
        self.received_samples = position.next_sample
        self.has_ended = False
        self._complete: deque[Piece] = deque()
        self.num_complete = 0
        self._growing_from = position.next_sample if position.is_speech else None
        self._utterance = position.num_utterances
        self._is_continued = position.is_speech  # whether a piece of the utterance is complete
        self._boundary = position.next_sample  # the end of the last piece

    def append_audio(self, end_sample: int, marks: Sequence[VoiceMark], *, is_last: bool = False) -> None:
        begins_from = self.received_samples - MAX_LOOK_BACK_SAMPLES
        self.received_samples = max(self.received_samples, end_sample)
        for mark in marks:
            self._follow(mark, begins_from)
        self.has_ended |= is_last
        self._cut_before(self.received_samples)
        if is_last:
            self._complete_at(self.received_samples, is_last=True)

    @property
    def current(self) -> Piece | None:
        """The oldest piece, which may still grow."""
        return self._complete[0] if self._complete else self._growing

    @property
    def all(self) -> list[Piece]:
        """All pieces without final text, of which the last one may grow."""
        growing = self._growing
        return [*self._complete, *([growing] if growing is not None else [])]

    @property
    def needed_from(self) -> int:
        """First sample that a piece may still begin with."""
        start = self._complete[0].start_sample if self._complete else self._growing_from
        if start is not None:
            return start
        return max(self._boundary, _rounded_down(self.received_samples - MAX_LOOK_BACK_SAMPLES))

    def finish_current(self) -> Piece:
        """Remove the oldest piece, which is complete: it has final text."""
        return self._complete.popleft()

    @property
    def _growing(self) -> Piece | None:
        start, end = self._growing_from, _rounded_down(self.received_samples)
        return None if start is None or end <= start else Piece(self._utterance, start, end)

    def _follow(self, mark: VoiceMark, begins_from: int) -> None:
        """Follow a mark; one that contradicts the state is ignored."""
        sample = min(mark.sample, self.received_samples)
        if mark.event is not VoiceEvent.BEGIN:
            self._cut_before(sample)
            is_broken = mark.event is VoiceEvent.BREAK
            self._complete_at(sample, is_last=is_broken or mark.event is VoiceEvent.END, is_broken=is_broken)
        elif self._growing_from is None:
            self._utterance += 1
            self._is_continued = False
            self._growing_from = max(_rounded_down(max(sample, begins_from)), self._boundary)

    def _cut_before(self, sample: int) -> None:
        """Cut what no mark has cut in time."""
        while self._growing_from is not None and sample - self._growing_from > MAX_PIECE_SAMPLES:
            self._complete_at(self._growing_from + MAX_PIECE_SAMPLES, is_last=False)

    def _complete_at(self, sample: int, *, is_last: bool, is_broken: bool = False) -> None:
        """Complete the piece that grows, if one does."""
        start, received = self._growing_from, self.received_samples
        if start is None:
            return
        if not is_last:
            end = _rounded_down(sample)
            if not start < end < received:  # the utterance ends with a piece, so audio follows a cut
                return
        else:
            end = min(max(_rounded_up(sample), start + PIECE_SAMPLES), received)
            if end <= start:  # it has no audio yet
                if not self._is_continued:
                    self._growing_from, self._utterance = None, self._utterance - 1
                    self._boundary = start  # what is before it is freed
                return
        self._complete.append(Piece(self._utterance, start, end, True, is_last, is_broken))
        self.num_complete += 1
        self._boundary, self._is_continued = _rounded_up(end), True
        self._growing_from = None if is_last else self._boundary


def _rounded_down(sample: int) -> int:
    return sample // PIECE_SAMPLES * PIECE_SAMPLES


def _rounded_up(sample: int) -> int:
    return -(-sample // PIECE_SAMPLES) * PIECE_SAMPLES


SURE = 0.9  # pieces are short: one in twenty English ones in noise is another language with up to 0.89
MAX_WINDOW_SAMPLES = 29 * SAMPLE_RATE  # earlier pieces and the one to decode
MAX_PROMPT = 4  # tokens, besides the caller's words
MAX_NOISE_SAMPLES = SAMPLE_RATE // 10  # alone it holds no word, and a model would invent one


class LiveWindows(WhisperWindows):
    """Decides which audio is decoded, after which text; silence is never decoded.

    Attributes
    ----------
    pieces : those without final text.
    final_to : sample up to which text is final; at the end of a piece, an utterance was cut or has ended.
    """

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
        self._common_language = self.language  # all utterances' language; ``None`` if each may have another
        self.confirm_every(live.confirm_every_ms)
        # On the draft's side: the target's open window, and its committed tokens.
        self._followed: Window | None = None
        self._committed: list[int] = []
        self._confirmed_to = 0  # sample up to which a growing piece was decoded
        self._is_complete = True  # whether the open window's piece is
        self._is_alone = False  # whether the piece is decoded without the text before it
        self._has_failed = self._is_settled = False  # the piece; whether its next text is final in any case
        self._surest: tuple[float, int] | None = None  # mean log-probability of that attempt, its number
        self._is_guess = False  # whether the language is that of a piece which grows
        # Half of the tokens after the longest prompt; the others are left to the text.
        self._prefix_room = (vocabulary.max_length - len(self._previous.prefix()) - MAX_PROMPT) // 2
        self.begin_at(LivePosition())

    def begin_at(self, position: LivePosition) -> None:
        """Begin where another session had final text, before any audio."""
        _check(position, self._vocabulary)
        self.pieces = LivePieces(position)
        self._earlier = position.pieces  # final pieces that the next window may hold
        self.final_to, self._is_speech = position.next_sample, position.is_speech
        self._utterance = position.num_utterances  # the last final piece's
        self.language_before = position.language
        if position.is_speech:
            self.language = self._common_language or position.language
        self._turn()

    def confirm_every(self, interval_ms: int | None) -> None:
        """Decode growing pieces each time this much audio is new; ``None`` decodes none."""
        self._confirm_samples = None if interval_ms is None else interval_ms * SAMPLE_RATE // 1000

    def append_audio(self, chunk: AudioChunk, end_sample: int) -> None:
        self.pieces.append_audio(end_sample, chunk.marks, is_last=chunk.is_last)
        piece = self.pieces.current
        if self._is_guess and piece is not None and piece.is_complete:
            self._forget_guess()  # the whole piece decides
        self._turn()

    def ready_frames(self, audio: Extent) -> int | None:
        """Return the frames of the next window; ``None`` while there is none, 0 at the end."""
        piece = self.pieces.current
        if piece is None:
            return 0 if self.pieces.has_ended else None
        if not (piece.is_complete or self._is_due(piece)):
            return None
        return _frames(piece.end_sample - self._window_start(piece))

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

    def detects_in(self, span: tuple[int, int], num_frames: int | None) -> bool:
        """Return whether these frames are the piece, or were it while it grew.

        Else the language of a piece that grows while it is encoded would not be detected.
        """
        if (found := self.language_span(num_frames)) is None or span[0] != found[0]:
            return False
        return span[1] == found[1] or (self.may_wait and span[1] < found[1])

    def detected(self, probs: Probs) -> Probs:
        """Take the language of the piece."""
        piece = self.pieces.current
        self._is_guess = piece is not None and not piece.is_complete
        known = among(probs, self._options.languages)
        self.language = choose(known, self.language_before, SURE)
        return known

    def open(self, num_frames: int) -> Window:
        """Open the window of the oldest piece, or of the one that grows."""
        piece = self.pieces.current
        if piece is None:
            return super().open(num_frames)
        self._is_complete, self._confirmed_to = piece.is_complete, piece.end_sample
        start_frame = self._window_start(piece) // HOP_SAMPLES
        window = replace(super().open(num_frames), start_frame=start_frame, num_frames=num_frames)
        prefix = self._prefix(window)
        limit = min(
            self._limit_after(window.prompt),
            max_new_tokens(piece.end_sample - piece.start_sample),
            self._max_length - len(window.prompt) - len(prefix),
        )
        return replace(window, prefix=prefix, max_new_tokens=len(prefix) + limit)

    def close(
        self,
        window: Window,
        tokens: Sequence[int],
        log_probs: Sequence[float] = (),
        no_speech_prob: float | None = None,
    ) -> ClosedWindow:
        """Close a window; the text of a complete piece becomes final."""
        new = tokens[len(window.prefix) :]
        if window.prefix:
            no_speech_prob = None  # it is that of the audio before
        outcome = judge(new, log_probs[len(window.prefix) :], no_speech_prob, self._options, self._vocabulary)
        piece = self.pieces.current
        if piece is not None and window.end_sample - piece.start_sample <= MAX_NOISE_SAMPLES:
            outcome = Outcome.SKIPPED
        if not self._is_complete:
            self._forget_guess()
            is_speech = outcome is not Outcome.SKIPPED
            return ClosedWindow(outcome, (), self._vocabulary.without_ending(new) if is_speech else ())
        if outcome is Outcome.RETRIED:
            if self._tries_again(window, new, log_probs[len(window.prefix) :]):
                return ClosedWindow(outcome, (), ())
            outcome = Outcome.KEPT
        kept = new if outcome is Outcome.KEPT else ()
        finished = self._finish(window, kept)
        complete = CompletePiece(finished.utterance, finished.start_sample, finished.is_last)
        return ClosedWindow(outcome, (), (), complete, num_kept=len(kept))

    def _tries_again(self, window: Window, new: Sequence[int], log_probs: Sequence[float]) -> bool:
        """Return whether a piece that has failed is decoded again.

        Where all attempts fail, the hottest is the worst guess of a short piece: the surest is taken.
        """
        if self._is_settled:
            return False
        options, attempt = self._options, window.attempt
        sure = avg_logprob(log_probs)
        repeats = judge(new, (), None, replace(options, logprob_threshold=None), self._vocabulary)
        if repeats is not Outcome.RETRIED and (self._surest is None or sure > self._surest[0]):
            self._surest = sure, attempt
        following = attempt + 1
        if following == len(options.temperatures):
            self._is_settled = True
            if self._surest is None or (following := self._surest[1]) == attempt:
                return False
        self._has_failed, self._is_alone = True, following > 0
        self._retry = replace(window, attempt=following - 1)
        return True

    def on_window_opened(self, window: Window) -> None:
        self._followed, self._committed = window, []
        self._has_failed |= window.attempt > 0
        self.language = self._vocabulary.prompt_language(window.prompt) or self.language

    def on_commit(self, commit: Commit) -> None:
        """Follow the target's commits: one that makes a piece final finishes it here too."""
        if (window := self._followed) is None:
            return
        self._committed[commit.base - len(window.prefix) :] = commit.tokens
        piece = self.pieces.current
        if commit.piece is not None and piece is not None and piece.is_complete:
            self._finish(window, self._committed if commit.outcome is Outcome.KEPT else ())
        if commit.is_final:
            self._followed = None

    @property
    def position(self) -> LivePosition:
        """Where another session can continue: after the last final text, or in the silence since."""
        next_sample = self.final_to
        if not self._is_speech:
            next_sample = max(next_sample, self.pieces.needed_from)
        return LivePosition(
            next_sample, self._utterance, self._is_speech, self._earlier, self.language_before
        )

    def _is_due(self, piece: Piece) -> bool:
        """Return whether a growing piece is decoded now."""
        if self._confirm_samples is None:
            return False
        known = max(self._confirmed_to, piece.start_sample)
        return piece.end_sample - known >= self._confirm_samples

    def _window_start(self, piece: Piece) -> int:
        held = self._held(piece)
        return held[0].start_sample if held else piece.start_sample

    def _held(self, piece: Piece) -> Sequence[FinalPiece]:
        """Return the final pieces that a window holds before a piece."""
        if self._is_alone or piece.is_broken or self.language not in (None, self.language_before):
            return ()  # what is before would mislead: from it a model guesses how a broken sentence ends
        held = _last_of(self._earlier, piece.end_sample - MAX_WINDOW_SAMPLES, self._prefix_room)
        return tuple(dropwhile(lambda earlier: not earlier.tokens, held))  # no text may begin after a second

    def _prefix(self, window: Window) -> tuple[int, ...]:
        """Return the final text of the earlier pieces in a window."""
        piece = self.pieces.current
        prefix: list[int] = []
        for earlier in self._held(piece) if piece is not None else ():
            offset = earlier.start_sample // HOP_SAMPLES - window.start_frame
            prefix += shift_timestamps(earlier.tokens, -offset, self._vocabulary)
        if prefix and piece is not None and self._options.timestamps:  # so the piece begins with text
            prefix.append(
                self._vocabulary.timestamp_begin + (piece.start_sample - window.start_sample) // PIECE_SAMPLES
            )
        return tuple(prefix)

    def _text_of(self, piece: Piece, window: Window, new: Sequence[int]) -> tuple[int, ...]:
        """Return the final text of a piece between its opening and its closing time.

        No time is after the piece: it would forbid those of the next one.
        """
        vocabulary, zero = self._vocabulary, self._vocabulary.timestamp_begin
        offset = piece.start_sample // HOP_SAMPLES - window.start_frame
        end = zero + (piece.end_sample - piece.start_sample) // PIECE_SAMPLES
        shifted = shift_timestamps(new, offset, vocabulary)
        tokens = [min(token, end) for token in shifted if token not in vocabulary.ends]
        if not self._options.timestamps:
            return tuple(tokens)
        closing = end
        while tokens and vocabulary.is_timestamp(tokens[-1]):
            closing = tokens.pop()
        if not tokens:
            return ()
        opening = () if vocabulary.is_timestamp(tokens[0]) else (zero,)
        return (*opening, *tokens, closing)

    def _forget_guess(self) -> None:
        """Forget the language of a piece that grows, unless its utterance has text."""
        piece, self._is_guess = self.pieces.current, False
        continues = piece is not None and piece.utterance == self._utterance
        self.language = self._common_language or (self.language_before if continues else None)

    def _finish(self, window: Window, new: Sequence[int]) -> Piece:
        """Finish the oldest piece with its final text, and turn to the next one."""
        piece = self.pieces.finish_current()
        final = FinalPiece(piece.start_sample, self._text_of(piece, window, new))
        earlier = self._earlier if self.language == self.language_before else ()
        # A text that has failed misleads, and so does one that ends within a word.
        self._earlier = () if self._has_failed or piece.is_broken else (*earlier, final)
        self.final_to = _rounded_up(piece.end_sample)
        self._is_speech = not piece.is_last
        self._utterance, self.language_before = piece.utterance, self.language
        self.language = self._common_language if piece.is_last else self.language
        self._confirmed_to, self._surest = 0, None
        self._is_alone = self._has_failed = self._is_settled = False
        self._turn()
        return piece

    def _turn(self) -> None:
        """Forget what no later window can hold."""
        needed_from = self.pieces.needed_from
        # Where a window may begin that holds some of the next piece.
        begins_from = needed_from - MAX_WINDOW_SAMPLES + PIECE_SAMPLES
        self._earlier = held = _last_of(self._earlier, begins_from, self._vocabulary.max_length // 2)
        if self._retry is None:
            self.next_frame = (held[0].start_sample if held else needed_from) // HOP_SAMPLES


def _last_of(pieces: Sequence[FinalPiece], from_sample: int, max_tokens: int) -> tuple[FinalPiece, ...]:
    """Return the last pieces that begin at a sample or later and have no more tokens than that together."""
    num_tokens = num_pieces = 0
    for piece in reversed(pieces):
        num_tokens += len(piece.tokens)
        if piece.start_sample < from_sample or num_tokens > max_tokens:
            break
        num_pieces += 1
    return tuple(pieces[len(pieces) - num_pieces :])


def max_new_tokens(num_samples: int) -> int:
    """Return the most tokens of a text: no speech is faster, and a model that writes more repeats itself."""
    return 32 + 25 * num_samples // SAMPLE_RATE


def whisper_plan(
    vocabulary: Vocabulary,
    tokenize: Callable[[str], tuple[int, ...]],
    max_new_tokens: TokenLimit | None = None,
    voice: Voice | None = None,
) -> Plan:
    """Return a target's plan: sequential windows for recordings, live windows for live audio."""

    def plan(options: DecodingOptions) -> WhisperWindows:
        words = PromptText(
            initial=tokenize(options.initial_prompt),
            hotwords=tokenize(options.hotwords),
            is_carried=options.carry_initial_prompt,
        )
        kind = _kind_of(options)
        return kind(vocabulary, options, words, max_new_tokens=max_new_tokens, voice=voice)

    return plan


def follow_windows(vocabulary: Vocabulary, options: DecodingOptions) -> Windows:
    """Return windows for a draft, which follow those of its target."""
    return _kind_of(options)(vocabulary, options, follows=True)


def _kind_of(options: DecodingOptions) -> type[WhisperWindows]:
    """Return the kind of windows that a session has."""
    if options.live is not None:
        return LiveWindows
    return LanguageWindows if options.languages else SequentialWindows


def _frames(num_samples: int) -> int:
    return -(-num_samples // HOP_SAMPLES)


def _check(position: LivePosition, vocabulary: Vocabulary) -> None:
    """Raise :class:`InvalidRequest` for a position that a model cannot continue."""
    tokens = [token for piece in position.pieces for token in piece.tokens]
    if any(token >= len(vocabulary) for token in tokens) or not vocabulary.ends.isdisjoint(tokens):
        raise InvalidRequest("The final tokens of a position are text and times: one of them is not.")
    if len(tokens) > vocabulary.max_length:
        raise InvalidRequest(
            f"A position has {len(tokens)} final tokens: a window of this model holds "
            f"{vocabulary.max_length}."
        )
    if position.language not in (None, *(vocabulary.languages or ("en",))):
        raise InvalidRequest(
            f"A position is in the language '{position.language}', which this model does not have: pass on "
            "the last position as it was received."
        )
