"""Windows of speech: sentences laid out in time, rooms and noise, and the transcripts they should get."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy.signal
from transformers import WhisperTokenizer

from experiments.demo_pair.corpus import RATE, Clip, Corpus
from experiments.demo_pair.model import spread
from experiments.demo_pair.vocabulary import Phonemes, Vocabulary


def change_speed(audio: np.ndarray, factor: float) -> np.ndarray:
    length = int(len(audio) / factor)
    return np.interp(np.arange(length) * factor, np.arange(len(audio)), audio).astype(np.float32)


def colored_noise(length: int, slope: float, rng: np.random.Generator) -> np.ndarray:
    """Noise of unit power whose spectrum falls with frequency as f**-slope."""
    # A few seconds, repeated: noise over 30 s would cost more than the speech.
    period = min(length, 4 * RATE)
    spectrum = np.fft.rfft(rng.standard_normal(period).astype(np.float32))
    spectrum *= (np.arange(len(spectrum)) + 20.0) ** -slope
    noise = np.fft.irfft(spectrum, period)
    noise /= noise.std() + 1e-9
    return np.resize(noise, length).astype(np.float32)


def add_noise(audio: np.ndarray, snr_db: float, rng: np.random.Generator) -> np.ndarray:
    noise = colored_noise(len(audio), rng.uniform(0, 1), rng)
    level = np.sqrt(np.mean(audio**2)) * 10 ** (-snr_db / 20)
    return audio + noise * np.float32(level)


def add_reverb(audio: np.ndarray, seconds: float, rng: np.random.Generator) -> np.ndarray:
    """Convolve with an exponentially decaying noise tail, below the direct sound."""
    length = int(seconds * RATE)
    tail = rng.standard_normal(length) * np.exp(-6.9 * np.arange(length) / length)
    tail *= rng.uniform(0.2, 0.6) / np.sqrt(np.sum(tail**2))
    tail[0] = 1.0
    return scipy.signal.oaconvolve(audio, tail.astype(np.float32))[: len(audio)]


def limit_band(audio: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Cut the low and the high end, as a telephone does."""
    low, high = rng.uniform(50, 350), rng.uniform(2800, 6000)
    sections = scipy.signal.butter(4, [low, high], "bandpass", fs=RATE, output="sos")
    return scipy.signal.sosfilt(sections, audio).astype(np.float32)


def augment(audio: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    if rng.random() < 0.08:
        audio = add_reverb(audio, rng.uniform(0.1, 0.3), rng)
    if rng.random() < 0.08:
        audio = limit_band(audio, rng)
    if rng.random() < 0.35:
        audio = add_noise(audio, rng.uniform(8, 40), rng)
    level = 10 ** rng.uniform(-1.3, 0)
    return np.clip(audio * np.float32(level / (np.abs(audio).max() + 1e-9)), -1, 1)


WINDOW_SECONDS = 30.0
LATEST_FIRST_TIMESTAMP = 1.0  # what max_initial_timestamp_index allows at inference
TEST_SPLITS = ("test-sentences", "test-voices", "test-fsdd")


@dataclass(frozen=True)
class Segment:
    """A sentence with its times; `end` is None where the window's end cuts it."""

    start: float
    end: float | None
    text: str

    def shifted(self, seconds: float) -> Segment:
        end = None if self.end is None else self.end + seconds
        return Segment(self.start + seconds, end, self.text)


@dataclass(frozen=True)
class Window:
    audio: np.ndarray
    segments: list[Segment]

    @property
    def is_cut(self) -> bool:
        return any(segment.end is None for segment in self.segments)

    @property
    def text(self) -> str:
        """The complete sentences: the model is to leave one that is cut to the next window."""
        return " ".join(segment.text for segment in self.segments if segment.end is not None)


class WindowMaker:
    def __init__(self, corpus: Corpus, split: str = "train") -> None:
        self.corpus = corpus
        self.clips = corpus.split(split)
        self.by_voice: dict[str, list[Clip]] = defaultdict(list)
        for clip in self.clips:
            self.by_voice[clip.voice].append(clip)

    def draw_clip(self, rng: np.random.Generator) -> Clip:
        return self.clips[rng.integers(len(self.clips))]

    def window(self, limit: float, rng: np.random.Generator, clean: bool = False) -> Window:
        """Lay out at most `limit` seconds; a last sentence may be cut only at 30 s."""
        if rng.random() < 0.01:
            return Window(self._silence(limit, rng), [])
        size = int(limit * RATE)
        audio = np.zeros(size, np.float32)
        segments: list[Segment] = []
        position = self._lead(rng)
        full = rng.random() < 0.75
        wanted = 10**6 if full else int(rng.integers(1, 2 + limit / 5))
        voice_clip = self.draw_clip(rng)
        end = 0
        while len(segments) < wanted:
            clip, samples = self._fitting(voice_clip, size - position, rng, first=not segments)
            if clip is None or samples is None:
                break
            stop = position + len(samples)
            if stop > size:
                if limit == WINDOW_SECONDS and size - position > RATE // 10:
                    audio[position:] = samples[: size - position]
                    segments.append(Segment(position / RATE, None, clip.text))
                    end = size
                break
            audio[position:stop] = samples
            segments.append(Segment(position / RATE, stop / RATE, clip.text))
            end = stop
            gap = rng.uniform(0.08, 0.7) if rng.random() < 0.75 else rng.uniform(0.7, 2.5)
            position = stop + int(gap * RATE)
        if not segments:
            return Window(self._silence(limit, rng), [])
        # Sound continues a little after the speech, then true zeros, as in a padded file.
        tail = size if rng.random() < 0.3 else end + int(rng.uniform(0, 1.0) * RATE)
        if not clean:
            audio[:tail] = augment(audio[:tail], rng)
        return Window(audio, segments)

    def _fitting(self, like: Clip, room: int, rng: np.random.Generator, first: bool):
        pool = self.by_voice[like.voice] if rng.random() < 0.85 else self.clips
        if len(pool) < 5:
            pool = self.clips
        # A first sentence has to fit; a later one that does not ends the window.
        for _ in range(50 if first else 1):
            clip = pool[rng.integers(len(pool))]
            samples = self.corpus.samples(clip)
            if rng.random() < (0.7 if clip.voice.startswith("fsdd") else 0.1):
                samples = change_speed(samples, rng.uniform(0.85, 1.15))
            if len(samples) <= room - RATE // 10 or not first:
                return clip, samples * np.float32(rng.uniform(0.5, 1.0))
            pool = self.clips
        return None, None

    def history(self, until: float, rng: np.random.Generator) -> list[Segment]:
        """Invent sentences with times that fill a window up to a moment."""
        segments: list[Segment] = []
        end = until - rng.uniform(0, 0.4)
        while True:
            clip = self.draw_clip(rng)
            start = end - clip.length / RATE
            if start < 0:
                return segments
            segments.insert(0, Segment(start, end, clip.text))
            end = start - rng.uniform(0.08, 0.9)

    @staticmethod
    def _lead(rng: np.random.Generator) -> int:
        kind = rng.random()
        if kind < 0.35:
            return int(rng.uniform(0, 0.04) * RATE)
        return int((rng.uniform(0, 0.6) if kind < 0.85 else rng.uniform(0.6, 1.5)) * RATE)

    @staticmethod
    def _silence(limit: float, rng: np.random.Generator) -> np.ndarray:
        size = int(limit * RATE)
        if rng.random() < 0.3:
            return np.zeros(size, np.float32)
        noise = colored_noise(size, rng.uniform(0, 1), rng)
        return noise * np.float32(10 ** rng.uniform(-4, -1))


def test_windows(
    corpus: Corpus, per_split: int, packed: int, seed: int
) -> dict[str, list[tuple[np.ndarray, str]]]:
    """Return single clean clips of every split, and full windows of unseen sentences, noisy and clean."""
    rng = np.random.default_rng([seed, 6])
    sets: dict[str, list[tuple[np.ndarray, str]]] = {}
    for split in TEST_SPLITS:
        if clips := corpus.split(split):
            chosen = rng.permutation(len(clips))[:per_split]
            sets[split] = [(corpus.samples(clips[i]), clips[i].text) for i in chosen]
    maker = WindowMaker(corpus, "test-sentences")
    for name, clean in {"noisy": False, "clean": True}.items():
        sets[name] = []
        while len(sets[name]) < packed:
            window = maker.window(WINDOW_SECONDS, rng, clean=clean)
            if window.segments:
                sets[name].append((window.audio, window.text))
    return sets


@dataclass(frozen=True)
class Transcript:
    """Decoder tokens and when each is spoken, in seconds (NaN: at no time).

    Those before `given` are prompt. `phonemes` is what CTC has to find.
    """

    tokens: list[int]
    times: list[float]
    given: int
    phonemes: list[int]


class Transcriber:
    def __init__(self, tokenizer: WhisperTokenizer, vocabulary: Vocabulary, phonemes: Phonemes) -> None:
        self.tokenizer = tokenizer
        self.vocabulary = vocabulary
        self.phonemes = phonemes
        self.known: dict[str, list[int]] = {}
        self.lengths = [len(t) for t in tokenizer.convert_ids_to_tokens(list(range(vocabulary.end)))]

    def encode(self, text: str) -> list[int]:
        if text not in self.known:
            self.known[text] = self.tokenizer.encode(" " + text, add_special_tokens=False)
        return self.known[text]

    def transcript(
        self,
        window: Window,
        timestamps: bool,
        previous: list[str],
        say_no_speech: bool = False,
        history: Sequence[Segment] = (),
    ) -> Transcript:
        """Write the tokens from an optional previous text to the end.

        `history` is the transcript before the part to be learnt.
        """
        ids = self.vocabulary
        prompt = [ids.previous] if previous else []
        for text in previous:
            prompt += self.encode(text)
        given = len(prompt) + 1
        if not window.segments and say_no_speech:
            tokens = [*prompt, ids.start, ids.no_speech, ids.end]
            return Transcript(tokens, [math.nan] * len(tokens), given, [])
        head = [*prompt, *ids.head]
        if timestamps:
            spoken = self._timed([*history, *window.segments])
            if history:
                given = len(head) + len(self._timed(history))
        else:
            head.append(ids.no_timestamps)
            spoken = [pair for segment in window.segments for pair in self._placed(segment)]
        return Transcript(
            [*head, *(token for token, _ in spoken), ids.end],
            [*[math.nan] * len(head), *(time for _, time in spoken), math.nan],
            given,
            self.phonemes.of(window.text),
        )

    def _placed(self, segment: Segment) -> list[tuple[int, float]]:
        if segment.end is None:
            return []
        tokens = self.encode(segment.text)
        lengths = [self.lengths[token] for token in tokens]
        return list(zip(tokens, spread(lengths, segment.start, segment.end), strict=True))

    def _timed(self, segments: Sequence[Segment]) -> list[tuple[int, float]]:
        """Return tokens with their times, each sentence between its timestamps."""
        ids = self.vocabulary
        if not segments:
            return [(ids.timestamp(0.0), math.nan)]
        pairs: list[tuple[int, float]] = []
        for segment in segments:
            start = segment.start if pairs else min(segment.start, LATEST_FIRST_TIMESTAMP)
            pairs += [(ids.timestamp(start), segment.start), *self._placed(segment)]
            if segment.end is not None:
                pairs.append((ids.timestamp(segment.end), segment.end))
        return pairs
