"""Audio that waits for a recogniser comes out whole, in the pieces that it asks for."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specwhisper.types import SAMPLE_RATE, AudioChunk, VoiceEvent, VoiceMark
from specwhisper_recognisers.recognising import WaitingAudio


def audio(num_samples: int, start_sample: int = 0) -> bytes:
    return np.arange(start_sample, start_sample + num_samples).astype("<i2").tobytes()


def chunk(start_sample: int, num_samples: int, *pauses: int, is_last: bool = False) -> AudioChunk:
    marks = tuple(VoiceMark(VoiceEvent.END, sample) for sample in pauses)
    return AudioChunk(start_sample, audio(num_samples, start_sample), is_last, marks)


def taken(waiting: WaitingAudio) -> list[tuple[int, int, bool, bool]]:
    pieces = []
    while (piece := waiting.take()) is not None:
        assert piece.pcm == audio(piece.num_samples, piece.start_sample)
        pieces.append((piece.start_sample, piece.end_sample, piece.is_pause, piece.is_last))
    return pieces


S = SAMPLE_RATE


@pytest.mark.parametrize(
    ("piece_s", "chunks", "expected"),
    [
        pytest.param(None, [chunk(0, 100)], [(0, 100, False, False)], id="whatever has arrived"),
        pytest.param(
            None, [chunk(0, S + 1)], [(0, S, False, False), (S, S + 1, False, False)], id="a second"
        ),
        pytest.param(1.0, [chunk(0, S - 1)], [], id="waits for more"),
        pytest.param(0.5, [chunk(0, S)], [(0, S // 2, False, False), (S // 2, S, False, False)], id="cut"),
        pytest.param(1.0, [chunk(0, 100, is_last=True)], [(0, 100, False, True)], id="the rest"),
        pytest.param(1.0, [chunk(5, 100, 2)], [(5, 105, True, False)], id="a pause that is known late"),
        pytest.param(1.0, [chunk(5, 0, 5)], [(5, 5, True, False)], id="without audio"),
        pytest.param(
            1.0, [chunk(0, 9, 0), chunk(9, 0, 9, is_last=True)], [(0, 9, True, True)], id="at the end"
        ),
    ],
)
def test_pieces(piece_s, chunks, expected):
    waiting = WaitingAudio(piece_s)
    for each in chunks:
        waiting.append(each)
    assert taken(waiting) == expected


def test_pauses_in_skipped_audio_are_forgotten():
    waiting = WaitingAudio(1.0)
    waiting.append(chunk(0, 100, 40))
    waiting.append(chunk(100, 100, 150))
    waiting.skip_to(50)
    waiting.skip_to(20)
    assert taken(waiting) == [(50, 150, True, False)]
    waiting.skip_to(1_000)
    waiting.append(chunk(200, 10, 205))
    assert taken(waiting) == [(200, 205, True, False)]


@given(
    piece_s=st.sampled_from([None, 0.01, 0.1]),
    lengths=st.lists(st.integers(0, 3_000), min_size=1, max_size=20),
    pauses=st.lists(st.integers(0, 20_000), max_size=5),
    takes_each=st.booleans(),
)
def test_all_audio_comes_out_in_order_and_ends_once(piece_s, lengths, pauses, takes_each):
    waiting, start, pieces = WaitingAudio(piece_s), 0, []
    for number, length in enumerate(lengths):
        known = [pause for pause in sorted(pauses) if start < pause <= start + length]
        waiting.append(chunk(start, length, *known, is_last=number == len(lengths) - 1))
        start += length
        if takes_each:
            pieces += taken(waiting)
    pieces += taken(waiting)
    assert [begin for begin, *_ in pieces] == [0, *(end for _, end, *_ in pieces[:-1])]
    assert pieces[-1][1] == start
    assert [is_last for *_, is_last in pieces] == [False] * (len(pieces) - 1) + [True]
    assert {end for _, end, is_pause, _ in pieces if is_pause} == {
        pause for pause in pauses if 0 < pause <= start
    }
