"""Draw a hostile client's input to a gateway, mostly almost valid."""

import base64
import dataclasses
import json
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from hypothesis import strategies as st

from specwhisper_gateway.audio.fields import TranscriptionFields
from tests.rpc.gateways import MODEL, wav

RECORDING = wav(0.3)
HALF_CHARACTER = "\ud800"  # valid in JSON, invalid in UTF-8

Json = st.SearchStrategy[Any]


def mostly(good: Json, bad: Json) -> Json:
    """Draw a good value, one in four a bad one."""
    return st.one_of(good, good, good, bad)


# Values of the wrong kind.
words = st.text(max_size=40) | st.sampled_from(
    ["", "nan", "-1", "1e999", "true", "null", "\0", HALF_CHARACTER, "9" * 5_000]
)
latin = st.text(st.characters(max_codepoint=255, exclude_characters="\r\n\0"), max_size=60)
numbers = st.floats() | st.integers() | st.sampled_from([2**63, -(2**63), 10**30, 10**400])
values: Json = st.recursive(
    st.none() | st.booleans() | numbers | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=8,
)

# Requests

methods = st.sampled_from(["GET", "POST", "PUT", "DELETE", "OPTIONS", "HEAD", "PATCH", "PROPFIND"])
header_names = st.sampled_from(
    ["Accept", "Authorization", "Content-Type", "Cookie", "Host", "Origin", "Range", "X-Forwarded-For"]
)
odd_headers = st.sampled_from(
    ["http://[", "http://a:b", "null", "multipart/form-data; boundary=", "a; b=\xff"]
)
headers = st.lists(st.tuples(header_names, odd_headers | latin.map(str.strip)), max_size=4)


@st.composite
def targets(draw: st.DrawFn, paths: Sequence[str]) -> str:
    """Draw a valid or almost valid path, and a query."""
    path = draw(st.sampled_from(paths))
    for part in ("{name}.wav", "{name}", "{model:path}"):
        kept = draw(st.sampled_from(["", "/", "/.%"]))
        path = path.replace(part, quote(draw(words), safe=kept, errors="replace"))
    path += draw(st.sampled_from(["", "", "", "/", "/..", "%00", "%ff", "/../../etc/passwd", ";x"]))
    return path + draw(
        st.sampled_from(["", "", "?intent=transcription", "?model=%ff&model=%00", "?" + "a=b&" * 500])
    )


# Forms

form_fields = [each.name for each in dataclasses.fields(TranscriptionFields)]
names = st.sampled_from([*form_fields, "hotwords", "chunking_strategy[type]"])


@st.composite
def recordings(draw: st.DrawFn) -> bytes:
    """Draw a recording, a truncated one, or one with a damaged header."""
    content = bytearray(draw(mostly(st.just(RECORDING), st.binary(max_size=200))))
    del content[draw(st.just(len(content)) | st.integers(0, len(content))) :]
    for at, byte in draw(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 255)), max_size=4)):
        if at < len(content):
            content[at] = byte
    return bytes(content)


def part(name: bytes, value: bytes, more: bytes = b"") -> bytes:
    """Return a part of a form whose boundary is ``x``."""
    head = b'--x\r\nContent-Disposition: form-data; name="' + name + b'"' + more
    return head + b"\r\n\r\n" + value + b"\r\n"


@st.composite
def parts(draw: st.DrawFn) -> bytes:
    """Draw a part of a form, with a value that may be invalid."""
    name = draw(names | names.map("{}[]".format) | st.just("file") | latin)
    text = words.map(lambda text: text.encode("utf-8", "surrogatepass"))
    more = st.sampled_from(
        [
            b"",
            b'; filename="a.wav"',
            b"; filename*=utf-8''%ff",
            b'; filename="',
            b"\r\nContent-Type: text/plain; charset=utf-7",
            b"\r\nX: " + b"y" * 9_000,
        ]
    )
    value = draw(text | st.binary(max_size=60) | recordings())
    return part(name.encode("latin-1", "replace"), value, draw(more))


# Messages on WebSockets

pcm = st.binary(max_size=4_000).map(lambda samples: base64.b64encode(samples).decode())
odd = words | values | pcm | pcm.map(lambda text: text[:-1]) | pcm.map(lambda text: f"{text[:7]}\n")
AUDIO = "AAAA" * 800
SERVER_VAD = {"type": "server_vad", "threshold": 0.5, "prefix_padding_ms": 300, "silence_duration_ms": 500}
SESSIONS: list[dict[str, Any]] = [
    {
        "type": "transcription",
        "audio": {
            "input": {
                "format": {"type": "audio/pcm", "rate": 16_000},
                "transcription": {"model": MODEL, "language": "en", "prompt": "Bees", "keywords": ["a"]},
                "turn_detection": SERVER_VAD,
            }
        },
    },
    {"audio": {"input": {"turn_detection": {"type": "semantic_vad", "eagerness": "high"}}}},
    {"audio": {"input": {"turn_detection": None}}},
]
FLAT = {
    "input_audio_format": "pcm16",
    "input_audio_transcription": {"prompt": "Bees"},
    "turn_detection": SERVER_VAD,
}
EVENTS: list[dict[str, Any]] = [
    *({"type": "session.update", "event_id": "a", "session": each} for each in SESSIONS),
    {"type": "transcription_session.update", "session": FLAT},
    *[{"type": "input_audio_buffer.append", "audio": AUDIO}] * 3,
    {"type": "input_audio_buffer.commit", "event_id": "b"},
    {"type": "input_audio_buffer.clear"},
    {"type": "input_audio_buffer.hint", "text": "Bees", "audio_start_ms": 0},
]
START = {
    "type": "start",
    "sample_rate": 16_000,
    "mode": "full",
    "added_latency_ms": 0,
    "languages": "en",
    "speakers": True,
    "resume_point": {"state": AUDIO[:8], "start_sample": 320, "num_ends": 1},
}
CHANGES = [{"type": "change", "mode": "target-only"}, {"type": "change"}, {"type": "finish"}, START]


def changed(draw: st.DrawFn, value: Any) -> Any:
    """Draw a value in place of a member of an object at any depth, without it, or beside it."""
    if not isinstance(value, dict) or not value:
        return draw(odd)
    name = draw(st.sampled_from(sorted(value)))
    if isinstance(value[name], dict) and draw(st.booleans()):
        return value | {name: changed(draw, value[name])}
    others = {each: kept for each, kept in value.items() if each != name}
    return draw(st.sampled_from([others, others | {name: draw(odd)}, value | {draw(words): draw(odd)}]))


@st.composite
def frames(draw: st.DrawFn, messages: Sequence[dict[str, Any]]) -> str | bytes:
    """Draw a message as it is, with one change, or anything else."""
    message = draw(st.sampled_from(messages))
    kind = draw(st.sampled_from(["valid", "changed", "changed", "other"]))
    if kind == "other":
        return draw(values.map(json.dumps) | words.map(sendable) | st.binary(max_size=4_000))
    return json.dumps(changed(draw, message) if kind == "changed" else message)


def sendable(text: str) -> str:
    """Return the text as a WebSocket can send it: valid UTF-8."""
    return text.encode("utf-8", "replace").decode()
