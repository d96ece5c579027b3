"""Word errors under load; a live session's text depends on its steps only."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from experiments.streaming.arms import FULL
from experiments.streaming.live_client import LiveResult, Shown
from experiments.streaming.load import simulated
from experiments.streaming.load.errors import Errors, Load, load_bars, loads_of, num_due, word_error_rate
from experiments.streaming.load.simulated import Clips, Pace, Simulated, simulated_bars
from experiments.streaming.summary import Measured
from experiments.streaming.takes import SpokenWord, Take
from specwhisper.audio.decode import decode_file
from specwhisper.live import LiveOptions
from specwhisper.model.checkpoints.names import DEMO_FOLDER
from specwhisper.types import SAMPLE_RATE, DecodedStep
from tests.live import BEGIN, ENDED, ScriptedWindows, Speaker, letters, mark

TAKE = Take("a take", b"", tuple(SpokenWord(word, 1.0) for word in (" Hello", " there,", " Bob.")))
LOAD = Load(4, (Errors(0.1, 0.1, 0.0), Errors(0.1, 0.1, 0.2)), 10, 40, (0.5,), 0)


def test_case_and_punctuation_do_not_count_as_errors():
    assert word_error_rate(" Hello there, Bob.", "hello There bob") == 0.0
    assert word_error_rate(" Hello there, Bob.", "hello their") == pytest.approx(2 / 3)
    assert word_error_rate("", "hello") == 0.0


def measured(sessions: int, text: str, target_only: str | None = None, num_steps: int = 0) -> Measured:
    steps = [DecodedStep(0, SAMPLE_RATE, 1)] * num_steps
    return Measured(0, FULL, TAKE, LiveResult([Shown(1.0, text, "", "")], steps), sessions, target_only)


def test_a_row_compares_with_the_session_without_load(monkeypatch):
    monkeypatch.setattr("experiments.streaming.load.errors.num_due", lambda *_: 4)
    worse = measured(2, " hello their Bob", " hello there Bob", num_steps=1)
    better = measured(2, " Hello there Bob", " Hello there Bob", num_steps=2)
    unloaded = measured(1, " Hello there Bobby", num_steps=4)
    single, loaded = loads_of([worse, better, unloaded], LiveOptions())
    assert (single.sessions, single.skipped, single.added_errors, single.num_worse) == (1, 0.0, 0.0, 0)
    assert (loaded.sessions, loaded.num_steps, loaded.num_due) == (2, 3, 8)
    assert (loaded.num_worse, loaded.num_different) == (0, 1)
    assert loaded.added_errors == pytest.approx(-1 / 6)
    assert [each.changed for each in loaded.errors] == pytest.approx([2 / 3, 1 / 3])


def test_bars_check_words_and_steps():
    assert all(bar.holds for bar in load_bars([replace(LOAD, sessions=1), LOAD]))
    (different, errors) = load_bars([replace(LOAD, num_different=1)])
    assert (different.holds, errors.holds) == (False, True)
    worse = replace(LOAD, errors=(Errors(0.2, 0.1, 0.1),))
    assert [bar.holds for bar in load_bars([worse])] == [True, False]


def test_a_target_without_delay_decodes_every_half_second_and_every_pause():
    pcm = b"".join(decode_file(DEMO_FOLDER / "samples" / "01_phone_call.flac"))
    take = Take("a call", pcm, ())
    every, seldom = (num_due(take, LiveOptions(step_ms=step_ms)) for step_ms in (500, 2_000))
    assert len(pcm) / 2 / SAMPLE_RATE * 2 * 0.7 < every < len(pcm) / 2 / SAMPLE_RATE * 2 + 15
    assert seldom < every


FASTEST = Pace(0.1, 10, 300, 100, 5.0, 0.0)


def test_simulated_bars_check_words_and_steps():
    slower = replace(FASTEST, step_s=1.0, num_steps=100, num_errors=6.0, num_changed=9.0)
    good = Simulated((FASTEST, slower), 20, 0)
    assert [bar.holds for bar in simulated_bars(good)] == [True, True]
    assert [bar.holds for bar in simulated_bars(replace(good, num_ambiguous=1))] == [False, True]
    worse = replace(slower, num_errors=8.0)
    assert [bar.holds for bar in simulated_bars(replace(good, paces=(FASTEST, worse)))] == [True, False]


@pytest.mark.nightly
def test_slower_steps_are_fewer_and_determine_the_text(monkeypatch):
    monkeypatch.setattr(simulated, "NUM_SEEDS", 2)
    pcm = b"".join(decode_file(DEMO_FOLDER / "samples" / "01_phone_call.flac"))[: 4 * SAMPLE_RATE * 2]
    take = Take("a call", pcm, (SpokenWord(" Hello, this is Clara speaking.", 3.0),))
    found = simulated.simulate(Clips("demo-target", "float32"), [take], LiveOptions())
    fastest, *_, slowest = found.paces
    assert slowest.num_steps < fastest.num_steps
    assert (fastest.num_sessions, fastest.num_words, fastest.num_changed) == (2, 10, 0.0)
    assert found.num_ambiguous == 0


NUM_WORDS, BEGIN_S, PAUSE_S, LENGTH_S = 40, 0.5, 16.5, 18.0
MARKS = (  # with the times at which they are known
    (BEGIN_S, mark(BEGIN, BEGIN_S)),
    (PAUSE_S + 0.5, mark(ENDED, PAUSE_S)),
)


class Session:
    """Live windows over words of 400 ms, whose audio arrives in pieces of some length."""

    def __init__(self, piece_s: float) -> None:
        self.windows = ScriptedWindows(LiveOptions(trim_ms=6_000))
        self.steps: list[tuple[int, int]] = []
        self._speaker = Speaker(round(BEGIN_S * 100), NUM_WORDS)
        self._piece_s = piece_s
        self._num_pieces = 0

    @property
    def received_s(self) -> float:
        return self._num_pieces * self._piece_s

    @property
    def next_step(self) -> tuple[int, int] | None:
        """First frame and number of frames of the step that is ready."""
        num_frames = self.windows.ready
        return (self.windows.windows.next_frame, num_frames) if num_frames else None

    def append_until(self, to_s: float) -> None:
        """Append all pieces that end by a moment."""
        while self.received_s < LENGTH_S and self.received_s + self._piece_s < to_s + 1e-9:
            before_s, self._num_pieces = self.received_s, self._num_pieces + 1
            marks = [made for at_s, made in MARKS if before_s < at_s <= self.received_s]
            self.windows.append(self.received_s, *marks, is_last=self.received_s >= LENGTH_S)

    def decode(self, until_s: float) -> None:
        """Decode the step that is ready, while audio continues."""
        assert self.next_step is not None
        self.steps.append(self.next_step)
        window = self.windows.open()
        # A clip has one text; one a little longer has the same mistake.
        mistake = (window.start_frame + window.num_frames) // 120
        noise = ("mishear", Random(mistake).randrange(50))
        tokens = self._speaker.write(window.start_frame, window.num_frames, mistake, noise)
        self.append_until(until_s)
        self.windows.close(tokens)

    @property
    def text(self) -> str:
        assert self.windows.ready == 0, "all steps must be decoded"
        return letters([*self.windows.final[1]])


def loaded(random: Random, most_s: float) -> Session:
    """Run a session whose steps take up to ``most_s`` seconds each."""
    session = Session(0.1)
    while session.windows.ready != 0:
        if session.next_step is None:
            session.append_until(session.received_s + 0.1)
        else:
            session.decode(session.received_s + random.uniform(0, most_s))
    return session


def replayed(steps: list[tuple[int, int]]) -> Session:
    """Run a session with exactly these steps, each as soon as its audio has arrived."""
    session, due = Session(0.02), list(steps)
    while session.windows.ready != 0:
        if session.next_step is not None and session.next_step == (due[0] if due else session.next_step):
            del due[:1]
            session.decode(session.received_s)
        elif session.received_s >= LENGTH_S:
            session.decode(session.received_s)  # the end became known while the last step was decoded
        else:
            session.append_until(session.received_s + 0.02)
    return session


def test_the_text_depends_on_the_steps_only():
    """Delays and sizes of audio pieces have no effect."""
    random, texts = Random(0), set()
    for most_s in (0.2, 1.0, 2.0, 4.0) * 10:
        session = loaded(random, most_s)
        assert replayed(session.steps).text == session.text
        texts.add(session.text)
    assert len(texts) > 1, "other steps, other text"
