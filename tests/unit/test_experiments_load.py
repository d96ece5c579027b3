"""Word errors against load, and that what a live session writes follows from its steps alone."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from experiments.streaming.arms import FULL
from experiments.streaming.listening import Heard, Shown
from experiments.streaming.load import simulated
from experiments.streaming.load.errors import Errors, Load, load_bars, loads_of, num_due, word_error_rate
from experiments.streaming.load.simulated import Clips, Simulated, Slowed, simulated_bars
from experiments.streaming.summary import Taken
from experiments.streaming.takes import SpokenWord, Take
from specwhisper.audio.decode import decode_file
from specwhisper.live import LiveOptions
from specwhisper.model.checkpoint import DEMO_FOLDER
from specwhisper.types import SAMPLE_RATE, DecodedStep
from tests.live import BEGIN, ENDED, PAUSE, Speaker, letters, mark
from tests.live import Heard as Windows

TAKE = Take("a take", b"", tuple(SpokenWord(word, 1.0) for word in (" Hello", " there,", " Bob.")))
LOAD = Load(4, (Errors(0.1, 0.1, 0.0), Errors(0.1, 0.1, 0.2)), 10, 40, (0.5,), 0)


def test_case_and_punctuation_are_no_errors():
    assert word_error_rate(" Hello there, Bob.", "hello There bob") == 0.0
    assert word_error_rate(" Hello there, Bob.", "hello their") == pytest.approx(2 / 3)
    assert word_error_rate("", "hello") == 0.0


def taken(sessions: int, text: str, alone: str | None = None, num_steps: int = 0) -> Taken:
    steps = [DecodedStep(0, SAMPLE_RATE, 1)] * num_steps
    return Taken(0, FULL, TAKE, Heard([Shown(1.0, text, "", "")], steps), sessions, alone)


def test_a_row_compares_with_the_session_that_was_alone(monkeypatch):
    monkeypatch.setattr("experiments.streaming.load.errors.num_due", lambda *_: 4)
    worse = taken(2, " hello their Bob", " hello there Bob", num_steps=1)
    better = taken(2, " Hello there Bob", " Hello there Bob", num_steps=2)
    idle = taken(1, " Hello there Bobby", num_steps=4)
    alone, loaded = loads_of([worse, better, idle], LiveOptions())
    assert (alone.sessions, alone.left_out, alone.added_errors, alone.num_worse) == (1, 0.0, 0.0, 0)
    assert (loaded.sessions, loaded.num_steps, loaded.num_due) == (2, 3, 8)
    assert (loaded.num_worse, loaded.num_different) == (0, 1)
    assert loaded.added_errors == pytest.approx(-1 / 6)
    assert [each.changed for each in loaded.errors] == pytest.approx([2 / 3, 1 / 3])


def test_bars_hold_words_and_steps():
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


FASTEST = Slowed(0.1, 10, 300, 100, 5.0, 0.0)


def test_bars_of_simulated_time_hold_words_and_steps():
    slower = replace(FASTEST, step_s=1.0, num_steps=100, num_errors=6.0, num_changed=9.0)
    good = Simulated((FASTEST, slower), 20, 0)
    assert [bar.holds for bar in simulated_bars(good)] == [True, True]
    assert [bar.holds for bar in simulated_bars(replace(good, num_ambiguous=1))] == [False, True]
    worse = replace(slower, num_errors=8.0)
    assert [bar.holds for bar in simulated_bars(replace(good, paces=(FASTEST, worse)))] == [True, False]


@pytest.mark.nightly
def test_slower_steps_are_fewer_and_their_text_is_the_policys(monkeypatch):
    monkeypatch.setattr(simulated, "NUM_SEEDS", 2)
    pcm = b"".join(decode_file(DEMO_FOLDER / "samples" / "01_phone_call.flac"))[: 4 * SAMPLE_RATE * 2]
    take = Take("a call", pcm, (SpokenWord(" Hello, this is Clara speaking.", 3.0),))
    found = simulated.simulate(Clips("demo-target", "float32"), [take], LiveOptions())
    fastest, *_, slowest = found.paces
    assert slowest.num_steps < fastest.num_steps
    assert (fastest.num_sessions, fastest.num_words, fastest.num_changed) == (2, 10, 0.0)
    assert found.num_ambiguous == 0


NUM_WORDS, BEGIN_S, PAUSE_S, LENGTH_S = 40, 0.5, 16.5, 18.0
MARKS = (  # and when they are known
    (BEGIN_S, mark(BEGIN, BEGIN_S)),
    (PAUSE_S + 0.2, mark(PAUSE, PAUSE_S)),
    (PAUSE_S + 0.5, mark(ENDED, PAUSE_S)),
)


class Session:
    """Live windows over words of 400 ms, whose audio arrives in pieces of some length."""

    def __init__(self, piece_s: float) -> None:
        self.windows = Windows(LiveOptions(trim_ms=6_000))
        self.steps: list[tuple[int, int]] = []
        self._speaker = Speaker(round(BEGIN_S * 100), NUM_WORDS)
        self._piece_s = piece_s
        self._num_pieces = 0

    @property
    def heard_s(self) -> float:
        return self._num_pieces * self._piece_s

    @property
    def next_step(self) -> tuple[int, int] | None:
        """First frame and frames of what would be decoded now."""
        num_frames = self.windows.ready
        return (self.windows.windows.next_frame, num_frames) if num_frames else None

    def hear(self, to_s: float) -> None:
        """Take in all pieces that end by a moment."""
        while self.heard_s < LENGTH_S and self.heard_s + self._piece_s < to_s + 1e-9:
            before_s, self._num_pieces = self.heard_s, self._num_pieces + 1
            marks = [made for at_s, made in MARKS if before_s < at_s <= self.heard_s]
            self.windows.hear(self.heard_s, *marks, is_last=self.heard_s >= LENGTH_S)

    def decode(self, until_s: float) -> None:
        """Decode the step that is ready, while audio goes on."""
        assert self.next_step is not None
        self.steps.append(self.next_step)
        window = self.windows.open()
        # A clip has one text, whoever decodes it, and one a little longer has the same mistake.
        mistake = (window.start_frame + window.num_frames) // 120
        noise = ("mishear", Random(mistake).randrange(50))
        tokens = self._speaker.write(window.start_frame, window.num_frames, mistake, noise)
        self.hear(until_s)
        self.windows.close(tokens)

    @property
    def text(self) -> str:
        assert self.windows.ready == 0, "there is more to decode"
        return letters([*self.windows.told[1]])


def loaded(random: Random, most_s: float) -> Session:
    """A session whose steps take their time, up to so many seconds each."""
    session = Session(0.1)
    while session.windows.ready != 0:
        if session.next_step is None:
            session.hear(session.heard_s + 0.1)
        else:
            session.decode(session.heard_s + random.uniform(0, most_s))
    return session


def replayed(steps: list[tuple[int, int]]) -> Session:
    """A session that decodes just these steps, each as soon as its audio is there."""
    session, due = Session(0.02), list(steps)
    while session.windows.ready != 0:
        if session.next_step is not None and session.next_step == (due[0] if due else session.next_step):
            del due[:1]
            session.decode(session.heard_s)
        elif session.heard_s >= LENGTH_S:
            session.decode(session.heard_s)  # the end, which was known while the last step was decoded
        else:
            session.hear(session.heard_s + 0.02)
    return session


def test_the_text_follows_from_the_steps_alone():
    """However late they were, and in whatever pieces audio and marks arrived."""
    random, texts = Random(0), set()
    for most_s in (0.2, 1.0, 2.0, 4.0) * 10:
        session = loaded(random, most_s)
        assert replayed(session.steps).text == session.text
        texts.add(session.text)
    assert len(texts) > 1, "other steps, other text"
