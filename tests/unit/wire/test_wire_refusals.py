"""Malformed messages and other FLAC than the agreed format are refused in one sentence."""

import math
from io import BytesIO

import numpy as np
import pytest
import soundfile

from specwhisper.errors import InvalidAudio, InvalidCandidates, InvalidRequest, PairMismatch, SpecWhisperError
from specwhisper.types import Limits
from specwhisper.wire import codec, flac
from specwhisper.wire.codec.messages import MAX_WINDOW_ID
from specwhisper.wire.v1 import verification_pb2 as pb
from specwhisper.wire.v1.decoding_pb2 import AUDIO_ENCODING_LINEAR16
from specwhisper.wire.v1.decoding_pb2 import DecodingOptions as OptionsProto


@pytest.mark.parametrize("number", [0, 99])
def test_an_unset_or_unknown_mode_is_refused(number):
    with pytest.raises(InvalidRequest, match=f"Mode {number} is unset or unknown"):
        codec.mode_from_proto(number)


def some_window(**changes):
    return pb.Window(**{"id": 1, "num_frames": 100, "max_new_tokens": 2} | changes)


def limits_of(**changes):
    limits = codec.limits_to_proto(Limits())
    for name, value in changes.items():
        setattr(limits, name, value)
    return limits


REFUSED = [
    ("decoding_options", OptionsProto(task=99), InvalidRequest, "Task 99"),
    ("decoding_options", OptionsProto(max_new_tokens=0), InvalidRequest, "max_new_tokens is 0"),
    ("decoding_options", OptionsProto(log_mel_max={80: math.inf}), InvalidRequest, "log_mel_max"),
    ("limits", pb.Limits(max_block_tokens=1), InvalidRequest, "max_ahead_tokens is 0"),
    ("limits", limits_of(max_ahead_samples=960_000), InvalidRequest, "at least 1440000"),
    ("audio_chunk", pb.Audio(encoding=99, data=b"ab"), InvalidAudio, "encoding 99"),
    ("audio_chunk", pb.Audio(encoding=AUDIO_ENCODING_LINEAR16, data=b"abc"), InvalidAudio, "3 bytes"),
    (
        "audio_chunk",
        pb.Audio(encoding=AUDIO_ENCODING_LINEAR16, marks=[pb.VoiceMark(event=99)]),
        InvalidRequest,
        "VoiceEvent 99",
    ),
    (
        "audio_chunk",
        pb.Audio(encoding=AUDIO_ENCODING_LINEAR16, data=bytes(960_002)),
        InvalidAudio,
        "more than 480000",
    ),
    ("window", pb.Window(num_frames=3001), InvalidRequest, "3001 mel frames"),
    ("window", some_window(temperature=math.nan), InvalidRequest, "temperature nan"),
    ("window", some_window(start_frame=2**56), InvalidRequest, "begins at mel frame 72057594037927936"),
    ("window", some_window(id=MAX_WINDOW_ID + 1), InvalidRequest, "counted up to"),
    ("resume", pb.Resume(), InvalidRequest, "no window"),
    ("resume", pb.Resume(window=some_window(), committed=[1, 2, 3]), InvalidRequest, "3 committed"),
    ("resume", pb.Resume(window=some_window(log_mel_max=math.nan)), InvalidRequest, "log_mel_max"),
    ("resume", pb.Resume(window=some_window(), log_probs=[math.nan]), InvalidRequest, "log-probability"),
    ("resume", pb.Resume(window=some_window(), log_probs=[1000.0]), InvalidRequest, "not a log-probability"),
    ("window_opened", pb.WindowOpened(), InvalidRequest, "no window"),
    ("commit", pb.Commit(tokens=[1], log_probs=[math.nan]), InvalidRequest, "log_probs that are not numbers"),
    ("vocabulary", pb.Vocabulary(), PairMismatch, "has 0 tokens"),
    ("vocabulary", pb.Vocabulary(tokens=["a", "b"], suppress=[2]), PairMismatch, "names token 2"),
]


@pytest.mark.parametrize(("name", "message", "error", "sentence"), REFUSED)
def test_a_malformed_message_is_refused_in_one_sentence(name, message, error, sentence):
    with pytest.raises(SpecWhisperError, match=sentence) as refusal:
        getattr(codec, f"{name}_from_proto")(message)
    assert type(refusal.value) is error
    assert str(refusal.value).endswith(".")
    assert "\n" not in str(refusal.value)


def test_candidates_beyond_the_sessions_limits_are_refused():
    message = pb.Candidates(tokens=[6, 7])
    assert codec.candidates_from_proto(message, vocabulary_size=8, max_tokens=2).tokens == (6, 7)
    for limit, sentence in (
        ({"vocabulary_size": 7}, "token 7 is out of range"),
        ({"max_tokens": 1}, "at most 1"),
    ):
        with pytest.raises(InvalidCandidates, match=sentence):
            codec.candidates_from_proto(message, **limit)


TOKENS = [3, 4]
BAD_TOKENS = [[5], [2**31], [2**32 - 1], [0, 5]]
WITH_TOKENS = {
    "candidates": lambda tokens: pb.Candidates(tokens=tokens),
    "resume: prompt": lambda tokens: pb.Resume(window=some_window(prompt=tokens)),
    "resume: committed": lambda tokens: pb.Resume(window=some_window(), committed=tokens),
    "resume: previous": lambda tokens: pb.Resume(window=some_window(previous=tokens)),
    "window_opened: prompt": lambda tokens: pb.WindowOpened(window=some_window(prompt=tokens)),
    "window_opened: opening": lambda tokens: pb.WindowOpened(window=some_window(), opening=tokens),
    "window_opened: previous": lambda tokens: pb.WindowOpened(window=some_window(previous=tokens)),
    "commit": lambda tokens: pb.Commit(tokens=tokens),
}


@pytest.mark.parametrize("tokens", BAD_TOKENS)
@pytest.mark.parametrize("what", WITH_TOKENS)
def test_no_token_outside_the_vocabulary_reaches_a_model(what, tokens):
    make, kind = WITH_TOKENS[what], what.partition(":")[0].rpartition(" ")[2]
    read = getattr(codec, f"{kind}_from_proto")
    assert read(make(TOKENS), vocabulary_size=5)
    with pytest.raises(InvalidRequest, match="out of range"):
        read(make(tokens), vocabulary_size=5)
    for impossible in ([-1], [2**32]):
        with pytest.raises(ValueError, match="out of range"):
            make(impossible)


def encoded(rate=16_000, shape=(1_000,), subtype="PCM_16", container="FLAC"):
    stream = BytesIO()
    soundfile.write(stream, np.zeros(shape, np.int16), rate, format=container, subtype=subtype)
    return stream.getvalue()


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (encoded(rate=8_000), "8000 Hz"),
        (encoded(shape=(1_000, 2)), "2 channel"),
        (encoded(subtype="PCM_24"), "PCM_24"),
        (encoded(container="WAV"), "not a FLAC stream"),
        (b"", "not a FLAC stream"),
        (b"fLaC and then nonsense", "cannot be decoded"),
        (encoded()[:-8], "cannot be decoded"),
    ],
)
def test_other_formats_are_refused(data, sentence):
    with pytest.raises(InvalidAudio, match=sentence):
        flac.decode(data, max_samples=1_000)


def test_more_samples_than_allowed_are_not_unpacked():
    assert flac.decode(encoded(), max_samples=1_000) == bytes(2_000)
    with pytest.raises(InvalidAudio, match="more than 999 samples"):
        flac.decode(encoded(), max_samples=999)
    bomb = encoded(shape=(16_000 * 60 * 5,))
    assert len(bomb) < 100_000  # it passes every limit on message sizes
    with pytest.raises(InvalidAudio, match="more than 480000 samples"):
        flac.decode(bomb, max_samples=480_000)


def test_a_forged_length_allocates_nothing():
    forged = bytearray(encoded())
    forged[21] |= 0x0F  # STREAMINFO's total samples: 36 bits from the low half of byte 21 on
    forged[22:26] = b"\xff" * 4
    with pytest.raises(InvalidAudio):
        flac.decode(bytes(forged), max_samples=999)
