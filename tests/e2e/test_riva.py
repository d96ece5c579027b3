"""Riva's service on a draft server's process: on by default, off with its flag."""

import io

import grpc
import pytest
import riva.client
from riva.client.proto import riva_asr_pb2


@pytest.fixture
def client():
    opened = []

    def open_client(server) -> riva.client.ASRService:
        opened.append(riva.client.Auth(uri=server.address))
        return riva.client.ASRService(opened[-1])

    yield open_client
    for auth in opened:
        auth.channel.close()


@pytest.mark.nightly
def test_rivas_client_transcribes_a_file_live_and_whole(pair, noise, client):
    service, recording = client(pair.draft), noise(3)
    config = riva.client.RecognitionConfig(language_code="en-US")
    whole = service.offline_recognize(recording.read_bytes(), config)
    assert whole.results[0].alternatives[0].transcript
    assert whole.results[0].audio_processed == pytest.approx(3.0)
    shown = io.StringIO()
    with riva.client.AudioChunkFileIterator(recording, 1_600) as chunks:
        live = service.streaming_response_generator(
            chunks, riva.client.StreamingRecognitionConfig(config=config, interim_results=True)
        )
        riva.client.print_streaming(live, output_file=shown, show_intermediate=True)


@pytest.mark.nightly
def test_the_service_can_be_turned_off(pair, client, start_server, checkpoints):
    server = start_server(
        "specwhisper_draft_server",
        "--draft-model",
        checkpoints.draft,
        "--target",
        pair.target.address,
        "--no-riva",
    )
    with pytest.raises(grpc.RpcError) as refused:
        client(server).stub.GetRivaSpeechRecognitionConfig(riva_asr_pb2.RivaSpeechRecognitionConfigRequest())
    assert refused.value.code() is grpc.StatusCode.UNIMPLEMENTED
