"""When servers or clients fail, the others continue and every slot is freed."""

import asyncio
import signal
from dataclasses import replace

import grpc.aio
import pytest

from experiments.common.servers.proxy import Proxy
from specwhisper.errors import SpecWhisperError, TargetUnavailable
from specwhisper.failpoints import DRAFT_POINTS, TARGET_POINTS, Failpoint, Failpoints, Fault
from specwhisper.rpc.channels import open_channel, with_true_status
from specwhisper.types import Limits
from specwhisper.wire import codec
from specwhisper.wire.v1 import transcription_pb2 as pb
from specwhisper.wire.v1 import transcription_pb2_grpc, verification_pb2
from specwhisper_draft_server.link import grpc_target_stream
from tests.nightly import mostly_nightly
from tests.rpc.network import BadNetwork, between
from tests.rpc.scrapes import collected, value
from tests.rpc.services import (
    MAX_SESSIONS,
    MODES,
    PROMPTLY_S,
    HalfSent,
    all_free,
    audio_requests,
    check_statistics,
    check_text,
    draft_server,
    error_of,
    eventually,
    is_one_sentence,
    recording,
    refusal,
    rest_of,
    streaming_config,
    target_alone,
    target_server,
)

pytestmark = pytest.mark.usefixtures("fast_retries")


async def test_no_target_then_a_target_on_the_same_channel(unused_tcp_port):
    address = f"127.0.0.1:{unused_tcp_port}"
    async with draft_server(address, connect_timeout_s=0.3) as draft:
        for call in (
            draft.stub.GetModel(pb.GetModelRequest()),
            with_true_status(draft.stub.StreamingRecognize(iter([streaming_config()]))),
            draft.stub.Recognize(pb.RecognizeRequest(audio=b"RIFF")),
        ):
            error = await error_of(call)
            assert type(error) is TargetUnavailable
            assert str(error) == f"No server answers at target {address}; is it running?"
        assert draft.service.num_sessions == 0
    async with draft_server(address, connect_timeout_s=30) as draft:
        early = asyncio.create_task(check_text(draft))  # waits for a target
        await eventually(lambda: draft.service.num_sessions == 1)
        async with target_server(port=unused_tcp_port):
            await early


@pytest.mark.parametrize("mode", mostly_nightly(["MODE_FULL", *MODES[:-1]]))
async def test_a_target_that_is_lost_mid_stream(mode):
    """The test cuts its connections; tests/e2e kills the process."""
    settings = {"connect_timeout_s": 10, "resume_timeout_s": 0.1}
    async with target_server() as first, draft_server(first.address, **settings) as draft:
        begun = HalfSent(draft, mode)
        await begun.begin()
        await first.server.stop(drain_timeout_s=0)
        error = await error_of(rest_of(begun.call))
        assert type(error) is TargetUnavailable
        assert is_one_sentence(error)
        await eventually(lambda: draft.service.num_sessions == 0, within_s=PROMPTLY_S)
        async with target_server(port=first.port) as second:
            await check_text(draft, 1.0)
            await all_free(second, draft)


async def test_a_client_whose_connection_drops(target, draft):
    """As when a laptop is closed."""
    async with Proxy.listening() as proxy:
        proxy.upstream = draft.address
        async with open_channel(proxy.address) as channel:
            await HalfSent(replace(draft, stub=transcription_pb2_grpc.TranscriptionStub(channel))).begin()
            assert target.num_free_slots == MAX_SESSIONS - 1
            proxy.upstream = None
            proxy.reset()
            await all_free(target, draft)
        await check_text(draft)


@pytest.mark.parametrize("mode", MODES[1:])
async def test_a_failed_draft_costs_speed_and_no_text(target, mode, caplog):
    failpoints = Failpoints({"draft.before": Failpoint(Fault.RAISE, 5)})
    async with draft_server(target.address, failpoints=failpoints) as draft:
        responses = await check_text(draft, 65.0, mode=mode, gamma=3)
        check_statistics(responses[-1].statistics, target_alone(65.0))
        await all_free(target, draft)
        figures = collected(draft.service.metrics.collected)
    assert value(figures, "specwhisper_draft_sessions_total", mode=mode[5:].lower(), outcome="complete") == 1
    if mode != "MODE_FULL":  # there the target may end before the draft begins
        assert "draft failed" in caplog.messages
        assert value(figures, "specwhisper_draft_failed_drafts_total") == 1
        assert responses[-1].statistics.num_self_decoded > 0


class Unwilling(BadNetwork):
    """A target with an open connection that sends no welcome, nothing after it, or the session's end."""

    def __init__(self, target: grpc.aio.Channel, *, welcomes: bool = True, finishes: bool = False) -> None:
        super().__init__(target)
        self._welcomes, self._finishes = welcomes, finishes

    async def Verify(self, requests, context):
        if self._welcomes:
            limits = codec.limits_to_proto(Limits())
            yield verification_pb2.VerifyResponse(welcome=verification_pb2.Welcome(limits=limits))
        if not self._finishes:
            await asyncio.Event().wait()

    async def Share(self, requests, context):
        event = verification_pb2.SharedEvent(number=1, is_finished=True)
        yield verification_pb2.ShareResponse(events=[event] * self._finishes)
        await asyncio.Event().wait()


@pytest.mark.parametrize(
    ("how", "sentence"),
    [
        ({"welcomes": False}, "has not accepted a session within"),
        ({}, "has sent nothing for"),
        ({"finishes": True}, "ended the session before its audio."),
    ],
)
async def test_a_target_that_sends_nothing_or_too_little_ends_the_session_with_an_error(
    how, sentence, monkeypatch
):
    """A stream that ended without an error would return half of the text."""
    monkeypatch.setattr(grpc_target_stream, "WELCOME_S", 0.2)
    monkeypatch.setattr(grpc_target_stream, "SILENCE_S", 0.2)
    async with (
        target_server() as target,
        between(target.address, Unwilling, **how) as (server, _),
        draft_server(server.address, resume_timeout_s=0.05) as draft,
    ):
        error = await error_of(draft.stub.StreamingRecognize(endless_audio()))
        await eventually(lambda: draft.service.num_sessions == 0, within_s=PROMPTLY_S)
    assert type(error) is TargetUnavailable
    assert f"Target {server.address} {sentence}" in str(error)


async def endless_audio():
    yield streaming_config()
    await asyncio.Event().wait()


async def test_a_client_that_does_not_read_delays_no_other_session(draft):
    """Its own session may wait for it; a session beside it does not."""
    options = [("grpc.http2.bdp_probe", 0)]
    async with grpc.aio.insecure_channel(draft.address, options=options) as channel:
        deaf = transcription_pb2_grpc.TranscriptionStub(channel).StreamingRecognize()
        await deaf.write(streaming_config(interim=True))
        for request in audio_requests(recording(65.0)):
            await deaf.write(request)
        await check_text(draft, 33.0)
        deaf.cancel()


ONE_WAY_MS = 150
CONNECT_TIMEOUT_S = 0.1  # less than one round trip over the proxy


async def test_a_target_with_a_round_trip_over_the_connect_timeout_takes_sessions():
    async with target_server() as target, Proxy.listening() as proxy:
        proxy.upstream, proxy.latency_ms = target.address, ONE_WAY_MS
        async with draft_server(proxy.address, connect_timeout_s=CONNECT_TIMEOUT_S) as draft:
            await check_text(draft, 1.0)
            await all_free(target, draft)


LENGTH_S = 40.0


async def test_every_failpoint_is_reached_more_than_once():
    sent: list[int] = []

    def failing(points: tuple[str, ...]) -> Failpoints:
        return Failpoints({point: Failpoint(Fault.STOP, 2) for point in points}, sent.append)

    async with (
        target_server(failpoints=failing(TARGET_POINTS)) as target,
        draft_server(target.address, failpoints=failing(DRAFT_POINTS)) as draft,
    ):
        # The target waits for drafts: others may end before the draft's second step.
        await check_text(draft, LENGTH_S, interim=True, mode="MODE_PIPELINED")
    assert sent == [signal.SIGSTOP] * (len(TARGET_POINTS) + len(DRAFT_POINTS))


@pytest.mark.parametrize("point", TARGET_POINTS)
async def test_a_failpoint_that_raises_ends_only_its_session(point):
    """An error of the call that sessions share does not even end them: they resume."""
    failpoints = Failpoints({point: Failpoint(Fault.RAISE, 3)})
    async with target_server(failpoints=failpoints) as target, draft_server(target.address) as draft:
        if not point.startswith("send"):
            error = await refusal(draft, streaming_config(), *audio_requests(recording(LENGTH_S)))
            assert type(error) is SpecWhisperError
            await all_free(target, draft)
        await check_text(draft, LENGTH_S)
