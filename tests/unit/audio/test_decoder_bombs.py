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
# Decodes files, and prints how each ends and the peak of the additional memory; the last one is kept.
CHILD = """
import re, sys
from specwhisper.audio.decode import decode_file
from specwhisper.errors import InvalidAudio

def peak():
    with open("/proc/self/status") as status:  # getrusage would include the memory of the parent
        return int(re.search(r"VmHWM:\\s+(\\d+) kB", status.read())[1]) * 1024

limit_s, paths = float(sys.argv[1]), sys.argv[2:]
before = peak()
for path in paths:
    try:
        for pcm in decode_file(path, limit_s):
            pass
    except InvalidAudio as error:
        print("longer" if "is longer than" in str(error) else error, peak() - before)
kept = [pcm * 16 for pcm in decode_file(paths[0])]
print("kept", peak() - before)
"""


BOMBS = {
    "flac": lambda: silence.flac(LENGTH_S),
    "flac of 8 channels": lambda: silence.flac_of_8_channels(LENGTH_S),
    "opus": lambda: silence.opus(LENGTH_S),
    "mp3": lambda: silence.mp3(LENGTH_S),
}


def test_bombs_are_refused_in_little_memory(tmp_path):
    paths = []
    for number, bomb in enumerate(BOMBS.values()):
        paths.append(tmp_path / str(number))
        paths[-1].write_bytes(bomb())
        assert paths[-1].stat().st_size < 2_000_000
    command = [sys.executable, "-c", CHILD, str(LIMIT_S), *map(str, paths)]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    *ends, control = [line.rpartition(" ")[::2] for line in printed]
    assert [end for end, _ in ends] == ["longer"] * len(BOMBS)
    grown = {kind: int(growth) for kind, (_, growth) in zip(BOMBS, ends, strict=True)}
    assert max(grown.values()) < MAX_GROWTH_BYTES, grown
    assert int(control[1]) > MAX_GROWTH_BYTES, "a measurement that sees no memory would pass"


def test_the_bytes_of_decoded_audio_are_limited(tmp_path):
    """64 channels at 192 kHz have sixteen times the bytes a second that are allowed."""
    path = tmp_path / "wide.wav"
    soundfile.write(path, np.zeros((192_000, 64), np.int16), 192_000)
    with pytest.raises(InvalidAudio, match=f"more than the limit of {MAX_PCM_BYTES_PER_S} bytes of PCM"):
        for _ in decode_file(path, max_duration_s=1.0):
            pass
    assert sum(map(len, decode_file(path))) == 32_000


async def test_a_server_refuses_bombs_and_continues():
    async with running_pair(max_audio_s=LIMIT_S) as (target, draft):
        for kind in ("flac", "mp3"):
            error = await error_of(draft.stub.Recognize(pb.RecognizeRequest(audio=BOMBS[kind]())))
            assert type(error) is InvalidAudio and "longer than the limit of 10 s" in str(error)
        assert finals(await stream(draft, recording(1.0))) == expected_finals(target_alone(1.0))
        await all_free(target, draft)
