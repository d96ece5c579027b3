"""A session on the target: the audio of its next window."""

from __future__ import annotations

from experiments.common.models.speech import SPOKEN_MULTILINGUAL
from specwhisper.audio.recording import Recording
from specwhisper.engine.encodings import AudioSpan
from specwhisper.engine.target_session import Phase, TargetSession
from specwhisper.live import LiveOptions
from specwhisper.model.choosing import ProbeResult
from specwhisper.options import DecodingOptions
from specwhisper.transcription.live.windows import LiveWindows
from specwhisper.types import SAMPLE_RATE, AudioChunk, Limits, Mode, VoiceMark
from tests.live import BEGIN, END, mark


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
