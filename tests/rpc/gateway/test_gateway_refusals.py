"""A gateway refuses requests with a status in OpenAI's format, and keeps nothing."""

import errno
import tempfile
from contextlib import contextmanager
from pathlib import Path

import openai
import pytest

from specwhisper.errors import ServerFull, TargetUnavailable
from specwhisper_gateway.audio import uploads
from tests.rpc.client_scripts import RESPONSES, ScriptedTranscription
from tests.rpc.gateways import MODEL, RECORDING, WAV, gateway_for, running_gateway, wav

FULL = Path("/dev/full")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """Return the folder of uploads, which must be empty at the end."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    yield tmp_path
    assert list(tmp_path.iterdir()) == []


async def refusal(gateway, kind, **fields):
    """Return the error that OpenAI's client raises."""
    with pytest.raises(kind) as refused:
        await gateway.transcribe(**fields)
    return refused.value


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "the file is empty: it has 0 bytes."),
        (b"RIFF, or so", "the file cannot be decoded"),
        (WAV[:44], "the file holds no audio samples"),
    ],
)
async def test_a_file_that_is_not_audio(gateway, content, sentence):
    error = await refusal(gateway, openai.BadRequestError, file=("talk.wav", content))
    stream = await refusal(gateway, openai.BadRequestError, file=("talk.wav", content), stream=True)
    figures = await gateway.all_answered()
    assert sentence in error.body["message"].lower()
    assert (error.type, error.param, error.code) == ("invalid_request_error", "file", "invalid_file")
    assert stream.body == error.body
    assert figures['errors_total{kind="InvalidUpload"}'] == 2


async def test_invalid_forms(gateway):
    path = "/v1/audio/transcriptions"
    for media_type in ("application/x-www-form-urlencoded", "application/json", "", "x"):
        headers = {"Content-Type": media_type}
        no_form = await gateway.http.post(path, content=b"a=b&" * 100_000, headers=headers)
        assert (no_form.status_code, no_form.json()["error"]["param"]) == (400, "file")
    no_model = await gateway.http.post(path, files={"file": RECORDING})
    no_file = await gateway.http.post(path, data={"model": MODEL, "file": "talk.wav"})
    broken = await gateway.http.post(path, content=b"--x--", headers={"Content-Type": "multipart/form-data"})
    two = await gateway.http.post(
        path, files=[("file", RECORDING), ("file", RECORDING)], data={"model": MODEL}
    )
    long = await gateway.http.post(
        path, files={"file": RECORDING}, data={"model": MODEL, "prompt": "x" * 100_000}
    )
    replies = (no_model, no_file, broken, two, long)
    assert [reply.status_code for reply in replies] == [400] * 5
    assert [reply.json()["error"]["param"] for reply in replies] == ["model", "file", None, None, "prompt"]


async def test_an_unsupported_field_is_refused(gateway):
    for fields, param in (
        ({"language": "klingon"}, "language"),
        ({"languages": ["de", "xx"]}, "languages"),
        ({"temperature": "warm"}, "temperature"),
    ):
        error = await refusal(gateway, openai.BadRequestError, **fields)
        assert (error.param, error.code) == (param, "invalid_value")
        assert error.body["message"].endswith(".")


async def test_a_recording_that_is_too_long_is_refused():
    async with gateway_for(max_audio_seconds=0.1) as gateway:
        error = await refusal(gateway, openai.BadRequestError)
        stream = await refusal(gateway, openai.BadRequestError, stream=True)
    assert "0.1 s" in error.body["message"]
    assert (error.param, error.code) == ("file", "invalid_file")
    assert stream.body == error.body


@pytest.mark.parametrize("num_bytes", [100_000, 3_000_000])
async def test_a_request_that_is_too_large_is_refused(num_bytes):
    async with gateway_for(max_upload_bytes=100_000) as gateway:
        error = await refusal(
            gateway, openai.APIStatusError, file=("talk.wav", WAV + b"0" * (num_bytes - len(WAV)))
        )
        fits = await gateway.transcribe()
    assert (error.status_code, error.code) == (413, "request_too_large")
    assert "takes 100000" in error.body["message"]
    assert fits.text


@pytest.mark.skipif(not FULL.exists(), reason="needs a device that is always full")
@pytest.mark.parametrize("part", ["TemporaryFile", "NamedTemporaryFile"])
async def test_a_full_disk_is_507(monkeypatch, part):
    @contextmanager
    def on_full_disk(*args, **settings):
        with FULL.open("w+b") as file:
            yield file

    if part == "TemporaryFile":  # starlette's own buffer
        monkeypatch.setattr(tempfile, part, lambda *args, **settings: FULL.open("w+b", buffering=0))
    else:
        monkeypatch.setattr(uploads, part, on_full_disk)
    async with gateway_for() as gateway:
        with pytest.raises(openai.InternalServerError) as refused:
            await gateway.transcribe(file=("a.wav", wav(60.0)))
        figures = await gateway.all_answered()
        assert gateway.num_sessions == 0
        monkeypatch.undo()
        assert (await gateway.transcribe()).text
    assert (refused.value.status_code, refused.value.code) == (507, "storage_full")
    assert "no room on its disk" in refused.value.message
    assert figures['errors_total{kind="StorageFull"}'] == 1


async def test_another_write_error_is_not_507(monkeypatch):
    def denied(*args, **settings):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(uploads, "NamedTemporaryFile", denied)
    async with gateway_for() as gateway:
        with pytest.raises(openai.InternalServerError) as refused:
            await gateway.transcribe()
    assert refused.value.status_code == 500


async def test_an_unknown_path(gateway):
    nowhere = await gateway.http.get("/v1/nowhere")
    wrong_method = await gateway.http.get("/v1/audio/transcriptions")
    assert (nowhere.status_code, wrong_method.status_code) == (404, 405)
    sentence = "GET is not allowed at /v1/audio/transcriptions: use POST."
    assert wrong_method.json()["error"]["message"] == sentence
    assert nowhere.json()["error"] == {
        "message": "Invalid URL (GET /v1/nowhere)",
        "type": "invalid_request_error",
        "param": None,
        "code": None,
    }


async def test_a_full_draft_server_answers_when_to_try_again():
    async with gateway_for(ScriptedTranscription([], error=ServerFull("No room."))) as gateway:
        refused = await refusal(gateway, openai.RateLimitError)
        stream = await refusal(gateway, openai.RateLimitError, stream=True)
    assert (refused.type, refused.body["message"]) == ("requests", "No room.")
    assert stream.body == refused.body
    assert refused.response.headers["retry-after"] == "1"


async def test_an_error_in_the_middle_of_a_stream_ends_it():
    server = ScriptedTranscription(RESPONSES[:2], error=TargetUnavailable("The target went away."))
    async with gateway_for(server) as gateway:
        stream = await gateway.transcribe(stream=True)
        events = aiter(stream)
        assert (await anext(events)).delta == "Hello there."
        with pytest.raises(openai.APIError, match="The target went away"):
            await anext(events)
        figures = await gateway.all_answered()
    assert figures['errors_total{kind="TargetUnavailable"}'] == 1


async def test_no_draft_server(unused_tcp_port):
    async with running_gateway(f"127.0.0.1:{unused_tcp_port}") as gateway:
        error = await refusal(gateway, openai.InternalServerError)
        health = await gateway.http.get("/health")
        with pytest.raises(openai.InternalServerError):
            await gateway.api.models.list()
        metrics = await gateway.http.get("/metrics")
    assert (error.status_code, error.code, health.status_code) == (503, "unavailable", 503)
    assert "is it running?" in health.json()["error"]["message"]
    assert metrics.status_code == 200
