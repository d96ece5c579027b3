"""Small files of very long audio are refused in little memory."""

import subprocess
import sys

import numpy as np
import pytest
import soundfile

from experiments.faults import silence
from specwhisper.audio.decode import MAX_PCM_BYTES_PER_S, decode_file
from specwhisper.errors import InvalidAudio
from specwhisper.wire.v1 import transcription_pb2 as pb
from tests.rpc.services import (
    all_free,
    error_of,
    expected_finals,
    finals,
    recording,
    running_pair,
    stream,
    target_alone,
)

LENGTH_S = 240
LIMIT_S = 10.0
MAX_GROWTH_BYTES = 64 * 1024 * 1024
# Decodes a file, and prints the peak of the additional memory.
CHILD = """
import re, sys
from specwhisper.audio.decode import decode_file
from specwhisper.errors import InvalidAudio

def peak():
    with open("/proc/self/status") as status:  # getrusage would include the memory of the parent
        return int(re.search(r"VmHWM:\\s+(\\d+) kB", status.read())[1]) * 1024

limit_s, keeps = float(sys.argv[2]), sys.argv[3] == "keeps"
before, retained = peak(), []
try:
    for pcm in decode_file(open(sys.argv[1], "rb"), limit_s):
        retained += [pcm * 16] if keeps else []
    print("decoded", peak() - before)
except InvalidAudio as error:
    print("longer" if "is longer than" in str(error) else error, peak() - before)
"""


BOMBS = {
    "flac": lambda: silence.flac(LENGTH_S),
    "flac of 8 channels": lambda: silence.flac_of_8_channels(LENGTH_S),
    "opus": lambda: silence.opus(LENGTH_S),
    "mp3": lambda: silence.mp3(LENGTH_S),
}


def decoded_in_child(tmp_path, data: bytes, limit_s: float, *, keeps: bool = False) -> tuple[str, int]:
    path = tmp_path / "bomb"
    path.write_bytes(data)
    command = [sys.executable, "-c", CHILD, str(path), str(limit_s), "keeps" if keeps else "drops"]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    end, _, growth = printed.strip().rpartition(" ")
    return end, int(growth)


@pytest.mark.parametrize("kind", BOMBS)
def test_a_bomb_is_refused_in_little_memory(kind, tmp_path):
    data = BOMBS[kind]()
    assert len(data) < 2_000_000
    end, growth = decoded_in_child(tmp_path, data, LIMIT_S)
    assert end == "longer"
    assert growth < MAX_GROWTH_BYTES


def test_the_measurement_detects_a_reader_that_keeps_all_audio(tmp_path):
    """Negative control: a measurement that sees no memory would pass."""
    end, growth = decoded_in_child(tmp_path, BOMBS["flac"](), 10.0 * LENGTH_S, keeps=True)
    assert end == "decoded"
    assert growth > MAX_GROWTH_BYTES


def test_the_bytes_of_decoded_audio_are_limited(tmp_path):
    """64 channels at 192 kHz have sixteen times the bytes a second that are allowed."""
    path = tmp_path / "wide.wav"
    soundfile.write(path, np.zeros((192_000, 64), np.int16), 192_000)
    with pytest.raises(InvalidAudio, match=f"more than the limit of {MAX_PCM_BYTES_PER_S} bytes of PCM"):
        for _ in decode_file(path, max_duration_s=1.0):
            pass
    assert sum(map(len, decode_file(path))) == 32_000


@pytest.mark.parametrize("rate", [1, 999, 768_001, 2**31 - 1])
def test_a_forged_sample_rate_is_refused(rate, tmp_path):
    path = tmp_path / "forged.wav"
    soundfile.write(path, np.zeros(16_000, np.int16), 16_000)
    data = bytearray(path.read_bytes())
    data[24:28] = rate.to_bytes(4, "little")
    path.write_bytes(data)
    with pytest.raises(InvalidAudio):
        for _ in decode_file(path, max_duration_s=1.0):
            pass


async def test_a_server_refuses_bombs_and_continues():
    async with running_pair(max_audio_s=LIMIT_S) as (target, draft):
        for kind in ("flac", "mp3"):
            error = await error_of(draft.stub.Recognize(pb.RecognizeRequest(audio=BOMBS[kind]())))
            assert type(error) is InvalidAudio and "longer than the limit of 10 s" in str(error)
        assert finals(await stream(draft, recording(1.0))) == expected_finals(target_alone(1.0))
        await all_free(target, draft)
