"""A session on the target: the audio of its next window."""

from __future__ import annotations

from experiments.common.models.speech import SPOKEN_MULTILINGUAL
from specwhisper.audio.recording import Recording
from specwhisper.engine.encodings import AudioSpan
from specwhisper.engine.phases import Phase
from specwhisper.engine.verifier_state import VerifierState
from specwhisper.live import LiveOptions
from specwhisper.model.choosing import ProbeResult
from specwhisper.options import DecodingOptions
from specwhisper.transcription.live.windows import LiveWindows
from specwhisper.types import SAMPLE_RATE, AudioChunk, Limits, Mode, VoiceMark
from tests.live import BEGIN, mark


def live_session() -> VerifierState:
    options = DecodingOptions.greedy(live=LiveOptions())
    return VerifierState(
        id="one",
        slot=0,
        mode=Mode.FULL,
        options=options,
        limits=Limits(),
        recording=Recording(),
        windows=LiveWindows(SPOKEN_MULTILINGUAL, options),
    )


def append_audio(session: VerifierState, end_s: float, *marks: VoiceMark) -> None:
    start = session.recording.received_samples
    session.append_audio(AudioChunk(start, bytes((round(end_s * SAMPLE_RATE) - start) * 2), marks=marks))


def test_the_first_window_decodes_the_audio_of_its_language_detection():
    session = live_session()
    append_audio(session, 0.7, mark(BEGIN, 0))
    assert session.ready_frames == 50
    append_audio(session, 1.2)
    assert session.ready_frames == 100  # the detection has not begun
    session.detection_span = session.encoded = AudioSpan(0, 100)
    assert session.phase is Phase.DETECT_LANGUAGE
    append_audio(session, 3.0)
    assert session.ready_frames == 100
    session.detect_language(ProbeResult(None, {"de": 0.9, "en": 0.1}))
    assert session.phase is Phase.AWAIT_WINDOW and session.ready_frames == 100
    assert session.begin_window(session.ready_frames, 0).window.num_frames == 100
    assert session.phase is Phase.DECODE and session.detection_span is None
