"""Riva's service on the draft server's port, called by Riva's own client."""

import io
import json
import threading

import jiwer
import pytest
import riva.client
import soundfile
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from riva.client.proto import riva_asr_pb2 as riva_pb
from riva.client.proto import riva_audio_pb2

from experiments.common.models.speech import talk
from experiments.demo_pair.vocabulary import words
from specwhisper.model.checkpoints.checkpoint import load_checkpoint
from specwhisper.model.checkpoints.names import DEMO_FOLDER
from specwhisper_draft_server.requests import MAX_PIECE_BYTES
from specwhisper_riva.replies import LiveReplies
from specwhisper_riva.requests import StreamedAudio
from specwhisper_riva.service import _decoded, _our_requests
from specwhisper_riva.settings import SERVICE_NAME
from tests.rpc.riva_clients import in_thread, live_config, pcm_config, pieces, riva_client, transcript
from tests.rpc.services import (
    RATE,
    all_free,
    draft_server,
    eventually,
    expected_finals,
    recording,
    target_alone,
    target_server,
)
from tests.rpc.speaking import speaking_pair

SAMPLES = DEMO_FOLDER / "samples"
TEXT = json.loads((SAMPLES / "metadata.jsonl").read_text(encoding="utf-8").splitlines()[0])["text"]
FORCED = {"force_eou": "true"}
PHONE_CALL = "01_phone_call.flac"
CODECS = {
    "wav that is called PCM": ("WAV", "PCM_16", riva_audio_pb2.LINEAR_PCM),
    "flac": ("FLAC", "PCM_24", riva_audio_pb2.ENCODING_UNSPECIFIED),
    "opus": ("OGG", "OPUS", riva_audio_pb2.OGGOPUS),
    "mu-law": ("RAW", "ULAW", riva_audio_pb2.MULAW),
}


def written(pcm: bytes, container: str, subtype: str) -> bytes:
    file = io.BytesIO()
    with soundfile.SoundFile(file, "w", RATE, 1, subtype, format=container) as sound:
        sound.buffer_write(pcm, "int16")
    return file.getvalue()


@pytest.mark.parametrize("kind", CODECS)
async def test_a_recording_of_each_format(client, kind):
    container, subtype, encoding = CODECS[kind]
    data = written(recording(3.0), container, subtype)
    config = riva_pb.RecognitionConfig(encoding=encoding, language_code="en-US")
    if container == "RAW":
        config.sample_rate_hertz = RATE
    (result,) = (await client.recognize(data, config)).results
    if subtype.startswith("PCM"):  # the others are lossy
        assert transcript([result]) == "".join(text for *_, text in expected_finals(target_alone(3.0)))
    assert result.channel_tag == 1
    assert result.audio_processed == pytest.approx(3.0, abs=0.01)


@pytest.mark.nightly
async def test_words_and_times_of_a_recording():
    data = (SAMPLES / PHONE_CALL).read_bytes()
    config = riva_pb.RecognitionConfig(
        language_code="en-US",
        max_alternatives=3,
        enable_automatic_punctuation=True,
        enable_word_time_offsets=True,
        model="demo-target",
    )
    async with (
        target_server(checkpoint=load_checkpoint("demo-target")) as target,
        draft_server(target.address, checkpoint=load_checkpoint("demo-draft-tiny")) as draft,
        riva_client(draft) as client,
    ):
        response = await client.recognize(data, config)
        (result,) = response.results
        (whole,) = result.alternatives
        assert jiwer.wer(" ".join(words(TEXT)), " ".join(words(whole.transcript))) < 0.1
        assert [word.word for word in whole.words] == whole.transcript.split()
        times = [time for word in whole.words for time in (word.start_time, word.end_time)]
        assert times == sorted(times)
        assert 0 <= times[0] < times[-1] <= 13_339
        assert all(0 < word.confidence <= 1 for word in whole.words)
        assert 0.5 < whole.confidence <= 1
        assert list(whole.language_code) == ["en"]
        plain = await client.recognize(data, riva_pb.RecognitionConfig())
        assert not plain.results[0].alternatives[0].words
        await all_free(target, draft)


async def test_large_pieces_are_decoded_in_parts():
    """Decoding runs in the event loop, and a message may have 32 MiB."""

    async def requests():
        yield riva_pb.StreamingRecognizeRequest(audio_content=bytes(10 * MAX_PIECE_BYTES + 1))

    audio = StreamedAudio(pcm_config(encoding=riva_audio_pb2.MULAW))
    sizes = [len(samples) async for samples in _decoded(requests(), audio)]
    assert max(sizes) == 2 * MAX_PIECE_BYTES
    assert sum(sizes) == 2 * (10 * MAX_PIECE_BYTES + 1)


async def test_the_client_ends_utterances():
    """As ``force_eou``: with the audio of the same message, or after that of the one before."""

    async def requests():
        yield riva_pb.StreamingRecognizeRequest(runtime_config=FORCED)  # there is no audio yet
        yield riva_pb.StreamingRecognizeRequest(audio_content=bytes(400), runtime_config=FORCED)
        yield riva_pb.StreamingRecognizeRequest(audio_content=bytes(600))
        yield riva_pb.StreamingRecognizeRequest(runtime_config=FORCED)
        yield riva_pb.StreamingRecognizeRequest(runtime_config={"force_eou": "false"})

    config = riva_pb.StreamingRecognitionConfig(config=pcm_config())
    replies = LiveReplies(interim_results=False)
    ours = [request async for request in _our_requests(config, requests(), replies, None)]
    assert ours[0].HasField("streaming_config")
    said = [request.HasField("end_utterance") or len(request.audio_content) for request in ours[1:]]
    assert said == [400, True, 600, True]


REQUEST_ID = riva.client.proto.riva_common_pb2.RequestId(value="call-7")


async def test_a_response_has_the_id_of_its_request(client):
    config, pcm = pcm_config(), recording(1.0)
    whole = riva_pb.RecognizeRequest(config=config, audio=pcm, id=REQUEST_ID)
    assert (await in_thread(lambda: client.service.stub.Recognize(whole))).id == REQUEST_ID
    assert not (await client.recognize(pcm, config)).HasField("id")


@pytest.mark.usefixtures("energy_vad")
async def test_responses_to_a_stream_have_its_id_and_leaving_it_frees_its_session():
    may_end = threading.Event()

    def requests():
        config = live_config(language_code="en")
        yield riva_pb.StreamingRecognizeRequest(streaming_config=config, id=REQUEST_ID)
        yield riva_pb.StreamingRecognizeRequest(runtime_config={"unknown": "ignored"})
        for piece in pieces(talk()):
            yield riva_pb.StreamingRecognizeRequest(audio_content=piece)
        may_end.wait()

    def listen_and_leave(client):
        call = client.service.stub.StreamingRecognize(requests())
        for response in call:
            assert response.id == REQUEST_ID
            if response.results[0].is_final:
                break
        call.cancel()

    async with speaking_pair() as (target, draft):
        try:
            async with riva_client(draft) as client:
                await in_thread(lambda: listen_and_leave(client))
                await all_free(target, draft)
                await eventually(lambda: draft.server.calls.num_open == 0)
        finally:
            may_end.set()


async def test_health_and_reflection_list_the_service(client):
    stub = health_pb2_grpc.HealthStub(client.draft.channel)
    reply = await stub.Check(health_pb2.HealthCheckRequest(service=SERVICE_NAME))
    assert reply.status == health_pb2.HealthCheckResponse.SERVING
    stream = reflection_pb2_grpc.ServerReflectionStub(client.draft.channel).ServerReflectionInfo()
    await stream.write(reflection_pb2.ServerReflectionRequest(file_containing_symbol=SERVICE_NAME))
    reply = await stream.read()
    await stream.done_writing()
    assert reply.file_descriptor_response.file_descriptor_proto
