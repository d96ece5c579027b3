"""Cut windows into segments, find where the next begins, and order words there.

The rules are those of transformers' sequential long-form decoding
(``WhisperGenerationMixin._retrieve_segment``): segments end where two timestamps meet; a single timestamp at
the end means that silence follows; otherwise an unfinished sentence after the last pair is discarded and
decoded again from there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from math import inf

from specwhisper.transcription.vocabulary import Vocabulary
from specwhisper.transcription.words import SENTENCE_ENDS
from specwhisper.types import FRAMES_PER_TIMESTAMP, HOP_SAMPLES, SAMPLE_RATE, Segment, TimeOrder, Window, Word

FRAME_S = HOP_SAMPLES / SAMPLE_RATE
BRIEF_S = 0.2  # what a word may last that ends after its window's text
SIMILAR = 0.5  # share of the letters of two words


@dataclass(frozen=True, slots=True)
class WindowResult:
    """``ends_silent``: whether the window ends with a single timestamp, so that silence follows."""

    segments: tuple[Segment, ...]
    advance_frames: int
    discarded: tuple[int, ...]
    ends_silent: bool = False


def split_window(window: Window, tokens: Sequence[int], vocabulary: Vocabulary) -> WindowResult:
    """Cut the committed tokens of a window, of which end-of-text may be the last, into segments."""
    if tokens and tokens[-1] == vocabulary.end_of_text:
        tokens = tokens[:-1]
    is_timestamp = [vocabulary.is_timestamp(token) for token in tokens]
    ends_silent = is_timestamp[-2:] == [False, True]
    pairs = [i + 1 for i in range(len(tokens) - 1) if is_timestamp[i] and is_timestamp[i + 1]]
    if not pairs:
        whole = _whole(window, tokens, is_timestamp, vocabulary)
        return WindowResult((whole,), window.num_frames, (), ends_silent)
    if ends_silent:
        cuts, advance = [*pairs, len(tokens)], window.num_frames
    else:
        # transformers keeps the second timestamp of the last pair with the segment it closes.
        cuts = [*pairs[:-1], pairs[-1] + 1]
        advance = (tokens[pairs[-1] - 1] - vocabulary.timestamp_begin) * FRAMES_PER_TIMESTAMP
        advance = advance or window.num_frames  # only without timestamp rules: never decode the same again
    segments = []
    for start, end in zip([0, *cuts[:-1]], cuts, strict=True):
        piece = tokens[start:end]
        closing = piece[-1] if end != cuts[-1] or ends_silent else piece[-2]
        segments.append(
            _segment(
                window,
                piece,
                # Only without timestamp rules may the first piece begin with text: with the window.
                start_frames=max(0, piece[0] - vocabulary.timestamp_begin) * FRAMES_PER_TIMESTAMP,
                end_frames=(closing - vocabulary.timestamp_begin) * FRAMES_PER_TIMESTAMP,
                vocabulary=vocabulary,
            )
        )
    return WindowResult(tuple(segments), advance, tuple(tokens[cuts[-1] :]), ends_silent)


def _whole(
    window: Window, tokens: Sequence[int], is_timestamp: Sequence[bool], vocabulary: Vocabulary
) -> Segment:
    """Return all tokens as one segment; it ends at its last timestamp, else with the window."""
    end_frames = window.num_frames
    timestamps = [token for token, is_time in zip(tokens, is_timestamp, strict=True) if is_time]
    if timestamps and timestamps[-1] != vocabulary.timestamp_begin:
        end_frames = (timestamps[-1] - vocabulary.timestamp_begin) * FRAMES_PER_TIMESTAMP
    return _segment(window, tokens, start_frames=0, end_frames=end_frames, vocabulary=vocabulary)


def _segment(
    window: Window, tokens: Sequence[int], *, start_frames: int, end_frames: int, vocabulary: Vocabulary
) -> Segment:
    return Segment(
        start_s=round((window.start_frame + start_frames) * FRAME_S, 2),
        end_s=round((window.start_frame + end_frames) * FRAME_S, 2),
        tokens=tuple(tokens),
        text=vocabulary.decode(tokens),
        seek=window.start_frame,
    )


def shift_timestamps(tokens: Sequence[int], frames: int, vocabulary: Vocabulary) -> tuple[int, ...]:
    """Return tokens with times in a window that begins ``frames`` later, moved to its edges if outside."""
    begin, end, shift = vocabulary.timestamp_begin, len(vocabulary) - 1, frames // FRAMES_PER_TIMESTAMP
    return tuple(min(max(begin, token - shift), end) if token >= begin else token for token in tokens)


def up_to_border(segment: Segment, border_s: float) -> Segment:
    """Return a segment with words up to where the next window begins; the last may be a little longer."""
    words = []
    for word in segment.words:
        start_s = min(word.start_s, border_s)
        end_s = min(word.end_s, max(border_s, start_s + BRIEF_S))
        words.append(replace(word, start_s=start_s, end_s=end_s))
    return replace(segment, words=tuple(words))


def around_words(segments: Sequence[Segment]) -> list[Segment]:
    """Return segments that last from their first word to their last, or longer.

    Where two of them overlap then, the first word of the later one is the border at the latest.
    """
    found: list[Segment] = []
    border_s = inf
    for segment in reversed(segments):
        start_s = min((segment.start_s, *(word.start_s for word in segment.words)))
        end_s = max((segment.end_s, *(word.end_s for word in segment.words)))
        found.append(replace(segment, start_s=start_s, end_s=min(end_s, border_s)))
        border_s = min((border_s, *(word.start_s for word in segment.words)))
    return found[::-1]


class Borders(TimeOrder):
    """Orders segments, and leaves out words that two windows wrote.

    The next window begins at the closing timestamp of the last segment. The times of words come from
    cross-attention, and may lie after it: silence counts as part of the word before it, or the timestamp is
    early. Then the next window holds the last word again, and often writes it again. openai/whisper moves the
    window instead; here windows are those of transformers, whether words have times or not. Tokens stay as
    they were decoded.
    """

    def __init__(self, end_s: float = 0.0) -> None:
        super().__init__(end_s)
        self._seek = 0
        self._last_word: Word | None = None

    def __call__(self, segments: Iterable[Segment]) -> tuple[Segment, ...]:
        return super().__call__(map(self._without_repeated, segments))

    def _without_repeated(self, segment: Segment) -> Segment:
        if not segment.words:
            return segment
        last, first = self._last_word, segment.words[0]
        if (
            last is not None
            and segment.seek > self._seek
            and first.start_s < last.end_s
            and last.end_s > segment.seek * FRAME_S
            and _is_same(last.text, first.text)
        ):
            text = segment.text.lstrip().removeprefix(first.text.strip())
            segment = replace(segment, text=text, words=segment.words[1:])
        self._seek = segment.seek
        self._last_word = segment.words[-1] if segment.words else last
        return segment


def _is_same(one: str, other: str) -> bool:
    """Return whether two words have the same letters, or similar ones and end a sentence each."""
    first, second = (
        "".join(character for character in word.lower() if character.isalnum()) for word in (one, other)
    )
    if first == second:
        return bool(first)
    ends_sentences = all(word.rstrip().endswith(tuple(SENTENCE_ENDS)) for word in (one, other))
    return ends_sentences and SequenceMatcher(None, first, second).ratio() >= SIMILAR
