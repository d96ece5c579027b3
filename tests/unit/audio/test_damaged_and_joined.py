"""All that can be decoded of damaged, cut and joined files is, and the rest is reported."""

import struct
from pathlib import Path

import numpy as np
import pytest
import soundfile

from specwhisper.audio.decode import check_stated_length
from specwhisper.errors import InvalidAudio
from tests.unit.audio import test_audio_decode
from tests.unit.audio.test_audio_decode import encode, muxed, tone

LENGTH_S = 4
JUNK = np.random.default_rng(0).bytes(400)
TAGS = [b"LYRICSBEGIN" + b"x" * 900, b"APETAGEX" + bytes(200), b"TAG" + bytes(125)]


def track(container: str, codec: str, rate: int, layout: str = "mono", **options: str) -> bytes:
    samples = np.stack([tone(LENGTH_S, rate)] * (1 + (layout == "stereo")), axis=1)
    return muxed(container, codec, samples, rate, layout, **options)


def decoded(file: bytes | Path) -> tuple[float, tuple[str, ...]]:
    """Return the length of what is decoded, and the warnings."""
    samples, warnings = test_audio_decode.decoded(file)
    return len(samples) / 16_000, warnings


ENCODED = {
    "mp3": lambda rate, layout: track("mp3", "libmp3lame", rate, layout),
    "aac": lambda rate, layout: track("adts", "aac", rate, layout),
    "ts": lambda rate, layout: track("mpegts", "aac", rate, layout),
    "m4a": lambda rate, layout: track("mp4", "aac", rate, layout),
    "webm": lambda rate, layout: track("webm", "libopus", 48_000, layout),
    "mkv": lambda rate, layout: track("matroska", "aac", rate, layout),
    "opus": lambda rate, layout: track("ogg", "libopus", 48_000, layout),
    "flac": lambda rate, layout: track("flac", "flac", rate, layout),
    "tta": lambda rate, layout: track("tta", "tta", rate, layout),
    "avi": lambda rate, layout: track("avi", "libmp3lame", rate, layout),
}


@pytest.mark.parametrize("kind", ENCODED)
def test_every_link_is_read_with_its_own_rate_and_channels(kind):
    """As in radio streams, podcasts with inserted parts, and recorders that begin anew."""
    joined = ENCODED[kind](48_000, "mono") + ENCODED[kind](44_100, "stereo")
    assert decoded(joined) == (pytest.approx(2 * LENGTH_S, abs=0.2), ())


@pytest.mark.parametrize("name", ["mpegts_start_pid", "mpegts_pmt_start_pid"])
def test_every_link_of_a_transport_stream_is_read_whatever_its_tracks_are_called(name):
    other = track("mpegts", "aac", 44_100, "stereo", **{name: "1234"})
    first = track("mpegts", "aac", 48_000)
    assert decoded(first + other + first) == (pytest.approx(3 * LENGTH_S, abs=0.2), ())


@pytest.mark.parametrize("container", ["WAV", "AIFF", "FLAC", "OGG"])
def test_joined_files_of_libsndfile_are_read(container):
    stereo = np.stack([tone(LENGTH_S, 44_100)] * 2, axis=1)
    joined = encode(tone(LENGTH_S, 16_000), 16_000, container) + encode(stereo, 44_100, container)
    assert decoded(joined) == (pytest.approx(2 * LENGTH_S, abs=0.05), ())


def test_the_number_of_links_and_of_warnings_is_limited():
    """A megabyte can hold a hundred thousand beginnings, which take milliseconds each."""
    whole, beginning = ENCODED["flac"](48_000, "mono"), b"fLaC\0\0\0\x22"
    with pytest.raises(InvalidAudio, match="joined from more than 1000 parts"):
        decoded(beginning * 100_000)
    length_s, warnings = decoded(whole + beginning * 20)
    assert length_s == LENGTH_S and len(warnings) < 7


@pytest.mark.parametrize("kind", ["mp3", "m4a", "webm", "opus", "flac", "ts"])
def test_zeros_after_the_last_frame_are_no_damage(kind):
    whole = ENCODED[kind](48_000, "mono")
    assert decoded(whole + bytes(5_000)) == (pytest.approx(decoded(whole)[0], abs=0.02), ())


@pytest.mark.parametrize("tag", TAGS, ids=["Lyrics3", "APE", "ID3v1"])
def test_tags_after_and_between_parts_are_no_damage(tag):
    whole = ENCODED["mp3"](48_000, "mono")
    assert decoded(whole + tag + whole + tag) == (pytest.approx(2 * LENGTH_S, abs=0.2), ())


@pytest.mark.parametrize("kind", ["aac", "flac", "m4a", "mp3", "opus", "ts"])
def test_damage_costs_little_and_is_reported_with_its_place(kind):
    data = bytearray(ENCODED[kind](48_000, "mono"))
    middle = len(data) // 2
    data[middle : middle + len(JUNK)] = JUNK
    length_s, (warning,) = decoded(bytes(data))
    assert LENGTH_S - 1.2 < length_s < LENGTH_S + 0.1
    # Opus packets lie in pages of a second.
    assert warning.startswith("The audio is damaged: about ") and warning.count(", at ") == 1
    assert float(warning.split(", at ")[1].removesuffix(" s.")) == pytest.approx(LENGTH_S / 2, abs=1)


@pytest.mark.parametrize("kind", ["avi", "flac", "mkv", "mp3", "tta", "webm"])
def test_a_file_that_is_cut_off_warns_with_both_lengths(kind):
    data = ENCODED[kind](48_000, "mono")
    length_s, warnings = decoded(data[: len(data) // 2])
    assert 0 < length_s < 0.7 * LENGTH_S
    joined_warnings = " ".join(warnings)
    assert f"container states {LENGTH_S:.1f} s, and {length_s:.1f} s could be decoded" in joined_warnings or (
        kind == "tta" and "about" in joined_warnings
    )


@pytest.mark.parametrize("container", ["WAV", "AIFF"])
def test_a_pcm_file_that_is_cut_off_warns_with_both_lengths(container):
    data = encode(tone(LENGTH_S, 16_000), 16_000, container)
    cut = data[: len(data) - 2 * 16_000]
    assert decoded(cut) == (
        LENGTH_S - 1,
        (
            f"The audio is cut off or damaged: its container states {LENGTH_S}.0 s, and {LENGTH_S - 1}.0 s "
            "could be decoded.",
        ),
    )


@pytest.mark.parametrize("container", ["WAV", "RF64", "W64", "FLAC"])
def test_a_header_of_40_hours_over_a_second_of_data_is_read_with_a_warning(container, tmp_path):
    num_frames = 40 * 3_600 * 8_000
    data = bytearray(encode(tone(1, 8_000), 8_000, container))
    match container:
        case "WAV":
            data[40:44] = struct.pack("<I", 2 * num_frames)
        case "RF64":
            data[28:36] = struct.pack("<Q", 2 * num_frames)
        case "W64":
            at = data.index(b"data") + 16
            data[at : at + 8] = struct.pack("<Q", 2 * num_frames)
        case "FLAC":  # 36 bits
            data[22:26] = struct.pack(">I", num_frames)
    path = tmp_path / "header"
    path.write_bytes(data)
    check_stated_length(path, 14_400)  # it is too small for so much
    length_s, (warning,) = decoded(path)
    assert length_s == 1
    stated_s = float(warning.split("its container states ")[1].split()[0])
    assert stated_s == pytest.approx(144_000, rel=0.02)


@pytest.mark.parametrize(
    ("size", "rest"), [(0, b""), (2**31, b""), (2**32 - 37, b""), (0x7FFF_F000, b""), (16_001, b"\1")]
)
def test_a_size_that_was_left_open_or_ends_in_half_a_sample_is_no_damage(size, rest):
    data = bytearray(encode(tone(1, 8_000), 8_000))
    data[40:44] = struct.pack("<I", size)
    assert decoded(bytes(data) + rest) == (1, ())


@pytest.mark.parametrize(
    "playlist",
    [
        "#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\n{file}\n#EXT-X-ENDLIST\n",
        "ffconcat version 1.0\nfile '{file}'\n",
        "v=0\no=- 0 0 IN IP4 127.0.0.1\ns=x\nc=IN IP4 127.0.0.1\nt=0 0\nm=audio 5004 RTP/AVP 0\n",
        "SBG\n-m {file}\n",
    ],
    ids=["HLS", "concat", "SDP", "SBaGen"],
)
@pytest.mark.parametrize("suffix", [".m3u8", ".sbg", ""])
def test_playlists_and_addresses_open_nothing(playlist, suffix, tmp_path):
    speech = tmp_path / "speech.wav"
    soundfile.write(speech, tone(1, 16_000), 16_000)
    path = tmp_path / f"list{suffix}"
    path.write_text(playlist.format(file=speech))
    with pytest.raises(InvalidAudio):
        decoded(path)
