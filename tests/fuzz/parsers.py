"""Parsers of untrusted bytes: each returns, or raises one of its declared errors."""

import io
import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import parse_qsl

import numpy as np
import torch
from google.protobuf.message import DecodeError
from riva.client.proto import riva_asr_pb2

from experiments.common.models.scripted import VOCABULARY
from specwhisper.audio.canonical import CanonicalStream
from specwhisper.audio.decode import decode_file
from specwhisper.errors import CheckpointError, InvalidRequest, SpecWhisperError
from specwhisper.live import FinalPiece, LiveOptions, LivePosition
from specwhisper.model.checkpoints.ctranslate2 import read_variables
from specwhisper.model.checkpoints.files import ModelFiles
from specwhisper.model.checkpoints.ggml import GgmlModel
from specwhisper.model.pytorch.openai_file import OpenAIModel
from specwhisper.options import DecodingOptions
from specwhisper.transcription.resume_point import ResumePoint
from specwhisper.types import Candidates, Limits, Resume, Window
from specwhisper.wire import PROTOCOL_VERSION, codec, flac
from specwhisper.wire.status import shorten
from specwhisper.wire.v1 import resume_point_pb2, transcription_pb2, verification_pb2
from specwhisper_gateway.audio.fields import TranscriptionFields, TranslationFields
from specwhisper_gateway.live import Start, read_message
from specwhisper_gateway.realtime.session import audio_of, event_id_of, hint_of, read_event, session_of
from specwhisper_gateway.realtime.settings import AudioFormat, RealtimeSettings, nested
from specwhisper_riva.requests import (
    StreamedAudio,
    endpointing,
    recognition_config,
    whole_audio,
    whole_config,
)
from tests.unit.audio.test_audio_decode import encode, muxed, tone
from tests.unit.model.checkpoints.binary_files import CTRANSLATE2_FILE, GGML_FILE

WEIGHTS = "digest of the weights"
MAX_S, MAX_SAMPLES, SIZE = 2.0, 32_000, len(VOCABULARY)
DECLARED_ERRORS = (SpecWhisperError, DecodeError)


def verify_request(data: bytes) -> None:
    request = verification_pb2.VerifyRequest.FromString(data)
    match request.WhichOneof("message"):
        case "hello":
            codec.mode_from_proto(request.hello.mode)
            codec.decoding_options_from_proto(request.hello.decoding)
        case "audio":
            chunk = codec.audio_chunk_from_proto(request.audio, max_samples=MAX_SAMPLES)
            assert len(chunk.pcm) <= 2 * MAX_SAMPLES
        case "resume":
            resume = codec.resume_from_proto(request.resume, vocabulary_size=SIZE)
            assert max(resume.committed + resume.previous, default=0) < SIZE
        case "position":
            codec.live_position_from_proto(request.position)


def share_request(data: bytes) -> None:
    for each in verification_pb2.ShareRequest.FromString(data).candidates:
        block = codec.candidates_from_proto(each.candidates, vocabulary_size=SIZE, max_tokens=64)
        assert max(block.tokens, default=0) < SIZE


def share_response(data: bytes) -> None:
    for event in verification_pb2.ShareResponse.FromString(data).events:
        match event.WhichOneof("message"):
            case "window_opened":
                codec.window_opened_from_proto(event.window_opened, vocabulary_size=SIZE)
            case "commit":
                codec.commit_from_proto(event.commit, vocabulary_size=SIZE)


def verify_response(data: bytes) -> None:
    response = verification_pb2.VerifyResponse.FromString(data)
    if response.HasField("welcome"):
        codec.limits_from_proto(response.welcome.limits)


def vocabulary(data: bytes) -> None:
    codec.vocabulary_from_proto(verification_pb2.Vocabulary.FromString(data))


def streaming_config(data: bytes) -> None:
    config = transcription_pb2.StreamingRecognitionConfig.FromString(data)
    codec.endpointing_from_proto(config.endpointing)
    CanonicalStream(config.config.sample_rate_hertz, config.config.audio_channel_count or 1)
    options = codec.recognition_config_from_proto(config.config)
    codec.decoding_options_to_proto(options)  # sent on to the target


def resume_point(data: bytes) -> None:
    """Parse a client's resume point of this version and these weights."""
    # Concatenated messages of protobuf are merged into one.
    here = resume_point_pb2.ResumePointState(protocol_version=PROTOCOL_VERSION, weights_digest=WEIGHTS)
    point = transcription_pb2.ResumePoint(state=here.SerializeToString() + data)
    found = codec.resume_point_from_proto(point, WEIGHTS, vocabulary_size=SIZE)
    if isinstance(found, ResumePoint):
        assert max(found.resume.committed + found.resume.previous, default=0) < SIZE
        assert len(found.resume.committed) == len(found.resume.log_probs)
    codec.resume_point_to_proto(found, WEIGHTS)  # can be sent again


def riva_stream(data: bytes) -> None:
    config = riva_asr_pb2.StreamingRecognitionConfig.FromString(data).config
    codec.decoding_options_from_proto(recognition_config(config, LiveOptions()).decoding)
    codec.endpointing_from_proto(endpointing(config))


def riva_recording(data: bytes) -> None:
    request = riva_asr_pb2.RecognizeRequest.FromString(data)
    whole_config(request)
    whole_audio(request)


def riva_audio(data: bytes) -> None:
    """Decode audio that a Riva client streams, in any pieces."""
    encoding, piece, data = (*data[:2], data[2:]) if len(data) > 1 else (0, 1, data)
    config = riva_asr_pb2.RecognitionConfig(encoding=encoding % 8, sample_rate_hertz=16_000)
    audio = StreamedAudio(config)
    for start in range(0, len(data), piece + 1):
        audio.push(data[start : start + piece + 1])
    audio.finish()


def flac_piece(data: bytes) -> None:
    assert len(flac.decode(data, MAX_SAMPLES)) <= 2 * MAX_SAMPLES


def recording(data: bytes) -> None:
    assert sum(map(len, decode_file(io.BytesIO(data), MAX_S))) <= 2 * (MAX_SAMPLES + 65_536)


def ctranslate2_file(data: bytes) -> None:
    _read_weights(data, lambda path: {name: found.read() for name, found in read_variables(path).items()})


def ggml_file(data: bytes) -> None:
    _read_weights(data, lambda path: dict(GgmlModel("it", path).weights()[0]))


def openai_file(data: bytes) -> None:
    """Read the weights of a file of openai-whisper; torch names no errors of its own."""

    def read(path: Path) -> None:
        files = ModelFiles(str(path))
        with files.errors_reported():
            dict(OpenAIModel("it", path).weights()[0])

    _read_weights(data, read)


def _read_weights(data: bytes, read: Callable[[Path], object]) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "model.bin"
        path.write_bytes(data)
        try:
            with np.errstate(all="ignore"):  # any numbers are weights
                read(path)
        except ValueError as error:  # as load_checkpoint reports it
            raise CheckpointError(str(error)) from error


def realtime_event(data: bytes) -> None:
    event = read_event(_frame(data))
    event_id_of(event)
    match event.get("type"):
        case "input_audio_buffer.append":
            with suppress(InvalidRequest):  # an incomplete sample
                AudioFormat().decode(audio_of(event))
        case "input_audio_buffer.hint":
            hint_of(event)
        case "session.update" | "transcription_session.update" as kind:
            session = session_of(event)
            settings = RealtimeSettings().updated(session if kind == "session.update" else nested(session))
            codec.decoding_options_to_proto(settings.options())  # sent on to the target
            json.dumps([settings.describe(), settings.describe_flat()]).encode()  # can be sent


def live_message(data: bytes) -> None:
    message = read_message(_frame(data))
    if isinstance(message, Start):  # begins a stream
        CanonicalStream(message.sample_rate, 1)


def form_of_transcription(data: bytes) -> None:
    """Parse the fields of a transcription form, here written as a query."""
    codec.decoding_options_to_proto(TranscriptionFields.read(_form(data)).options().for_pcm())


def form_of_translation(data: bytes) -> None:
    codec.decoding_options_to_proto(TranslationFields.read(_form(data)).options().for_pcm())


def _frame(data: bytes) -> str:
    """Return the text of a WebSocket message, which is valid UTF-8 when it is parsed."""
    return data.decode(errors="replace")


def _form(data: bytes) -> list[tuple[str, str]]:
    return parse_qsl(_frame(data), keep_blank_values=True)


def _openai_file() -> bytes:
    file = io.BytesIO()
    torch.save({"dims": {"n_mels": 80}, "model_state_dict": {"it": torch.ones(2)}}, file)
    return file.getvalue()


POSITION = LivePosition(640, 1, True, (FinalPiece(320, (1, 2)),), "en")
LIVE = LiveOptions(confirm_every_ms=1_000)
OPTIONS = DecodingOptions.greedy(language="en", temperatures=(0.0, 0.4), live=LIVE)
WINDOW = Window(1, 0, 3000, (25,), 60)
STATE = ResumePoint(Resume(WINDOW, (1, 2), 0.5, (-1.0, -2.0), (3,)), True, 0.25, {"en": 0.75})
TRANSCRIPTION = {"language": "en", "prompt": "names", "keywords": ["one", "two"]}
EVENTS = [
    {
        "type": "session.update",
        "event_id": "first",
        "session": {
            "type": "transcription",
            "audio": {
                "input": {
                    "format": {"type": "audio/pcm", "rate": 16_000},
                    "transcription": TRANSCRIPTION,
                    "turn_detection": {"type": "server_vad", "threshold": 0.5, "silence_duration_ms": 500},
                }
            },
        },
    },
    {
        "type": "transcription_session.update",
        "session": {"input_audio_format": "pcm16", "input_audio_transcription": TRANSCRIPTION},
    },
    {"type": "input_audio_buffer.append", "audio": "AAABAA=="},
    {"type": "input_audio_buffer.commit"},
]
MESSAGES = [
    {
        "type": "start",
        "sample_rate": 48_000,
        "languages": "en,fr",
        "mode": "full",
        "resume_point": {"state": "AAABAA==", "start_sample": 320, "num_ends": 1},
    },
    {"type": "change", "mode": "target-only", "added_latency_ms": 50},
    {"type": "finish"},
]
FORM = "model=whisper-1&prompt=names&temperature=0.4&response_format=verbose_json"
VAD = "vad_filter=1&vad_parameters[threshold]=0.4"
BLOCK = codec.candidates_to_proto(Candidates(1, 2, 3, (4, 5)))
PIECE = {"utterance": 1, "start_sample": 320, "is_utterance_end": True}
RIVA_ENDS = {
    "custom_configuration": {"gamma": "4", "neural_vad.onset": "0.5"},
    "endpointing_config": {"stop_history": 500, "stop_threshold": 0.5},
}
CONFIG = {"encoding": "LINEAR_PCM", "sample_rate_hertz": 16_000, "language_code": "en-US"}
SOUND = tone(0.1, 16_000)
FILES = [
    *(encode(SOUND, 16_000, *kind) for kind in (("WAV",), ("WAV", "ULAW"), ("OGG",), ("MP3",))),
    encode(np.stack([SOUND, SOUND], axis=1), 16_000, "FLAC"),
]
CONTAINERS = (("mp4", "aac"), ("webm", "libopus"))

# Each parser, and valid inputs, of which messages are serialized below.
PARSERS: dict[str, tuple[Callable[[bytes], None], list[Any]]] = {
    "verify-request": (
        verify_request,
        [
            verification_pb2.VerifyRequest(**message)
            for message in (
                {"hello": {"mode": 1, "decoding": codec.decoding_options_to_proto(OPTIONS)}},
                {"audio": {"encoding": 1, "data": b"abcd", "marks": [{"event": 1, "sample": 7}]}},
                {"audio": {"encoding": 2, "data": flac.encode(bytes(64))}},
                {"resume": codec.resume_to_proto(Resume(WINDOW, (1, 2), 0.5, (-1.0, -2.0)))},
                {"position": codec.live_position_to_proto(POSITION)},
            )
        ],
    ),
    "verify-response": (
        verify_response,
        [verification_pb2.VerifyResponse(welcome={"limits": codec.limits_to_proto(Limits())})],
    ),
    "share-request": (
        share_request,
        [
            verification_pb2.ShareRequest(
                candidates=[{"number": number, "candidates": BLOCK} for number in (1, 2)]
            )
        ],
    ),
    "share-response": (
        share_response,
        [
            verification_pb2.ShareResponse(events=[{"number": 1, **message}])
            for message in (
                {"window_opened": {"window": codec.window_to_proto(WINDOW), "opening": [1]}},
                {"commit": {"tokens": [1, 2], "log_probs": [-1, -1], "piece": PIECE}},
            )
        ],
    ),
    "vocabulary": (vocabulary, [codec.vocabulary_to_proto(VOCABULARY)]),
    "streaming-config": (
        streaming_config,
        [
            transcription_pb2.StreamingRecognitionConfig(
                config={"decoding": codec.decoding_options_to_proto(OPTIONS), "sample_rate_hertz": 16_000},
                endpointing={"threshold": 0.5},
            )
        ],
    ),
    "resume_point": (
        resume_point,
        [codec.resume_point_to_proto(each, WEIGHTS).state for each in (STATE, POSITION)],
    ),
    "riva-stream": (riva_stream, [riva_asr_pb2.StreamingRecognitionConfig(config={**CONFIG, **RIVA_ENDS})]),
    "riva-recording": (riva_recording, [riva_asr_pb2.RecognizeRequest(config=CONFIG, audio=b"abcd")]),
    "riva-audio": (riva_audio, [b"\x00\x40" + file for file in FILES[:2]]),
    "flac": (flac_piece, [flac.encode(bytes(range(200)))]),
    "recording": (
        recording,
        [*FILES, *(muxed(*kind, tone(0.1, 48_000)[:, None], 48_000) for kind in CONTAINERS)],
    ),
    "ctranslate2-file": (ctranslate2_file, [CTRANSLATE2_FILE]),
    "ggml-file": (ggml_file, [GGML_FILE]),
    "openai-file": (openai_file, [_openai_file()]),
    "realtime-event": (realtime_event, [json.dumps(event).encode() for event in EVENTS]),
    "live-message": (live_message, [json.dumps(message).encode() for message in MESSAGES]),
    "transcription-form": (
        form_of_transcription,
        [
            f"{FORM}&language=en&timestamp_granularities[]=word".encode(),
            b"model=whisper-1&stream=true&chunking_strategy[type]=server_vad&languages[]=en&keywords[]=one",
        ],
    ),
    "translation-form": (form_of_translation, [f"{FORM}&hotwords=one&{VAD}".encode()]),
}
for _, seeds in PARSERS.values():
    seeds[:] = [seed if isinstance(seed, bytes) else seed.SerializeToString() for seed in seeds]


def parse(name: str, data: bytes) -> None:
    """Run a parser; any error that it does not declare is a defect."""
    try:
        PARSERS[name][0](data)
    except DECLARED_ERRORS as error:
        assert isinstance(error, DecodeError) or "\n" not in shorten(str(error))
