"""One session on the target: which audio its next window has."""

from __future__ import annotations

from experiments.common.models.speech import SPOKEN_MULTILINGUAL
from specwhisper.audio.recording import Recording
from specwhisper.engine.verifier_state import VerifierState
from specwhisper.live import LiveOptions
from specwhisper.model.choosing import Heard
from specwhisper.options import DecodingOptions
from specwhisper.transcription.live_windows import LiveWindows
from specwhisper.types import SAMPLE_RATE, AudioChunk, Limits, Mode, VoiceMark
from tests.live import BEGIN, mark


def live_session() -> VerifierState:
    options = DecodingOptions(live=LiveOptions())
    return VerifierState(
        id="one",
        slot=0,
        mode=Mode.FULL,
        options=options,
        limits=Limits(),
        recording=Recording(),
        windows=LiveWindows(SPOKEN_MULTILINGUAL, options),
    )


def hear(session: VerifierState, end_s: float, *marks: VoiceMark) -> None:
    start = session.recording.received_samples
    session.hear(AudioChunk(start, bytes((round(end_s * SAMPLE_RATE) - start) * 2), marks=marks))


def test_what_is_heard_for_its_language_is_what_is_decoded_then():
    session = live_session()
    hear(session, 0.7, mark(BEGIN, 0))
    assert session.ready_frames == 50
    hear(session, 1.2)
    assert session.ready_frames == 100  # nobody has listened yet
    session.language_of = session.encoded = (0, 100)
    hear(session, 3.0)
    assert session.ready_frames == 100
    session.detect_language(Heard(None, {"de": 0.9, "en": 0.1}))
    assert session.ready_frames == 100
    assert session.begin_window(session.ready_frames).num_frames == 100
    assert session.language_of is None
