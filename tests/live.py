"""What tests of live decoding share: a vocabulary with words, and windows that are driven by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from specwhisper.live import LiveOptions
from specwhisper.options import DecodingOptions
from specwhisper.transcription.live_windows import LiveWindows
from specwhisper.transcription.windows import ClosedWindow
from specwhisper.types import SAMPLE_RATE, AudioChunk, VoiceEvent, VoiceMark, Window
from tests.scripted import END, MULTILINGUAL, NUM_TEXT, TIME, VOCABULARY

NUM_WORDS = 18  # tokens that begin a word, A to R; those behind them go on with one, s to x
SPOKEN = replace(
    VOCABULARY,
    tokens=(
        *(("Ġ" if i < NUM_WORDS else "") + chr(ord("a") + i) for i in range(NUM_TEXT)),
        *VOCABULARY.tokens[NUM_TEXT:],
    ),
    max_length=448,
)
SPOKEN_MULTILINGUAL = replace(SPOKEN, languages=MULTILINGUAL.languages, tasks=MULTILINGUAL.tasks)
BEGIN, PAUSE, ENDED = VoiceEvent.BEGIN, VoiceEvent.PAUSE, VoiceEvent.END


def said(*parts: str | float) -> tuple[int, ...]:
    """Write tokens: a letter each, times as seconds, ``.`` for end-of-text."""
    tokens: list[int] = []
    for part in parts:
        if isinstance(part, str):
            letters = part.replace(" ", "")
            tokens += [END if letter == "." else ord(letter.lower()) - ord("a") for letter in letters]
        else:
            tokens.append(TIME + round(part / 0.02))
    return tuple(tokens)


def letters(tokens: Sequence[int]) -> str:
    """Read text tokens as :func:`said` writes them, those that begin a word as capitals."""
    text = (chr(ord("A" if i < NUM_WORDS else "a") + i) for i in tokens if i < END)
    return "".join(text)


def mark(event: VoiceEvent, seconds: float) -> VoiceMark:
    return VoiceMark(event, round(seconds * SAMPLE_RATE))


class Heard:
    """Live windows, the audio they hear, and all that they have settled.

    Attributes
    ----------
    told : text that became final, by utterance.
    """

    def __init__(self, live: LiveOptions | None = None, vocabulary=SPOKEN, **options) -> None:
        live = live or LiveOptions()
        self.windows = LiveWindows(vocabulary, DecodingOptions(live=live, **options))
        self.received_samples = live.start_sample
        self.told: dict[int, list[int]] = {}
        self.opened: Window | None = None

    def hear(self, to_s: float, *marks: VoiceMark, is_last: bool = False) -> None:
        """Take in audio up to a moment, and what is marked in it."""
        chunk = AudioChunk(self.received_samples, b"", is_last, marks)
        self.received_samples = max(self.received_samples, round(to_s * SAMPLE_RATE))
        self.windows.hear(chunk, self.received_samples)

    @property
    def ready(self) -> int | None:
        return self.windows.ready_frames(self)  # type: ignore[arg-type]

    def open(self) -> Window:
        """Open the window that is ready."""
        num_frames = self.ready
        assert num_frames
        self.opened = self.windows.open(num_frames)
        return self.opened

    def close(self, tokens: Sequence[int], **judged) -> ClosedWindow:
        """Close the open window."""
        assert self.opened is not None
        closed = self.windows.close(self.opened, tokens, **judged)
        if closed.step is not None:
            final = tokens[closed.step.final_start : closed.step.final_end]
            self.told.setdefault(closed.step.utterance, []).extend(i for i in final if i < END)
        return closed

    def step(self, *parts: str | float, **judged) -> ClosedWindow:
        """Open the window that is ready, and close it with what is said in it."""
        self.open()
        return self.close(said(*parts), **judged)

    def text(self, utterance: int = 1) -> str:
        return letters(self.told.get(utterance, []))
