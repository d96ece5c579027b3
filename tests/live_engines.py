"""Draft and target of live audio in one process, fed by hand, and a model that hears words in noise."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from specwhisper.audio.recording import CONTEXT_SAMPLES, Recording
from specwhisper.live import LiveOptions
from specwhisper.options import DecodingOptions
from specwhisper.speculation.draft_length import DraftLength
from specwhisper.transcription.live_transcript import LiveTranscript
from specwhisper.types import (
    FRAMES_PER_TIMESTAMP,
    HOP_SAMPLES,
    SAMPLE_RATE,
    AudioChunk,
    Candidates,
    Commit,
    Failed,
    Finished,
    Mode,
    Segment,
    VoiceMark,
    Window,
    WindowOpened,
)
from specwhisper.whisper.choosing import Row, Scores
from specwhisper.whisper.drafter import Drafter
from specwhisper.whisper.drafter_session import Drafted
from specwhisper.whisper.one_process import InlineExecutor
from specwhisper.whisper.verifier import Verifier
from tests.live import SPOKEN
from tests.scripted import END, NUM_TEXT, TIME, ScriptedModel

WORD_SAMPLES = SAMPLE_RATE // 5
SENTENCE_WORDS = 5
QUIETEST, LOUDER = 2_000, 400  # of s16, by token
TOLERANCE_SAMPLES = SAMPLE_RATE // 50  # times are written to 20 ms: a cut leaves no more of the word before


def speech(length_s: float, seed: int = 0) -> bytes:
    """Words of 200 ms, each of a loudness of its own, so that they are heard wherever a clip begins."""
    num_samples = round(length_s * SAMPLE_RATE)
    steps = np.random.default_rng(seed).integers(1, NUM_TEXT, num_samples // WORD_SAMPLES + 1)
    words = np.cumsum(steps) % NUM_TEXT  # never the same one twice in a row
    loudness = np.repeat(QUIETEST + LOUDER * words, WORD_SAMPLES)[:num_samples]
    return (loudness * np.where(np.arange(num_samples) % 2, 1, -1)).astype("<i2").tobytes()


class SpeakingModel(ScriptedModel):
    """Hears the words of :func:`speech`, and something else where the last one is cut off.

    Like a speech model it writes the same words again when it hears more; like the scripted one it notices
    whatever else is fed to it than its own text.
    """

    def __init__(self, num_slots: int = 1, *, vocabulary=SPOKEN, max_positions: int = 448, **kwargs) -> None:
        super().__init__(num_slots, vocabulary=vocabulary, max_positions=max_positions, **kwargs)
        self._texts: dict[str, list[int]] = {}

    def encode(self, slot: int, recording: Recording, start_frame: int) -> None:
        super().encode(slot, recording, start_frame)
        assert start_frame == 0 and recording.is_complete, "live audio is heard as clips"
        pcm = recording.window_samples(0)[CONTEXT_SAMPLES:][: recording.received_samples]
        self._texts[self._audio[slot]] = words_of(pcm)

    def next_token(self, audio, prefix, sampling=None) -> int:
        text = self._texts[audio]
        start = len(prefix) - 1 - prefix[::-1].index(self.vocabulary.start_of_transcript)
        generated = [token for token in prefix[start + 1 :] if not END < token < TIME]
        wrong = self._hash("error", self._seed, audio, prefix) % 1000 < 1000 * self._error_rate
        if wrong or sampling is not None or generated != text[: len(generated)]:
            return super().next_token(audio, prefix, sampling)
        return text[len(generated)] if len(generated) < len(text) else END

    def attended_ms(self, slot, window, tokens, num_frames) -> tuple[float, ...]:
        super().attended_ms(slot, window, tokens, num_frames)
        return tuple(200.0 * i for i, _ in enumerate((t for t in tokens if t < END), start=1))

    def _score(self, row: Row) -> Scores:
        assert row.probe is None or not self._fed[row.slot], "what is probed must stand first in its slot"
        return super()._score(row)


def words_of(samples: np.ndarray) -> list[int]:
    """What the model writes of a clip, times included."""
    loudness = np.round(np.abs(samples) * 32_768).astype(int)
    ends = [*(np.flatnonzero(np.diff(loudness)) + 1).tolist(), len(loudness)]
    tokens, start, num_words = [TIME], 0, 0
    for end in ends:
        length, begin, start = end - start, start, end
        is_cut = end == len(loudness) and length < WORD_SAMPLES - TOLERANCE_SAMPLES
        if not loudness[begin] or (length < TOLERANCE_SAMPLES and (begin == 0 or is_cut)):
            continue
        word = (loudness[begin] - QUIETEST) // LOUDER
        tokens.append(int(word + 7 + length // 1_000 if is_cut else word) % NUM_TEXT)
        num_words += 1
        if num_words % SENTENCE_WORDS == 0 and end < len(loudness):
            tokens += [TIME + round(end / HOP_SAMPLES / FRAMES_PER_TIMESTAMP)] * 2
    return [*tokens, END]


@dataclass(eq=False)
class LiveSession:
    """What came of a session.

    Attributes
    ----------
    windows : each that was opened, and its tokens.
    positions : where another session would go on, with each segment.
    """

    transcript: LiveTranscript
    windows: list[tuple[Window, list[int]]] = field(default_factory=list)
    segments: list[Segment] = field(default_factory=list)
    positions: list[LiveOptions] = field(default_factory=list)
    is_finished: bool = False

    @property
    def texts(self) -> dict[int, list[int]]:
        """Final text, by utterance."""
        texts: dict[int, list[int]] = {}
        for segment in self.segments:
            texts.setdefault(segment.utterance, []).extend(i for i in segment.tokens if i < END)
        return texts

    @property
    def spans(self) -> list[tuple[int, int]]:
        """Where the windows lie, in frames."""
        return [(window.start_frame, window.start_frame + window.num_frames) for window, _ in self.windows]


class LivePair:
    """Both engines, wired to each other; time passes only where everybody waits."""

    def __init__(
        self,
        target: ScriptedModel,
        draft: ScriptedModel | None = None,
        *,
        mode: Mode = Mode.FULL,
        gamma: int = 4,
        runs_ahead: bool = True,
        edit_block: Callable[[Candidates], Sequence[Candidates]] = lambda block: (block,),
    ) -> None:
        self._mode = mode if draft is not None else Mode.TARGET_ONLY
        self._gamma = gamma
        self._edit_block = edit_block
        self._now_ns = 1
        executor = InlineExecutor()
        self.verifier = Verifier(target, executor=executor, clock=lambda: self._now_ns)
        self.drafter = Drafter(
            draft or target, executor=executor, clock=lambda: self._now_ns, runs_ahead=runs_ahead
        )
        self.sessions: dict[str, LiveSession] = {}

    def open(self, name: str, options: DecodingOptions) -> LiveSession:
        live = options.live
        assert live is not None
        self.verifier.open(name, self._mode, options)
        if self._mode.drafts:
            length = DraftLength.of(self._mode, self._gamma, 4, None)
            credit = self.verifier.limits.max_ahead_tokens
            self.drafter.open(name, length, options, max_ahead_tokens=credit)
        transcript = LiveTranscript(self.verifier._model.vocabulary, live.position)
        self.sessions[name] = LiveSession(transcript)
        return self.sessions[name]

    def hear(self, name: str, pcm: bytes, *marks: VoiceMark, is_last: bool = False) -> None:
        """Give both a piece of audio, the draft first."""
        transcript = self.sessions[name].transcript
        chunk = AudioChunk(transcript.num_samples, pcm, is_last, marks)
        transcript.num_samples += len(pcm) // 2
        if self._mode.drafts:
            self.drafter.submit(name, chunk)
        self.verifier.submit(name, chunk)

    def advance(self) -> bool:
        """Let the draft go as far as it may, and the target make a step; tell whether anything was done."""
        has_drafted = self.drafter.has_work
        while self.drafter.has_work:
            for name, drafted in self.drafter.step():
                self._propose(name, drafted)
        has_worked = self.verifier.has_work
        for name, event in self.verifier.step():
            self._follow(name, event)
        if not (has_drafted or has_worked) and (waits_s := self.verifier.holds_for_s):
            self._now_ns += round(waits_s * 1e9) + 1
            return True
        return has_drafted or has_worked

    def settle(self) -> None:
        """Go on until everybody waits for audio."""
        while self.advance():
            pass

    def _propose(self, name: str, drafted: Drafted | Failed) -> None:
        if isinstance(drafted, Failed):
            raise drafted.error
        transcript = self.sessions[name].transcript
        if drafted.belief is not None:
            transcript.believe(drafted.belief.window, drafted.belief.tokens)
        if drafted.candidates is not None:
            transcript.observe(drafted.candidates)
            for block in self._edit_block(drafted.candidates):
                self.verifier.submit(name, block)

    def _follow(self, name: str, event: WindowOpened | Commit | Finished | Failed) -> None:
        session = self.sessions[name]
        match event:
            case Failed(error):
                raise error
            case Finished():
                session.is_finished = True
                self.verifier.close(name)
                self.drafter.close(name)
                return
            case WindowOpened(window=window):
                session.windows.append((window, []))
            case Commit():
                session.windows[-1][1].extend(event.tokens)
        segments = session.transcript.observe(event)
        session.segments += segments
        session.positions += [session.transcript.position] * len(segments)
        self.drafter.submit(name, event)


def plain_text(model: ScriptedModel, pcm: bytes, window: Window) -> list[int]:
    """Decode a window by itself, token by token, from nothing but its clip and its prompt."""
    clip = Recording()
    start = window.start_sample * 2
    clip.append(AudioChunk(0, pcm[start : start + window.num_frames * HOP_SAMPLES * 2], is_last=True))
    model.encode(0, clip, 0)
    tokens: list[int] = []
    while len(tokens) < window.max_new_tokens and tokens[-1:] != [END]:
        tokens.append(model.next_token(model._audio[0], [*window.prompt, *tokens]))
    return tokens
