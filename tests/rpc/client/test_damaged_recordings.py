"""A recording that lacks something: its text and a warning at every door, or a refusal with strict."""

import io

import av
import grpc
import numpy as np
import openai
import pytest
from riva.client.proto import riva_asr_pb2 as riva_pb

from specwhisper.errors import InvalidAudio
from specwhisper.options import DecodingOptions
from specwhisper_client.api import TranscriptionClient
from tests.rpc.client_scripts import ScriptedTranscription, serving
from tests.rpc.gateways import MODEL, running_gateway, wav
from tests.rpc.riva_clients import in_thread, riva_client
from tests.rpc.services import running_pair
from tests.rpc.terminals import Streams

CUT_OFF = wav(2.0)[:-16_000]
WARNING = "is cut off or damaged: its container states 2.0 s, and 1.5 s could be decoded."


@pytest.fixture
def cut_off(tmp_path):
    path = tmp_path / "cut.wav"
    path.write_bytes(CUT_OFF)
    return path


async def test_the_command_line_warns_on_standard_error(cut_off):
    streams, strict = Streams(), Streams()
    async with serving(ScriptedTranscription()) as address:
        assert await streams.run([cut_off], address, quiet=True)
        assert not await strict.run(
            [cut_off], address, quiet=True, options=DecodingOptions.greedy(strict=True)
        )
    assert " ".join(streams.err.split()) == f"warning: Audio file '{cut_off}' {WARNING}"
    assert WARNING in " ".join(strict.err.split())


async def test_clients_have_warnings_in_the_result(cut_off):
    async with running_pair() as (_, draft), TranscriptionClient(draft.address) as client:
        streamed = await client.transcribe_file(cut_off)
        whole = await client.recognize(CUT_OFF)
        assert streamed.warnings == (f"Audio file '{cut_off}' {WARNING}",)
        assert whole.warnings == (f"The audio {WARNING}",)
        assert streamed.duration_s == whole.duration_s == 1.5
        for refused in (client.transcribe_file(cut_off, strict=True), client.recognize(CUT_OFF, strict=True)):
            with pytest.raises(InvalidAudio, match="is cut off or damaged"):
                await refused


async def test_riva_has_warnings_in_the_trailing_metadata():
    async with running_pair() as (_, draft), riva_client(draft) as riva:
        request = riva_pb.RecognizeRequest(audio=CUT_OFF)
        _, call = await in_thread(lambda: riva.service.stub.Recognize.with_call(request))
        assert ("specwhisper-warning", f"The audio {WARNING}") in call.trailing_metadata()
        request.config.custom_configuration["strict"] = "true"
        with pytest.raises(grpc.RpcError, match="is cut off or damaged"):
            await in_thread(lambda: riva.service.stub.Recognize(request))


async def test_the_gateway_has_warnings_in_a_header_and_in_the_last_event():
    async with serving(ScriptedTranscription()) as address, running_gateway(address) as gateway:
        create = gateway.api.audio.transcriptions.with_raw_response.create
        reply = await create(file=("cut.wav", CUT_OFF), model=MODEL)
        assert reply.headers["Specwhisper-Warnings"] == f"The file {WARNING}"
        events = await gateway.api.audio.transcriptions.create(
            file=("cut.wav", CUT_OFF), model=MODEL, stream=True
        )
        *_, last = [event async for event in events]
        assert last.warnings == [f"The file {WARNING}"]
        with pytest.raises(openai.BadRequestError, match=r"The file is cut off or damaged"):
            await create(file=("cut.wav", CUT_OFF), model=MODEL, extra_body={"strict": True})


async def test_the_gateway_reads_formats_that_only_a_suffix_names():
    noise = io.BytesIO()
    with av.open(noise, "w", format="g722") as output:
        stream = output.add_stream("g722", rate=16_000, layout="mono")
        frame = av.AudioFrame.from_ndarray(np.zeros((1, 16_000), np.int16), format="s16", layout="mono")
        frame.sample_rate = 16_000
        output.mux(stream.encode(frame))
        output.mux(stream.encode(None))
    server = ScriptedTranscription()
    async with serving(server) as address, running_gateway(address) as gateway:
        create = gateway.api.audio.transcriptions.create
        assert (await create(file=("call.g722", noise.getvalue()), model=MODEL)).text
        with pytest.raises(openai.BadRequestError, match="cannot be decoded"):
            await create(file=("call.%s/../", noise.getvalue()), model=MODEL)
