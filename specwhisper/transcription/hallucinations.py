"""Find segments of a window that are probably invented, and skip silence.

The rules are those of openai/whisper's ``hallucination_silence_threshold``: a segment is an anomaly if its
first words are very short, very long or improbable, and it is left out if silence, or another anomaly, is on
both sides of it. Only what is known in the window decides, so that another target may continue there: speech
of earlier windows counts as ending where the window begins.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from math import exp
from statistics import median

from specwhisper.transcription.segments import FRAME_S
from specwhisper.transcription.vocabulary import Vocabulary
from specwhisper.transcription.words import CLOSING, OPENING, SENTENCE_ENDS
from specwhisper.types import SAMPLE_RATE, WINDOW_FRAMES, Segment, Window, Word, WordAlignment

PUNCTUATION = OPENING + CLOSING  # words of these are not judged
NUM_JUDGED = 8  # first words of a segment
IMPROBABLE = 0.15
SHORT_S, LONG_S = 0.133, 2.0  # unusual durations of a word
MAX_MEDIAN_S = 0.7  # largest median of a window's words
NEAR_S = 2.0  # to an end of the window: no silence is needed on that side
SKIPPED_S = 1.0  # at least, before an anomaly's audio is decoded again


def is_anomaly(segment: Segment) -> bool:
    """Return whether a segment is probably invented, by its words without their punctuation."""
    words = [word for word in segment.words if word.text not in PUNCTUATION][:NUM_JUDGED]
    score = sum(map(_anomaly, words))
    return bool(segment.words) and (score >= 3 or score + 0.01 >= len(words))


def _anomaly(word: Word) -> float:
    """Return how unlike speech a word is; 0 for an ordinary one."""
    duration_s = _duration_s(word)
    score = 1.0 if word.confidence < IMPROBABLE else 0.0
    if duration_s < SHORT_S:
        score += (SHORT_S - duration_s) * 15
    return score + max(0.0, duration_s - LONG_S)


def _duration_s(word: Word) -> float:
    return word.end_s - word.start_s


def review(
    window: Window, segments: Sequence[Segment], threshold_s: float, *, ends_silent: bool
) -> tuple[int, int | None]:
    """Return how many segments of a window are kept, and where the next one begins, if elsewhere.

    Parameters
    ----------
    threshold_s : silence beside an anomaly that is longer is skipped.
    ends_silent : whether the window ends with a single timestamp: no speech follows.
    """
    start_s = window.start_frame * FRAME_S
    window_end_s = (window.start_frame + WINDOW_FRAMES) * FRAME_S
    audio_end = window.start_frame + window.num_frames
    spoken = [(index, segment) for index, segment in enumerate(segments) if segment.words]
    next_frame = None
    ends = [word.end_s for _, segment in spoken for word in segment.words] or [
        each.end_s for each in segments
    ]
    if not ends_silent and ends and ends[-1] > start_s:
        next_frame = _frame(ends[-1]) if window_end_s - ends[-1] > threshold_s else audio_end
    if spoken and is_anomaly(spoken[0][1]) and spoken[0][1].start_s - start_s > threshold_s:
        return 0, window.start_frame + _frame(spoken[0][1].start_s - start_s)
    before_s = start_s
    for place, (index, segment) in enumerate(spoken):
        following = spoken[place + 1][1] if place + 1 < len(spoken) else None
        after_s = audio_end * FRAME_S if following is None else following.words[0].start_s
        if (
            is_anomaly(segment)
            and (
                segment.start_s - before_s > threshold_s
                or segment.start_s < threshold_s
                or segment.start_s - start_s < NEAR_S
            )
            and (
                after_s - segment.end_s > threshold_s
                or (following is not None and is_anomaly(following))
                or window_end_s - segment.end_s < NEAR_S
            )
        ):
            # A window of 30 s may be followed by more audio, which may not have arrived.
            is_last = window.num_frames < WINDOW_FRAMES and audio_end * FRAME_S - segment.end_s < threshold_s
            return index, audio_end if is_last else _frame(max(start_s + SKIPPED_S, segment.start_s))
        before_s = segment.end_s
    return len(segments), next_frame


def spoken_segments(
    window: Window,
    segments: Sequence[Segment],
    words: Sequence[WordAlignment],
    tokens: Sequence[int],
    log_probs: Sequence[float],
    vocabulary: Vocabulary,
) -> list[Segment]:
    """Return the segments of a window with their words, as openai/whisper times them.

    Silence belongs to the words beside it, so words that are too long are shortened at the edges of sentences
    and segments.
    """
    spoken = [_spoken(word, tokens, log_probs, vocabulary) for word in words]
    durations = [duration_s for word in words for duration_s in _durations(word) if duration_s]
    median_s = min(MAX_MEDIAN_S, median(durations)) if durations else 0.0
    for index, word in enumerate(spoken[1:], start=1):
        follows_sentence = _ends_sentence(words[index - 1], spoken[index - 1].text)
        if follows_sentence and _duration_s(word) > 2 * median_s > 0:
            spoken[index] = replace(word, start_s=round(word.end_s - 2 * median_s, 2))
    found: list[Segment] = []
    start, last_s = 0, window.start_frame * FRAME_S
    for segment in segments:
        end = start + len(segment.tokens)
        own = [each for word, each in zip(words, spoken, strict=True) if start <= word.base < end]
        found.append(_fitted(segment, own, median_s, last_s))
        last_s, start = found[-1].end_s if own else last_s, end
    return found


def _fitted(segment: Segment, words: list[Word], median_s: float, last_s: float) -> Segment:
    """Shorten the words at both edges of a segment, before which speech ended at ``last_s``."""
    start_s, end_s, longest_s = segment.start_s, segment.end_s, 2 * median_s
    if not words:
        return segment
    first, second = words[0], words[1] if len(words) > 1 else None
    follows_pause = first.end_s - last_s > 4 * median_s
    if follows_pause and (
        _duration_s(first) > longest_s
        or (second is not None and second.end_s - first.start_s > 2 * longest_s)
    ):
        if second is not None and _duration_s(second) > longest_s:
            boundary_s = max(second.end_s / 2, second.end_s - longest_s)
            first, words[1] = replace(first, end_s=boundary_s), replace(second, start_s=boundary_s)
        first = replace(first, start_s=max(0.0, first.end_s - longest_s))
    if first.start_s < start_s - 0.5 and start_s < first.end_s:
        first = replace(first, start_s=max(0.0, min(first.end_s - median_s, start_s)))
    else:
        start_s = first.start_s
    words[0] = first
    last = words[-1]
    if last.start_s < end_s and end_s + 0.5 < last.end_s:
        words[-1] = replace(last, end_s=max(last.start_s + median_s, end_s))
    else:
        end_s = last.end_s
    return replace(segment, start_s=start_s, end_s=end_s, words=tuple(words))


def _spoken(
    word: WordAlignment, tokens: Sequence[int], log_probs: Sequence[float], vocabulary: Vocabulary
) -> Word:
    spoken = word.spoken or word
    probs = [exp(log_prob) for log_prob in log_probs[spoken.base : spoken.base + spoken.num_tokens]]
    return Word(
        round(spoken.start_sample / SAMPLE_RATE, 2),
        round(spoken.end_sample / SAMPLE_RATE, 2),
        vocabulary.decode(tokens[word.base : word.base + word.num_tokens]),
        sum(probs) / len(probs) if probs else 0.0,
    )


def _durations(word: WordAlignment) -> Iterator[float]:
    """Yield the seconds of a word, and of the punctuation at either side."""
    spoken = word.spoken or word
    samples = (word.start_sample, spoken.start_sample, spoken.end_sample, word.end_sample)
    return (end_s - start_s for start_s, end_s in pairwise(sample / SAMPLE_RATE for sample in samples))


def _ends_sentence(word: WordAlignment, text: str) -> bool:
    """Return whether a word has tokens of punctuation after it that end a sentence."""
    spoken = word.spoken or word
    return spoken.base + spoken.num_tokens < word.base + word.num_tokens and text[-1] in SENTENCE_ENDS


def _frame(time_s: float) -> int:
    return round(time_s / FRAME_S)
