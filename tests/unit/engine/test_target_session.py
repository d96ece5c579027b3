"""A session on the target: the audio of its next window, and its phase."""

from typing import Any

import pytest

from experiments.common.inline_pair import InlinePair
from experiments.common.models.scripted import MULTILINGUAL, ScriptedModel, recording
from experiments.common.models.speech import SPOKEN_MULTILINGUAL
from specwhisper.audio.recording import Recording
from specwhisper.engine.encodings import AudioSpan
from specwhisper.engine.target_session import Phase, TargetSession
from specwhisper.engine.verifier import Verifier
from specwhisper.live import LiveOptions
from specwhisper.model.choosing import ProbeResult
from specwhisper.options import DecodingOptions
from specwhisper.transcription.live_windows import LiveWindows
from specwhisper.types import SAMPLE_RATE, AudioChunk, Limits, Mode, VoiceMark
from tests.interference import Interference
from tests.live import BEGIN, END, mark
from tests.live_engines import TALK, LivePair, transcribe


def live_session() -> TargetSession:
    options = DecodingOptions.greedy(live=LiveOptions(confirm_every_ms=500))
    return TargetSession(
        id="one",
        slot=0,
        mode=Mode.FULL,
        options=options,
        limits=Limits(),
        recording=Recording(),
        windows=LiveWindows(SPOKEN_MULTILINGUAL, options),
    )


def add_audio(session: TargetSession, end_s: float, *marks: VoiceMark) -> None:
    start = session.recording.received_samples
    session.add_audio(AudioChunk(start, bytes((round(end_s * SAMPLE_RATE) - start) * 2), marks=marks))
    session.update_phase()


GERMAN = ProbeResult(None, {"de": 0.9, "en": 0.1})


def test_a_piece_may_grow_while_its_language_is_detected():
    session = live_session()
    add_audio(session, 0.4, mark(BEGIN, 0))
    assert session.ready_frames is None
    add_audio(session, 0.7)
    assert session.ready_frames == 70 and session.phase is Phase.AWAIT_WINDOW
    session.encoded = AudioSpan(0, 70)
    add_audio(session, 1.2)
    assert session.phase is Phase.DETECT_LANGUAGE
    session.add_language(GERMAN)
    session.update_phase()
    assert session.phase is Phase.AWAIT_WINDOW and session.ready_frames == 120
    assert session.begin_window(120, 0).num_frames == 120


def test_the_whole_piece_decides_about_the_language_of_final_text():
    session = live_session()
    add_audio(session, 0.7, mark(BEGIN, 0))
    session.encoded = AudioSpan(0, 70)
    session.add_language(GERMAN)
    add_audio(session, 1.2, mark(END, 1.0))
    assert session.phase is Phase.AWAIT_WINDOW and session.windows.language is None
    session.encoded = AudioSpan(0, 100)
    session.update_phase()
    assert session.phase is Phase.DETECT_LANGUAGE


@pytest.fixture
def phases(monkeypatch) -> list[Phase]:
    """Check after each message and step that every session's phase is the present one; return them all."""
    seen: list[Phase] = []

    def checked(method: Any) -> Any:
        def call(verifier: Verifier, *args: Any) -> Any:
            result = method(verifier, *args)
            for session in verifier._sessions.values():
                found = session.phase, session.is_runnable, session.can_open
                session.update_phase()
                assert found == (session.phase, session.is_runnable, session.can_open)
                seen.append(session.phase)
            return result

        return call

    for name in ("open", "submit", "step"):
        monkeypatch.setattr(Verifier, name, checked(getattr(Verifier, name)))
    return seen


@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize("hint", ["", "abcdefgh"])
def test_the_phase_is_the_present_one_after_each_change(mode, hint, phases):
    target = ScriptedModel(2, seed=4, vocabulary=MULTILINGUAL)
    draft = ScriptedModel(2, seed=4, error_rate=0.2, vocabulary=MULTILINGUAL)
    edit_block = Interference("garbage", 4, vocabulary_size=len(MULTILINGUAL))
    options = DecodingOptions.greedy(word_timestamps=True, multilingual=True, hint=hint)
    pair = InlinePair(target, draft, mode=mode, edit_block=edit_block, max_num_batched_tokens=20)
    pair.transcribe([recording(33.0), recording(1.0, 1)], options)
    assert {Phase.AWAIT_WINDOW, Phase.ENCODE, Phase.DECODE} <= set(phases)


def test_the_phase_of_live_audio_is_the_present_one_after_each_change(phases):
    options = DecodingOptions.greedy(language="en", live=LiveOptions(confirm_every_ms=500))
    transcribe(LivePair(ScriptedModel(seed=4), ScriptedModel(seed=4, error_rate=0.2)), TALK, options)
    assert {Phase.AWAIT_WINDOW, Phase.ENCODE, Phase.DECODE} <= set(phases)
