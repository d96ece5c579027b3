"""Clients of a silent draft server with an open connection continue at another."""

import pytest
from riva.client.proto import riva_asr_pb2 as riva_pb
from riva.client.proto.riva_asr_pb2_grpc import RivaSpeechRecognitionStub

from experiments.common.models.speech import spoken_utterances, talk
from experiments.common.servers.proxy import Proxy
from specwhisper.errors import TargetUnavailable
from specwhisper.options import DecodingOptions
from specwhisper.rpc.channels import with_true_status
from specwhisper.types import SAMPLE_RATE
from specwhisper.wire.v1 import transcription_pb2 as pb
from specwhisper_client import calls
from specwhisper_client.api import TranscriptionClient
from specwhisper_draft_server import responses
from tests.rpc.client_scripts import ScriptedTranscription, serving
from tests.rpc.network import CutClients, between
from tests.rpc.outages import breaking_pair
from tests.rpc.riva_clients import live_config
from tests.rpc.services import (
    all_free,
    audio_requests,
    draft_server,
    eventually,
    recording,
    rest_of,
    target_server,
    wav,
)
from tests.rpc.services import target_alone as alone
from tests.rpc.speaking import Listener, final_results, live_client, speaking_pair, texts_of
from tests.rpc.speaking import config as live_request

SILENCE_S = 1.0
HEARTBEAT_S = 0.05
BEGUN = 10 * SAMPLE_RATE * 2  # bytes: within the third utterance
LONG = 40  # heartbeats: twice the silence that would be too long
FEW = 5
HEARTBEAT = pb.StreamingRecognizeResponse(heartbeat=True)
pytestmark = pytest.mark.usefixtures("energy_vad", "fast_retries")


@pytest.fixture(autouse=True)
def short_timeouts(monkeypatch, caplog):
    monkeypatch.setattr(calls, "SILENCE_S", SILENCE_S)
    monkeypatch.setattr(responses, "HEARTBEAT_S", HEARTBEAT_S)
    caplog.set_level("INFO")


class HeartbeatProxy(CutClients):
    """A proxy that counts heartbeats."""

    def __init__(self, draft) -> None:
        super().__init__(draft, [])
        self.num_heartbeats = 0

    async def StreamingRecognize(self, requests, context):
        async for response in super().StreamingRecognize(requests, context):
            self.num_heartbeats += response == HEARTBEAT
            yield response


def check_silent(caplog) -> None:
    """Check that the server was lost by its silence, before gRPC's keepalive."""
    [lost] = [record for record in caplog.records if record.message == "server lost"]
    assert "nothing has come for 1 s" in lost.error


async def test_a_recording_continues_at_another_server(tmp_path, caplog, choose_first):
    path = wav(tmp_path / "audio.wav", recording(95.0))
    async with (
        target_server() as target,
        draft_server(target.address) as first,
        draft_server(target.address) as second,
        Proxy.listening() as proxy,
    ):
        proxy.upstream = first.address
        async with TranscriptionClient(f"{proxy.address},{second.address}") as client:
            transcription = client.stream_file(path, DecodingOptions.greedy(language="en"))
            segments = []
            async for update in transcription:
                segments += update.segments
                if segments:
                    proxy.freeze()
            assert transcription.num_resumes == 1
            check_silent(caplog)
            proxy.unfreeze()
            await all_free(target, first)
    assert [s.tokens for s in segments] == [s.tokens for s in alone(95.0).segments]


async def test_clients_leave_a_server_that_never_answers(tmp_path, monkeypatch, choose_first):
    monkeypatch.setattr(calls, "WELCOME_S", 0.5)
    path = wav(tmp_path / "audio.wav", recording(5.0))
    silent = ScriptedTranscription([], reads_everything=False, hangs=True)
    async with serving(silent) as address, target_server() as target, draft_server(target.address) as draft:
        async with TranscriptionClient(f"{address},{draft.address}") as client:
            transcript = await client.transcribe_file(path, DecodingOptions.greedy(language="en"))
        assert [s.tokens for s in transcript.segments] == [s.tokens for s in alone(5.0).segments]
        async with live_client(address, reconnect_s=0.0) as client:
            with pytest.raises(TargetUnavailable, match=r"was lost \(nothing has come for 0.5 s\)"):
                async for _ in client:
                    pass


async def test_a_server_without_text_is_not_lost():
    """It sends heartbeats while its client is silent."""
    async with (
        speaking_pair() as (_, draft),
        between(draft.address, HeartbeatProxy) as (proxy, network),
        live_client(proxy.address, with_statistics=True) as client,
    ):
        listener = Listener(client)
        await client.send(talk()[:BEGUN])
        await listener.received(8)
        before = network.num_heartbeats
        await eventually(lambda: network.num_heartbeats >= before + LONG, within_s=30.0)
        await listener.end(talk()[BEGUN:])
        assert client.num_reconnects == 0
        # Heartbeats are not passed on.
        assert all(update.statistics or update.speech for update in listener.updates)
        listener.check(spoken_utterances(talk()))


async def test_heartbeats_continue_without_a_target():
    async with breaking_pair() as (targets, draft):
        call = with_true_status(draft.stub.StreamingRecognize())
        request = live_request()
        request.streaming_config.with_heartbeats = True
        await call.write(request)
        while not (await call.read()).HasField("model"):
            pass  # a heartbeat, on a busy machine
        for piece in audio_requests(talk()[:BEGUN]):
            await call.write(piece)
        while not (await call.read()).results:
            pass
        await targets.stop()
        num_heartbeats = 0
        while num_heartbeats < FEW:
            num_heartbeats += await call.read() == HEARTBEAT
        await targets.start()
        for piece in audio_requests(talk()[BEGUN:]):
            await call.write(piece)
        await call.done_writing()
        assert texts_of(final_results(await rest_of(call)))[3]  # after the outage


async def test_heartbeats_are_sent_only_on_request():
    """Other clients would show an empty text."""
    async with speaking_pair() as (_, draft):
        riva = with_true_status(RivaSpeechRecognitionStub(draft.channel).StreamingRecognize())
        await riva.write(
            riva_pb.StreamingRecognizeRequest(streaming_config=live_config(language_code="en-US"))
        )
        theirs, ours = (with_true_status(draft.stub.StreamingRecognize()) for _ in range(2))
        asking = live_request()
        asking.streaming_config.with_heartbeats = True
        await theirs.write(live_request())
        await ours.write(asking)
        for request in audio_requests(talk()):
            await theirs.write(request)
            await riva.write(riva_pb.StreamingRecognizeRequest(audio_content=request.audio_content))
        num_heartbeats = 0
        while num_heartbeats < FEW:
            num_heartbeats += await ours.read() == HEARTBEAT
        for call in (theirs, riva):
            await call.done_writing()
            answers = await rest_of(call)
            assert answers and all(answer.ByteSize() for answer in answers)
            assert not any(getattr(answer, "heartbeat", False) for answer in answers)
        ours.cancel()
