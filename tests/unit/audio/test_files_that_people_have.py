"""Files that people brought are decoded as FFmpeg's own command line decodes them, but for what is noted.

They are made from the clip of John F. Kennedy (11 s) and LibriVox's sentences, both in the public domain.
"""

from pathlib import Path

import numpy as np
import pytest

from specwhisper.errors import InvalidAudio
from tests.unit.audio.test_audio_decode import decoded

FILES = Path(__file__).parents[2] / "data" / "files"
PIECE = 1_600  # a tenth of a second
# Length, where the clip is, and what is in the warning if there is one.
RIGHT = {
    "a.g722": (11.0, (0,), ""),
    "a.latm": (11.03, (0,), ""),
    "c51.ac3": (11.04, (0,), ""),  # the voice is in the centre, a hum in the LFE
    "cat_monostereo.mp3": (11.05, (0,), ""),
    "chained.opus": (11.0, (0,), ""),
    "dmg_r1_good.aac": (11.03, (0,), "about 0.02 s are missing, at 5.5 s"),
    "dmg_r64_good.m4a": (11.0, (0,), "about 0.02 s are missing, at 5.7 s"),
    "gap10s.webm": (21.0, (0,), ""),
    "late4.mp4": (15.0, (4,), ""),
    "mid_id3v2.mp3": (22.07, (0, 11.04), ""),
    "one_nan.wav": (4.0, (0,), "not finite numbers: 1 of them, the first at 0.1 s"),
    "placeholder_2e9.wav": (4.0, (0,), "its container states 62500.0 s, and 4.0 s could be decoded"),
    "rate_6000.wav": (11.0, (0,), ""),
    "small.eac3": (11.0, (0,), ""),
    "small.mxf": (2.0, (0,), ""),
    "t_30.mp3": (30.0, (0,), ""),  # other speakers follow
    "tail_lyrics3.mp3": (11.0, (0,), ""),
    "tail_zeros.mp3": (11.0, (0,), ""),
    "tile154.opus": (154.0, tuple(range(0, 154, 11)), ""),
    "trunc_by_one_sample.wav": (4.0, (0,), "its container states 4.0000 s, and 3.9999 s could be decoded"),
    "two2.mkv": (11.02, (0,), ""),  # the first track is silent, the second the default
}


def loudness(name: str, **selection) -> tuple[float, np.ndarray, tuple[str, ...]]:
    """Return the length of a file, how loud each tenth of a second is, and the warnings."""
    samples, warnings = decoded(FILES / name, **selection)
    pieces = samples[: len(samples) // PIECE * PIECE].reshape(-1, PIECE)
    return len(samples) / 16_000, np.sqrt(np.square(pieces).mean(axis=1)), warnings


@pytest.fixture(scope="module")
def clip():
    return loudness("a.g722")[1]


def likeness(found, clip) -> float:
    """Return how alike two recordings are, as far as the shorter one goes."""
    length = min(len(found), len(clip))
    return np.corrcoef(found[:length], clip[:length])[0, 1]


def test_every_file_has_its_right_value():
    assert {path.name for path in FILES.iterdir()} == set(RIGHT)


@pytest.mark.parametrize("name", RIGHT)
def test_all_is_decoded_and_what_is_missing_is_reported(name, clip):
    length_s, starts_s, missing = RIGHT[name]
    decoded_s, found, warnings = loudness(name)
    assert decoded_s == pytest.approx(length_s, abs=0.03)
    assert len(warnings) == bool(missing)
    assert all(missing in sentence for sentence in warnings)
    if name == "gap10s.webm":  # the recorder was paused after 5 s
        assert found[52:148].max() == 0
        found = np.delete(found, np.s_[50:150])
    for start_s in starts_s:
        assert likeness(found[round(start_s * 10) :], clip) > 0.85
        assert not found[: 39 if start_s == 4 else 0].any()
    if missing:
        with pytest.raises(InvalidAudio, match="Without strict"):
            loudness(name, strict=True)


def test_without_container_times_what_was_recorded_is_joined(clip):
    for name in ("gap10s.webm", "late4.mp4"):
        length_s, found, _ = loudness(name, container_times=False)
        assert length_s == pytest.approx(11.02, abs=0.03)
        assert likeness(found, clip) > 0.85
    assert loudness("dmg_r1_good.aac", container_times=False)[0] < loudness("dmg_r1_good.aac")[0] - 0.02


def test_another_track_is_decoded_by_its_number(clip):
    assert loudness("two2.mkv", audio_track=1)[1].max() == 0
    assert likeness(loudness("two2.mkv", audio_track=2)[1], clip) > 0.85
    one = "one audio track"
    for name, track, tracks in (
        ("two2.mkv", 3, "2 audio tracks"),
        ("one_nan.wav", 2, one),
        ("tail_zeros.mp3", 2, one),
    ):
        error = f"has no audio track {track}: it has {tracks}"
        with pytest.raises(InvalidAudio, match=error):
            loudness(name, audio_track=track)
