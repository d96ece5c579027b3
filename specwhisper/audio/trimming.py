"""Trim the times of words to the sound.

Cross-attention counts silence as part of the word before or after it. So a word keeps only the sound in its
time, which moves no end outwards. Sound is what is loud beside the audio around the word. Short pauses belong
to it. No word lasts through a longer one, so of two sounds the longer one is the word; the other is a click,
or of the word beside it. The audio alone decides, without a model.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import groupby

import numpy as np

from specwhisper.audio.canonical import BYTES_PER_SAMPLE, floats
from specwhisper.audio.mel import NUM_FFT, log_mel_power, power_spectrogram
from specwhisper.types import FRAMES_PER_TIMESTAMP, HOP_SAMPLES, WordAlignment

POSITION_SAMPLES = FRAMES_PER_TIMESTAMP * HOP_SAMPLES  # 20 ms, the step of times; no word is shorter
CONTEXT = 100  # positions at either side of a word, with which it is compared
QUIET, LOUD = 0.1, 0.9  # shares of these positions below the quiet level, and below the loud one
SOUND_SHARE = 0.2  # sound begins this far from the quiet level to the loud one, in decibels
MIN_RANGE_DB, MAX_RANGE_DB = 5.0, 30.0  # below the loud level: all above is sound, all below is none
NUM_BANDS = 16  # mel bands
PAUSE = 15  # positions between two sounds; no word lasts through it


def trimmed(words: Sequence[WordAlignment], pcm: bytes, start_sample: int) -> tuple[WordAlignment, ...]:
    """Return the words of a window in order, none empty, each as long as its sound.

    A word without any sound keeps its time.

    Parameters
    ----------
    pcm : the audio of the window.
    start_sample : where it begins.
    """
    levels = _levels_db(pcm)
    return tuple(_trimmed(word, levels, start_sample) for word in _apart(words, len(levels), start_sample))


def _levels_db(pcm: bytes) -> list[float]:
    """Return how far each position is above the quiet level of each band, on average over the bands.

    So a hum counts little, and noise of any colour. A position that the audio does not fill is left out.
    """
    num_positions = len(pcm) // (BYTES_PER_SAMPLE * POSITION_SAMPLES)
    if not num_positions:
        return []
    samples = floats(pcm[: num_positions * POSITION_SAMPLES * BYTES_PER_SAMPLE])
    frames = power_spectrogram(np.pad(samples, (NUM_FFT - HOP_SAMPLES) // 2))
    power = frames.reshape(num_positions, FRAMES_PER_TIMESTAMP, -1).mean(axis=1)
    bands = log_mel_power(power, NUM_BANDS)
    above = np.maximum(bands - np.quantile(bands, QUIET, axis=1, keepdims=True), 0)
    levels: list[float] = (10 * above.mean(axis=0)).tolist()
    return levels


def _apart(words: Sequence[WordAlignment], num_positions: int, start_sample: int) -> list[WordAlignment]:
    """Return words of at least a position each, which the words beside them give up.

    Where the audio has fewer positions than words, they share it evenly.
    """
    if not words:
        return []
    last = max(start_sample + max(1, num_positions) * POSITION_SAMPLES, *(word.end_sample for word in words))
    shortest = max(1, min(POSITION_SAMPLES, (last - start_sample) // len(words)))
    found, end = [], start_sample
    for word in words:
        start = max(word.start_sample, end)
        end = max(word.end_sample, start + shortest)
        found.append(replace(word, start_sample=start, end_sample=end))
    for index in reversed(range(len(found))):
        end = min(found[index].end_sample, last)
        last = min(found[index].start_sample, end - shortest)
        found[index] = replace(found[index], start_sample=last, end_sample=end)
    return found


def _trimmed(word: WordAlignment, levels: Sequence[float], start_sample: int) -> WordAlignment:
    begin = (word.start_sample - start_sample) // POSITION_SAMPLES
    end = -(-(word.end_sample - start_sample) // POSITION_SAMPLES)
    around = sorted(levels[max(0, begin - CONTEXT) : end + CONTEXT])
    if not around:
        return word
    quiet_db, loud_db = around[int(len(around) * QUIET)], around[int(len(around) * LOUD)]
    sound_db = quiet_db + SOUND_SHARE * (loud_db - quiet_db)
    sound_db = min(max(sound_db, loud_db - MAX_RANGE_DB), loud_db - MIN_RANGE_DB)
    sounds = _sounds(level > sound_db for level in levels[begin:end])
    if not sounds:
        return word
    first, last, _ = max(sounds, key=lambda sound: sound[2])
    return replace(
        word,
        start_sample=max(word.start_sample, start_sample + (begin + first) * POSITION_SAMPLES),
        end_sample=min(word.end_sample, start_sample + (begin + last) * POSITION_SAMPLES),
    )


def _sounds(is_loud: Iterable[bool]) -> list[tuple[int, int, int]]:
    """Return start, end and number of loud positions of each sound, with the pauses in it."""
    sounds: list[tuple[int, int, int]] = []
    end = 0
    for loud, run in groupby(is_loud):
        start, end = end, end + len(list(run))
        if loud and sounds and start - sounds[-1][1] < PAUSE:
            begin, _, num_loud = sounds.pop()
            sounds.append((begin, end, num_loud + end - start))
        elif loud:
            sounds.append((start, end, end - start))
    return sounds
