"""For tests of live decoding: tokens as letters, and windows that a test drives."""

from collections.abc import Sequence

from experiments.common.models.scripted import END as END_OF_TEXT
from experiments.common.models.scripted import TIME
from experiments.common.models.speech import NUM_WORDS, SPOKEN
from specwhisper.live import LiveOptions, LivePosition
from specwhisper.options import DecodingOptions
from specwhisper.transcription.live_transcript import LiveTranscript
from specwhisper.transcription.live_windows import LiveWindows
from specwhisper.transcription.windows import ClosedWindow
from specwhisper.types import (
    SAMPLE_RATE,
    AudioChunk,
    Commit,
    Segment,
    VoiceEvent,
    VoiceMark,
    Window,
    WindowOpened,
)

BEGIN, CUT, END = VoiceEvent.BEGIN, VoiceEvent.CUT, VoiceEvent.END


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
    """Live windows of a target, a copy that follows them, and the transcript.

    Attributes
    ----------
    segments : all final text.
    """

    def __init__(
        self,
        live: LiveOptions | None = None,
        vocabulary=SPOKEN,
        position: LivePosition = LivePosition(),  # noqa: B008 (it is frozen)
        **options,
    ) -> None:
        decoding = DecodingOptions.greedy(live=live or LiveOptions(), **options)
        self.windows = LiveWindows(vocabulary, decoding)
        self.follows = LiveWindows(vocabulary, decoding, follows=True)
        for windows in (self.windows, self.follows):
            windows.begin_at(position)
        self.transcript = LiveTranscript(vocabulary, position.next_sample)
        self.received_samples = position.start_sample
        self.segments: list[Segment] = []
        self.opened: Window | None = None

    def append(self, to_s: float, *marks: VoiceMark, is_last: bool = False) -> None:
        """Append audio up to a time, with its marks."""
        chunk = AudioChunk(self.received_samples, b"", is_last, marks)
        self.received_samples = max(self.received_samples, round(to_s * SAMPLE_RATE))
        self.transcript.num_samples = self.received_samples
        for windows in (self.windows, self.follows):
            windows.append_audio(chunk, self.received_samples)

    @property
    def ready(self) -> int | None:
        """Frames of the window that is ready; None before that, 0 after the last one."""
        return self.windows.ready_frames(self)  # type: ignore[arg-type]

    def open(self) -> Window:
        """Open the window that is ready."""
        num_frames = self.ready
        assert num_frames
        self.opened = self.windows.open(num_frames)
        assert self.opened.num_frames == num_frames
        self.follows.on_window_opened(self.opened)
        assert self.transcript.observe(WindowOpened(self.opened)) == []
        return self.opened

    def commit(self, tokens: Sequence[int], base: int = 0) -> None:
        """Commit tokens of the open window after its prefix, the first at ``base``."""
        self._observe(tokens, base)

    def close(
        self, tokens: Sequence[int], *, log_prob: float = -0.1, no_speech_prob: float | None = None
    ) -> ClosedWindow:
        """Close the open window, with all its tokens after the prefix."""
        assert self.opened is not None
        whole = [*self.opened.prefix, *tokens]
        closed = self.windows.close(self.opened, whole, [log_prob] * len(whole), no_speech_prob)
        decided = {"is_final": True, "outcome": closed.outcome, "piece": closed.piece}
        self._observe(tokens, 0, log_prob, no_speech_prob=no_speech_prob, **decided)
        assert self.windows.position == self.follows.position
        assert self.follows.needed_from <= self.windows.needed_from
        return closed

    def _observe(self, tokens: Sequence[int], base: int, log_prob: float = -0.1, **decided) -> None:
        at = len(self.opened.prefix) + base
        commit = Commit(self.opened.id, at, tuple(tokens), (log_prob,) * len(tokens), **decided)
        self.follows.on_commit(commit)
        self.segments += self.transcript.observe(commit)

    def step(self, *parts: str | float, **scores) -> Window:
        """Open the window that is ready, and close it with :func:`token_ids`."""
        window = self.open()
        self.close(token_ids(*parts), **scores)
        return window

    def speak(self, begin_s: float, end_s: float, *parts: str | float, **scores) -> Window:
        """Append an utterance, and decode it."""
        self.append(end_s, mark(BEGIN, begin_s), mark(END, end_s))
        return self.step(*parts, **scores)
