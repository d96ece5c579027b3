"""For tests of live decoding: tokens as letters, scripted windows, a speaker."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.common.models.scripted import END as END_OF_TEXT
from experiments.common.models.scripted import TIME
from experiments.common.models.speech import NUM_WORDS, SPOKEN
from specwhisper.live import LiveOptions
from specwhisper.options import DecodingOptions
from specwhisper.transcription.live.windows import LiveWindows
from specwhisper.transcription.windows import ClosedWindow
from specwhisper.types import FRAMES_PER_TIMESTAMP, SAMPLE_RATE, AudioChunk, VoiceEvent, VoiceMark, Window

BEGIN, CUT, END = VoiceEvent.BEGIN, VoiceEvent.CUT, VoiceEvent.END
ENDED = END


def token_ids(*parts: str | float) -> tuple[int, ...]:
    """Return a token for each letter, timestamp tokens for seconds, END for ``.``."""
    tokens: list[int] = []
    for part in parts:
        if isinstance(part, str):
            characters = part.replace(" ", "")
            tokens += [END_OF_TEXT if c == "." else ord(c.lower()) - ord("a") for c in characters]
        else:
            tokens.append(TIME + round(part / 0.02))
    return tuple(tokens)


def letters(tokens: Sequence[int]) -> str:
    """Return text tokens as letters; a capital begins a word."""
    text = (chr(ord("A" if i < NUM_WORDS else "a") + i) for i in tokens if i < END_OF_TEXT)
    return "".join(text)


def mark(event: VoiceEvent, seconds: float) -> VoiceMark:
    """Return the mark of an event at a time in the audio."""
    return VoiceMark(event, round(seconds * SAMPLE_RATE))


class ScriptedWindows:
    """Live windows that a test drives, with all text that has become final.

    Attributes
    ----------
    final : text tokens that became final, by utterance.
    """

    def __init__(self, live: LiveOptions | None = None, vocabulary=SPOKEN, **options) -> None:
        live = live or LiveOptions()
        self.windows = LiveWindows(vocabulary, DecodingOptions.greedy(live=live, **options))
        self.received_samples = live.position.start_sample
        self.final: dict[int, list[int]] = {}
        self.opened: Window | None = None

    def append(self, to_s: float, *marks: VoiceMark, is_last: bool = False) -> None:
        """Append audio up to a time, with its marks."""
        chunk = AudioChunk(self.received_samples, b"", is_last, marks)
        self.received_samples = max(self.received_samples, round(to_s * SAMPLE_RATE))
        self.windows.append_audio(chunk, self.received_samples)

    @property
    def ready(self) -> int | None:
        """Frames of the window that is ready; None before that, 0 after the last one."""
        return self.windows.ready_frames(self)  # type: ignore[arg-type]

    @property
    def extent_s(self) -> tuple[float, float]:
        """Begin and end of the window that is ready, in seconds."""
        num_frames = self.ready
        assert num_frames
        return self.windows.next_frame / 100, (self.windows.next_frame + num_frames) / 100

    def open(self) -> Window:
        """Open the window that is ready."""
        num_frames = self.ready
        assert num_frames
        self.opened = self.windows.open(num_frames)
        return self.opened

    def close(self, tokens: Sequence[int], **scores) -> ClosedWindow:
        """Close the open window."""
        assert self.opened is not None
        closed = self.windows.close(self.opened, tokens, **scores)
        if closed.step is not None:
            fresh = tokens[closed.step.final_start : closed.step.final_end]
            self.final.setdefault(closed.step.utterance, []).extend(i for i in fresh if i < END_OF_TEXT)
        return closed

    def step(self, *parts: str | float, **scores) -> ClosedWindow:
        """Open the window that is ready, and close it with :func:`token_ids`."""
        self.open()
        return self.close(token_ids(*parts), **scores)

    def text(self, utterance: int = 1) -> str:
        return letters(self.final.get(utterance, []))


class Speaker:
    """Words of 400 ms, five to a sentence; a word that is cut off comes out wrong."""

    WORD_FRAMES, SENTENCE = 40, 5
    NUM_RIGHT = 12  # other words are wrong ones

    def __init__(self, start_frame: int, num_words: int) -> None:
        self.start_frame, self.num_words = start_frame, num_words

    def right_words(self, start: int = 0, end: int | None = None) -> list[int]:
        return [i % self.NUM_RIGHT for i in range(start, self.num_words if end is None else end)]

    def write(self, start_frame: int, num_frames: int, step: int, noise: tuple[str, int] | None) -> list[int]:
        """Write the tokens of a window; at most one word that is not cut off is wrong."""
        end_frame = start_frame + num_frames
        words: list[tuple[int, int]] = []  # token and end frame in the window
        for word in range(self.num_words):
            begin = self.start_frame + word * self.WORD_FRAMES
            if begin + self.WORD_FRAMES // 2 < start_frame or begin >= end_frame:
                continue
            is_whole = begin + self.WORD_FRAMES <= end_frame
            token = word % self.NUM_RIGHT if is_whole else self.NUM_RIGHT + step % 2
            words.append((token, min(begin + self.WORD_FRAMES, end_frame) - start_frame))
        if noise is not None and words:
            kind, index = noise[0], noise[1] % len(words)
            wrong = (self.NUM_RIGHT + 2 + step % 4, words[index][1])
            words[index : index + (kind != "insert")] = [] if kind == "leave out" else [wrong]
        tokens = [TIME]
        for token, end in words:
            tokens.append(token)
            is_sentence = (start_frame + end - self.start_frame) % (self.SENTENCE * self.WORD_FRAMES) == 0
            if is_sentence and end < num_frames:
                tokens += [TIME + end // FRAMES_PER_TIMESTAMP] * 2
        return [*tokens, END]
