"""Draw a hostile client's input to a gateway, mostly almost valid."""

import base64
import dataclasses
import json
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from hypothesis import strategies as st

from specwhisper_gateway.audio.fields import TranscriptionFields
from specwhisper_gateway.realtime.commands import KNOWN
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
head_lines = st.lists(
    st.sampled_from(
        [
            b"Content-Length: 5\r\n",
            b"Content-Length: " + b"9" * 4_400 + b"\r\n",
            b"Content-Length: -1\r\n",
            b"Transfer-Encoding: chunked\r\n",
            b"Transfer-Encoding: gzip, chunked\r\n",
            b"Content-Type: multipart/form-data; boundary=x\r\n",
            b"Connection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n",
            b"Sec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==\r\n",
            b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n",
            b"Expect: 100-continue\r\n",
            b" folded\r\n",
            b"\r\n",
        ]
    )
    | st.binary(max_size=30),
    max_size=6,
)


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


# Events of the realtime API

pcm = st.binary(max_size=4_000).map(lambda samples: base64.b64encode(samples).decode())
audio = mostly(pcm, words | values | pcm.map(lambda text: text[:-1]) | pcm.map(lambda text: f"{text[:7]}\n"))
odd = words | values
audio_inputs = st.fixed_dictionaries(
    {},
    optional={
        "format": mostly(
            st.fixed_dictionaries({"type": st.just("audio/pcm"), "rate": mostly(st.just(16_000), values)}),
            values,
        ),
        "transcription": mostly(
            st.fixed_dictionaries(
                {},
                optional={
                    "model": mostly(st.just(MODEL), odd),
                    "language": mostly(st.just("en"), odd),
                    "prompt": mostly(words, odd),
                    "keywords": mostly(st.lists(words, max_size=3), odd),
                },
            ),
            st.dictionaries(words, values, max_size=2) | values,
        ),
        "turn_detection": mostly(
            st.none()
            | st.fixed_dictionaries(
                {},
                optional={
                    "type": st.sampled_from(["server_vad", "semantic_vad"]) | words,
                    "eagerness": st.sampled_from(["low", "high", "auto"]) | values,
                    "threshold": st.floats(0, 1) | numbers,
                    "prefix_padding_ms": st.integers(0, 500) | numbers,
                    "silence_duration_ms": st.integers(0, 2_000) | numbers,
                },
            ),
            values,
        ),
    },
)
flat = st.fixed_dictionaries(
    {},
    optional={
        "input_audio_format": mostly(st.just("pcm16"), values),
        "input_audio_transcription": mostly(st.fixed_dictionaries({"prompt": words}), values),
        "turn_detection": st.none() | values,
    },
)
sessions = mostly(
    st.fixed_dictionaries({"audio": st.fixed_dictionaries({"input": audio_inputs})}) | flat,
    st.dictionaries(words, values, max_size=2) | values,
)
events = (
    st.fixed_dictionaries({"type": st.sampled_from(KNOWN)}, optional={"event_id": odd})
    | st.fixed_dictionaries(
        {"type": st.sampled_from(KNOWN[:2]), "session": sessions}, optional={"event_id": odd}
    )
    | st.fixed_dictionaries({"type": st.just("input_audio_buffer.append"), "audio": audio})
)


def sendable(text: str) -> str:
    """Return the text as a WebSocket can send it: valid UTF-8."""
    return text.encode("utf-8", "replace").decode()


def framed(messages: Json) -> st.SearchStrategy[str | bytes]:
    """Draw messages, mostly JSON text."""
    return mostly(
        messages.map(json.dumps), values.map(json.dumps) | words.map(sendable) | st.binary(max_size=4_000)
    )


# Messages of the page

way = {"mode": mostly(st.sampled_from(["full", "target-only"]), odd)}
started = st.fixed_dictionaries(
    {"type": st.just("start"), "sample_rate": mostly(st.sampled_from([8_000, 16_000, 48_000]), numbers)},
    optional=way
    | {
        "added_latency_ms": st.sampled_from([0, 1]) | values,
        "languages": mostly(st.sampled_from(["", "en", "xx,en"]), odd),
        "speakers": st.booleans() | values,
        "resume_point": st.fixed_dictionaries(
            {"state": mostly(pcm, odd), "start_sample": st.sampled_from([0, 320, 321, 2**62]) | numbers},
            optional={"num_ends": st.integers(0, 9) | numbers},
        ),
    },
)
changes = st.fixed_dictionaries(
    {"type": st.sampled_from(["change", "change", "finish", "start"])}, optional=way
)
