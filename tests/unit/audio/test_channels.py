"""Channels are mixed by their places; stereo in opposite phase is found; one channel can be taken."""

import io
import struct

import av
import numpy as np
import pytest

from specwhisper.audio.canonical import CanonicalStream
from specwhisper.audio.channels import Mixer
from specwhisper.audio.damage import Damage, ignore
from specwhisper.audio.ffmpeg import decode_with_ffmpeg, weights_of
from specwhisper.audio.inputs import recordings_in
from specwhisper.errors import InvalidAudio
from specwhisper.selection import ALL_AUDIO, Selection
from tests.unit.audio.test_audio_decode import decoded, encode, muxed

RATE = 48_000
# Left, right, centre, LFE, left back, right back: ITU-R BS.775, and FFmpeg.
WEIGHTS = np.array([0.5**0.5, 0.5**0.5, 1, 0, 0.5, 0.5])


def tones(num_channels: int, length_s: float = 2.0) -> np.ndarray:
    """Return a tone of its own for each channel."""
    times = np.arange(int(length_s * RATE)) / RATE
    return np.stack([0.3 * np.sin(2 * np.pi * 200 * (n + 1) * times) for n in range(num_channels)], axis=1)


def amplitudes(samples: np.ndarray, num_channels: int) -> np.ndarray:
    """Return how loud each channel's tone is."""
    second = samples[8_000:24_000]
    return np.abs(np.fft.rfft(second))[200 : 200 * num_channels + 1 : 200] * 2 / len(second)


def surround(kind: str) -> bytes:
    samples = tones(6)
    match kind:
        case "wav":
            return encode(samples, RATE, "WAVEX")  # which states that these are 5.1
        case "flac":  # its channels have fixed places
            return encode(samples, RATE, "FLAC")
        case "opus":
            return muxed("ogg", "libopus", samples, RATE, "5.1", b="768k")
    return muxed("adts", "aac", samples, RATE, "5.1", b="768k")


@pytest.mark.parametrize("kind", ["wav", "flac", "opus", "aac"])
def test_channels_count_by_their_places(kind):
    found = amplitudes(decoded(surround(kind))[0], 6)
    assert found / found[2] == pytest.approx(WEIGHTS, abs=0.06)
    assert found[:3].sum() + found[4:].sum() == pytest.approx(0.3, rel=0.1)  # nothing can be clipped


def test_places_that_are_not_stated_count_the_same():
    found = amplitudes(decoded(encode(tones(6), RATE))[0], 6)
    assert found == pytest.approx(np.full(6, 0.3 / 6), rel=0.01)


def test_every_layout_of_ffmpeg_has_weights_and_other_places_are_averaged():
    for layout in ("3.0", "quad", "5.1(side)", "6.1", "7.1.4", "octagonal"):
        weights = weights_of(layout)
        assert weights.sum() == pytest.approx(1)
        names = [channel.name for channel in av.AudioLayout(layout).channels]
        assert all(weight == 0 for name, weight in zip(names, weights, strict=True) if name.startswith("LFE"))
    for layout in ("", "mono", "stereo", "6 channels", "3 channels (FC+FL+FR)"):
        assert weights_of(layout) is None


def test_channels_in_an_order_of_their_own_end_no_process():
    """PyAV frees the memory of such a layout twice."""

    def chunk(name: bytes, content: bytes) -> bytes:
        return name + struct.pack(">q", len(content)) + content

    about = struct.pack(">d4sIIIII", RATE, b"lpcm", 0, 6, 1, 3, 16)
    places = struct.pack(">III", 0, 0, 3)
    places += b"".join(struct.pack(">IIfff", place, 0, 0, 0, 0) for place in (3, 1, 2))  # centre, left, right
    samples = (tones(3) * 32767).astype(">i2").tobytes()
    caf = (
        b"caff\0\1\0\0" + chunk(b"desc", about) + chunk(b"chan", places) + chunk(b"data", bytes(4) + samples)
    )
    for _ in range(20):
        blocks = decode_with_ffmpeg(io.BytesIO(caf), "It", False, Damage("It", ignore), ALL_AUDIO)
        assert sum(len(frames) for _, frames, _ in blocks) == 2 * RATE
    assert amplitudes(decoded(caf)[0], 3) == pytest.approx(np.full(3, 0.1), rel=0.01)


@pytest.mark.parametrize(("channel", "number"), [("left", 1), ("right", 2), ("3", 3), ("6", 6)])
def test_one_channel_can_be_taken(channel, number):
    found = amplitudes(decoded(surround("wav"), channel=channel)[0], 6)
    assert found == pytest.approx([0.3 if each == number else 0 for each in range(1, 7)], abs=0.01)


def test_a_channel_that_is_missing_is_an_error():
    for file, channel, number in ((encode(tones(1), RATE), "right", 1), (encode(tones(6), RATE), "7", 6)):
        with pytest.raises(InvalidAudio, match=f"no channel '{channel}': the number of channels is {number}"):
            decoded(file, channel=channel)
    ((source,), _) = recordings_in(np.zeros(9, np.float32))
    with pytest.raises(InvalidAudio, match="no channel '2'"):
        list(source.read(ignore, Selection(channel="2")))


def speech(length_s: float, seed: int = 0) -> np.ndarray:
    """Return noise that is as loud as speech, with pauses."""
    noise = np.random.default_rng(seed).normal(0, 0.1, int(length_s * RATE))
    return noise * (np.sin(2 * np.pi * 1.5 * np.arange(len(noise)) / RATE) > -0.3)


@pytest.mark.parametrize("louder", ["left", "right"])
@pytest.mark.parametrize("container", ["WAV", "FLAC"])
def test_stereo_in_opposite_phase_is_found_and_reported(louder, container):
    left = speech(6)
    stereo = np.stack([left, -0.7 * left], axis=1)
    stereo = stereo if louder == "left" else -stereo[:, ::-1]
    file = encode(stereo, RATE, container)
    found, (warning,) = decoded(file)
    assert warning.startswith("The audio has channels in opposite phase, from 0.0 s on for ")
    assert warning.endswith(f"so the {louder} one was used there.")
    expected, _ = decoded(file, channel=louder)
    assert found.std() == pytest.approx(expected.std(), rel=0.02)
    assert np.array_equal(found, decoded(file)[0])


def test_opposite_phase_of_a_part_is_found_without_a_change_elsewhere():
    left, noise = speech(9), np.random.default_rng(1).normal(0, 0.01, (9 * RATE, 2))
    right = np.concatenate([left[: 3 * RATE], -left[3 * RATE : 6 * RATE], left[6 * RATE :]])
    file = encode(np.stack([left, right], axis=1) + noise, RATE)
    found, (warning,) = decoded(file)
    start_s, length_s = (float(word) for word in warning.split() if word.replace(".", "").isdigit())
    assert start_s == pytest.approx(3, abs=0.3)
    assert 1.5 < length_s < 3.2
    expected, _ = decoded(encode(np.stack([left, left], axis=1), RATE))
    for start in range(0, 9):
        part = slice(start * 16_000, (start + 1) * 16_000)
        assert found[part].std() == pytest.approx(expected[part].std(), rel=0.1)


def test_other_stereo_is_averaged():
    """Two callers, one in each channel; a voice between two microphones; music."""
    one, other = speech(5), speech(5, seed=1)
    late = np.roll(one, 40)  # 0.8 ms, 28 cm
    for stereo in ([one, other], [one, 0 * one], [one, late], [one - 0.5 * other, one + 0.5 * other]):
        samples = np.stack(stereo, axis=1)
        found, warnings = decoded(encode(samples, RATE))
        assert not warnings
        assert np.abs(found - decoded(encode(samples.mean(axis=1), RATE))[0]).max() < 1e-3


def test_streams_find_opposite_phase_and_take_a_channel():
    left = (speech(2) * 32767).astype(np.int16)
    stereo = np.stack([left, -left], axis=1)
    for mixer, expected in ((Mixer(), left), (Mixer("right"), -left)):
        stream = CanonicalStream(16_000, 2, mixer)
        pieces = [stream.push(stereo[start : start + 1_000]) for start in range(0, len(stereo), 1_000)]
        found = np.frombuffer(b"".join(pieces), "<i2")
        assert np.array_equal(found[160:], expected[160:])  # after the first piece


def test_phase_is_judged_across_a_change_of_the_rate():
    file = b"".join(
        encode(np.stack([noise, -noise], axis=1), rate)
        for rate in (48_000, 8_000, 44_100)
        for noise in [speech(1.0234)[:rate]]
    )
    found, (_,) = decoded(file)
    assert found.std() > 0.05
