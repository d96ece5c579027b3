"""The text has the times of the container: a late start and gaps are silence, within bounds."""

import io

import numpy as np
import pytest

from specwhisper.audio import damage
from specwhisper.audio.damage import Damage, ignore
from specwhisper.audio.decode import decode_file
from specwhisper.audio.ffmpeg import Timeline
from specwhisper.errors import InvalidAudio
from tests.unit.audio.test_audio_decode import decoded, muxed
from tests.unit.audio.test_channels import RATE, tones

LENGTH_S = 6
KINDS = {
    "webm": ("webm", "libopus"),
    "mkv": ("matroska", "aac"),
    "m4a": ("mp4", "aac"),
    "ts": ("mpegts", "aac"),
    "mov": ("mov", "pcm_s16le"),
}


def media(kind: str, gaps=()) -> bytes:
    container, codec = KINDS[kind]
    return muxed(container, codec, tones(1, LENGTH_S), RATE, gaps=gaps)


@pytest.mark.parametrize("kind", KINDS)
def test_a_track_without_gaps_gets_no_silence(kind):
    """Not for an encoder's delay, nor for times in whole milliseconds."""
    data = media(kind)
    samples, warnings = decoded(data)
    assert len(samples) / 16_000 == pytest.approx(LENGTH_S, abs=0.1)
    assert np.array_equal(samples, decoded(data, container_times=False)[0])
    assert not warnings


@pytest.mark.parametrize("kind", ["webm", "mkv", "m4a"])
def test_a_pause_of_the_recorder_is_silence(kind):
    data = media(kind, [(2, 5), (4, 0.3)])
    samples, warnings = decoded(data)
    assert len(samples) / 16_000 == pytest.approx(LENGTH_S + 5.3, abs=0.1)
    assert np.abs(samples[int(2.2 * 16_000) : int(6.9 * 16_000)]).max() < 1e-3
    assert np.abs(samples[int(7.2 * 16_000) : int(8.9 * 16_000)]).max() > 0.2
    assert not warnings
    assert len(decoded(data, container_times=False)[0]) / 16_000 == pytest.approx(LENGTH_S, abs=0.1)


def test_packets_that_were_lost_on_the_way_become_silence_of_their_length():
    """Each gap of 60 ms is too short for a pause; together they count."""
    data = media("webm", [(0.5 * n, 0.06) for n in range(1, 12)])
    samples, warnings = decoded(data)
    assert len(samples) / 16_000 == pytest.approx(LENGTH_S + 0.66, abs=0.15)
    assert not warnings


def test_a_gap_in_a_transport_stream_is_audio_that_is_missing():
    samples, (warning,) = decoded(media("ts", [(3, 2)]))
    assert len(samples) / 16_000 == pytest.approx(LENGTH_S + 2, abs=0.1)
    assert warning == "The audio is damaged: about 2.00 s are missing, at 3.0 s."


def test_another_clock_in_a_transport_stream_is_no_gap():
    samples, warnings = decoded(media("ts", [(3, 3_000)]))
    assert len(samples) / 16_000 == pytest.approx(LENGTH_S, abs=0.1)
    assert warnings == ("The audio has times that jump by 3000.0 s at 3.0 s: audio may be missing.",)


def test_all_that_an_ogg_file_lacks_is_reported():
    data = muxed("ogg", "libopus", tones(1, 60), RATE, page_duration="1000000")
    pages = data.split(b"OggS")
    samples, (warning,) = decoded(b"OggS".join(pages[:20] + pages[40:]))
    assert len(samples) / 16_000 == pytest.approx(60, abs=0.1)
    assert warning == "The audio is damaged: about 20.00 s are missing, at 17.0 s."


def test_times_that_lie_add_an_hour_in_all(monkeypatch):
    data = media("mkv", [(2, 3), (3, 10**6), (4, 2)])
    samples, (warning,) = decoded(data)
    assert len(samples) / 16_000 == pytest.approx(LENGTH_S + 5, abs=0.1)
    assert warning.startswith("The audio has a gap of 1000000 s at 6.0 s, which is left out")
    assert damage.MAX_SILENCE_S == 3_600
    monkeypatch.setattr(damage, "MAX_SILENCE_S", 36)
    two_gaps = media("mkv", [(1, 35), (3, 35)])
    samples, (warning,) = decoded(two_gaps)
    assert len(samples) / 16_000 == pytest.approx(LENGTH_S + 35, abs=0.1)
    with pytest.raises(InvalidAudio, match="longer than the limit of 20 s"):
        for _ in decode_file(io.BytesIO(two_gaps), 20):
            pass


def test_clocks_that_drift_or_begin_again_add_nothing():
    timeline = Timeline(0.0, Damage("It", ignore), is_gapless=False, may_jump=False)
    for times in (np.arange(3_000) * 0.0202, 5 + np.arange(50) * 0.02):
        assert not any(timeline.silence_before(time_s, 0.02) for time_s in times.tolist())
    assert timeline.silence_before(16.0, 0.02) == pytest.approx(10)
