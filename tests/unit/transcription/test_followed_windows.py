"""Windows on the draft's side follow the target's."""

from experiments.common.models.speech import SPOKEN
from specwhisper.options import DecodingOptions
from specwhisper.transcription.live_windows import follow_windows
from specwhisper.types import SAMPLE_RATE, WINDOW_FRAMES, AudioChunk, Commit, CompletePiece, Window
from tests.live import BEGIN, END, mark


def test_marks_and_steps_do_not_affect_a_recording():
    made = follow_windows(SPOKEN, DecodingOptions.greedy())
    made.on_window_opened(Window(0, 100, WINDOW_FRAMES, (SPOKEN.start_of_transcript,), 40))
    made.append_audio(AudioChunk(0, b"", marks=(mark(BEGIN, 3), mark(END, 4))), 10 * SAMPLE_RATE)
    made.on_commit(Commit(0, 0, (), piece=CompletePiece(1, 0, True)))
    assert made.needed_from == SAMPLE_RATE
