"""Live sessions in simulated time, with steps as slow as those of a loaded target."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from random import Random

from rich.console import Console
from rich.table import Table

from experiments.common.bench.report import Bar
from experiments.streaming.live_client import DECODING, pieces
from experiments.streaming.load.errors import MAX_ADDED_ERRORS, word_error_rate
from experiments.streaming.measures import normalised
from experiments.streaming.takes import Take
from specwhisper.audio.canonical import BYTES_PER_SAMPLE
from specwhisper.audio.recording import Recording
from specwhisper.engine.inline_pair import InlineExecutor
from specwhisper.engine.verifier import Verifier
from specwhisper.live import EndpointingOptions, LiveOptions
from specwhisper.model.checkpoints.checkpoint import load_checkpoint
from specwhisper.model.model import WhisperModel
from specwhisper.transcription.live.windows import LiveWindows
from specwhisper.types import (
    HOP_SAMPLES,
    AudioChunk,
    Commit,
    Failed,
    Finished,
    Mode,
    VoiceEvent,
    VoiceMark,
    Window,
)
from specwhisper_draft_server.voice_activity import VoiceActivity

STEPS_S = (0.1, 0.3, 0.6, 1.0, 1.5, 2.5, 4.0)  # means; each step takes 0.5 to 1.5 times its mean
NUM_SEEDS = 10
FRAME_BYTES = HOP_SAMPLES * BYTES_PER_SAMPLE
SESSION = "clip"


@dataclass(frozen=True, slots=True)
class SessionResult:
    """Text of a session, and first frame and number of frames of its steps."""

    text: str
    steps: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Pace:
    """Figures of sessions with a mean time of steps.

    Attributes
    ----------
    num_errors : word errors of ``num_words`` against the target's text of the whole take.
    num_changed : word errors against the text of the fastest steps.
    """

    step_s: float
    num_sessions: int
    num_steps: int
    num_words: int
    num_errors: float
    num_changed: float

    @property
    def error_rate(self) -> float:
        """Word error rate."""
        return self.num_errors / max(1, self.num_words)


class Clips:
    """The target's text of clips, each decoded once."""

    def __init__(self, target: str, dtype: str) -> None:
        checkpoint = load_checkpoint(target, dtype=dtype)
        self.vocabulary = checkpoint.vocabulary
        self.max_new_tokens = checkpoint.max_new_tokens
        self._verifier = Verifier(
            WhisperModel(checkpoint, 1), executor=InlineExecutor(), max_new_tokens=self.max_new_tokens
        )
        self._decoded: dict[tuple[str, int, int, int], Sequence[Commit]] = {}

    def decode(self, take: Take, window: Window) -> Sequence[Commit]:
        """Return the commits of a window within one utterance."""
        key = (take.name, window.start_frame, window.num_frames, window.max_new_tokens)
        if key not in self._decoded:
            end_frame = window.start_frame + window.num_frames
            whole = b"".join(pcm for _, pcm in pieces(take.pcm))
            clip = whole[window.start_frame * FRAME_BYTES : end_frame * FRAME_BYTES]
            self._decoded[key] = self._decode(clip)
        return self._decoded[key]

    def _decode(self, pcm: bytes) -> Sequence[Commit]:
        begin = (VoiceMark(VoiceEvent.BEGIN, 0),)  # must be known before the rest arrives
        self._verifier.open(SESSION, Mode.TARGET_ONLY, replace(DECODING, live=LiveOptions()))
        self._verifier.submit(SESSION, AudioChunk(0, pcm[:FRAME_BYTES], marks=begin))
        self._verifier.submit(SESSION, AudioChunk(HOP_SAMPLES, pcm[FRAME_BYTES:], is_last=True))
        commits: list[Commit] = []
        while True:
            for _, event in self._verifier.step():
                match event:
                    case Failed():
                        raise event.error
                    case Finished():
                        self._verifier.close(SESSION)
                        return commits
                    case Commit() if event.window_id == 0:
                        commits.append(event)


class _Session:
    """A live session in simulated time."""

    def __init__(self, clips: Clips, take: Take, live: LiveOptions) -> None:
        self._clips, self._take = clips, take
        self._windows = LiveWindows(
            clips.vocabulary, replace(DECODING, live=live), max_new_tokens=clips.max_new_tokens
        )
        self._recording = Recording()
        self._pending = list(_chunks(take))[::-1]
        self._now_s = 0.0
        self._final: list[int] = []
        self._steps: list[tuple[int, int]] = []

    def run(self, step_s: float, random: Random) -> SessionResult:
        while num_frames := self._wait():
            self._decode(num_frames, step_s * random.uniform(0.5, 1.5))
        return SessionResult(self._clips.vocabulary.decode(self._final), tuple(self._steps))

    def _wait(self) -> int:
        """Append audio until a step is ready; return its number of frames, 0 at the end."""
        while (num_frames := self._windows.ready_frames(self._recording)) is None:
            self._append_audio(self._pending[-1][0])
        return num_frames

    def _append_audio(self, until_s: float) -> None:
        self._now_s = until_s
        while self._pending and self._pending[-1][0] <= until_s:
            _, chunk = self._pending.pop()
            self._recording.append(chunk)
            self._windows.append_audio(chunk, self._recording.received_samples)

    def _decode(self, num_frames: int, duration_s: float) -> None:
        window = self._windows.open(num_frames)
        self._steps.append((window.start_frame, num_frames))
        commits = self._clips.decode(self._take, window)
        self._append_audio(self._now_s + duration_s)
        tokens = [token for commit in commits for token in commit.tokens]
        log_probs = [log_prob for commit in commits for log_prob in commit.log_probs]
        closed = self._windows.close(window, tokens, log_probs, commits[0].no_speech_prob)
        if closed.step is not None:
            fresh = tokens[closed.step.final_start : closed.step.final_end]
            self._final += [token for token in fresh if token < self._clips.vocabulary.end_of_text]


def simulate_session(
    clips: Clips, take: Take, live: LiveOptions, step_s: float, random: Random
) -> SessionResult:
    """Simulate a take on a target whose steps take 0.5 to 1.5 times ``step_s`` seconds."""
    return _Session(clips, take, live).run(step_s, random)


@cache
def _chunks(take: Take) -> Sequence[tuple[float, AudioChunk]]:
    """Return a take's audio chunks and marks, each with its time of arrival in seconds."""
    voice, cut = VoiceActivity(EndpointingOptions()), pieces(take.pcm)
    chunks, num_samples = [], 0
    for number, (end_s, pcm) in enumerate(cut, start=1):
        marks = asyncio.run(voice.detect(pcm))
        chunks.append((end_s, AudioChunk(num_samples, pcm, is_last=number == len(cut), marks=marks)))
        num_samples += len(pcm) // 2
    return chunks


@dataclass(frozen=True, slots=True)
class Simulated:
    """Figures of every mean time of steps.

    Attributes
    ----------
    num_lists : number of distinct lists of steps.
    num_ambiguous : lists for which sessions wrote different texts.
    """

    paces: tuple[Pace, ...]
    num_lists: int
    num_ambiguous: int


def simulate(clips: Clips, takes: Iterable[Take], live: LiveOptions) -> Simulated:
    """Simulate each take at every pace with :data:`NUM_SEEDS` seeds."""
    paces = {step_s: Pace(step_s, 0, 0, 0, 0.0, 0.0) for step_s in STEPS_S}
    texts: dict[tuple[str, tuple[tuple[int, int], ...]], set[str]] = {}
    for take in takes:
        spoken = "".join(word.text for word in take.words)
        num_words = len(normalised(spoken))
        fastest = simulate_session(clips, take, live, STEPS_S[0], Random(0)).text
        for step_s, seed in product(STEPS_S, range(NUM_SEEDS)):
            session = simulate_session(clips, take, live, step_s, Random(f"{step_s} {seed}"))
            texts.setdefault((take.name, session.steps), set()).add(session.text)
            before = paces[step_s]
            paces[step_s] = Pace(
                step_s,
                before.num_sessions + 1,
                before.num_steps + len(session.steps),
                before.num_words + num_words,
                before.num_errors + num_words * word_error_rate(spoken, session.text),
                before.num_changed + num_words * word_error_rate(fastest, session.text),
            )
    return Simulated(tuple(paces.values()), len(texts), sum(len(found) > 1 for found in texts.values()))


def simulated_bars(simulated: Simulated) -> list[Bar]:
    """Return the bars of simulated sessions."""
    fastest, *slower = simulated.paces
    added = max(pace.error_rate - fastest.error_rate for pace in slower)
    return [
        Bar(
            "simulated: lists of steps with several texts",
            simulated.num_ambiguous,
            1,
            f"{simulated.num_ambiguous} of {simulated.num_lists}",
        ),
        Bar(
            "simulated: word error rate above that of the fastest steps",
            added,
            MAX_ADDED_ERRORS,
            f"{added:+.3f} at most",
        ),
    ]


def print_simulated(simulated: Simulated, console: Console) -> None:
    """Print a table with a row per pace."""
    table = Table(title="In simulated time", title_justify="left")
    for heading in ("mean step, s", "sessions", "steps decoded", "WER", "words other than fastest"):
        table.add_column(heading, justify="right")
    for pace in simulated.paces:
        table.add_row(
            f"{pace.step_s:g}",
            str(pace.num_sessions),
            str(pace.num_steps),
            f"{pace.error_rate:.1%}",
            f"{pace.num_changed / max(1, pace.num_words):.1%}",
        )
    console.print(table)
