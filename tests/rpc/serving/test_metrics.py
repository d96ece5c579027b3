"""Servers export metrics; events that never happened are 0."""

import asyncio
import ssl
import urllib.error
from functools import partial

import pytest
import trustme

from experiments.common.models.speech import LENGTH_S as LIVE_LENGTH_S
from experiments.common.models.speech import SPANS, talk
from specwhisper import __version__
from specwhisper.errors import InvalidRequest, ServerFull
from specwhisper.observe.metrics import ServerMetrics
from specwhisper.rpc.channels import Credentials
from specwhisper.rpc.serving_options import ServingOptions
from specwhisper.rpc.tls import ClientTls
from specwhisper.rpc.tokens import Tokens
from specwhisper.types import Limits
from specwhisper_top.figures import read_all
from tests.certificates import save
from tests.rpc.network import cut_network
from tests.rpc.scrapes import collected, parsed, scrape, value
from tests.rpc.services import (
    MAX_SESSIONS,
    all_free,
    audio_requests,
    draft_server,
    error_of,
    eventually,
    recording,
    running,
    stream,
    streaming_config,
    target_server,
)
from tests.rpc.speaking import listen, speaking_draft, speaking_target

LENGTH_S = 70.0
TARGET, DRAFT = "specwhisper_target", "specwhisper_draft"


async def test_a_session_is_counted_on_both_servers(target, draft):
    responses = await stream(draft, recording(LENGTH_S), mode="MODE_FULL")
    await all_free(target, draft)
    at_target, at_draft = (collected(server.service.metrics.collected) for server in (target, draft))
    statistics = responses[-1].statistics
    for samples, prefix in ((at_target, TARGET), (at_draft, DRAFT)):
        assert value(samples, f"{prefix}_sessions_total", mode="full", outcome="complete") == 1
        assert value(samples, f"{prefix}_sessions_total", mode="full", outcome="failed") == 0
        assert value(samples, f"{prefix}_active_sessions") == 0
        assert value(samples, f"{prefix}_audio_seconds_total") == pytest.approx(LENGTH_S)
        assert value(samples, f"{prefix}_windows_total") == statistics.num_windows
        assert value(samples, f"{prefix}_committed_tokens_total") == statistics.num_committed
        assert value(samples, f"{prefix}_verified_tokens_total") == statistics.num_verified
        assert value(samples, f"{prefix}_accepted_tokens_total") == statistics.num_accepted
        assert value(samples, f"{prefix}_self_decoded_tokens_total") == statistics.num_self_decoded
        assert value(samples, f"{prefix}_session_forward_passes_total") == statistics.num_forwards
        assert value(samples, f"{prefix}_forward_pass_accepted_tokens_sum") == statistics.num_accepted
        assert value(samples, f"{prefix}_draining") == 0
    assert value(at_draft, f"{DRAFT}_drafted_tokens_total") == statistics.num_drafted
    assert value(at_draft, f"{DRAFT}_first_text_seconds_count", kind="recording") == 1
    assert value(at_draft, f"{DRAFT}_held_audio_bytes") == 0
    assert value(at_target, f"{TARGET}_slots") == MAX_SESSIONS
    assert value(at_target, f"{TARGET}_slots_in_use") == 0
    assert value(at_target, f"{TARGET}_queue_seconds_count") == statistics.num_forwards
    assert value(at_target, f"{TARGET}_encode_seconds_count") == statistics.num_windows
    assert value(
        at_target,
        f"{TARGET}_build_info",
        model="scripted",
        version=__version__,
        dtype="float32",
        device="cpu",
    )


async def test_sessions_are_counted_by_outcome():
    async with (
        target_server(limits=Limits(max_sessions=1)) as target,
        draft_server(target.address, connect_timeout_s=0.5) as draft,
    ):
        call = draft.stub.StreamingRecognize()
        for request in (streaming_config(mode="MODE_SYNC"), *audio_requests(recording(1.0))):
            await call.write(request)
        await call.read()
        await eventually(lambda: target.num_free_slots == 0)
        samples = collected(target.service.metrics.collected)
        assert value(samples, f"{TARGET}_slots_in_use") == value(samples, f"{TARGET}_active_sessions") == 1
        held = partial(value, name=f"{TARGET}_held_audio_bytes")
        metrics = target.service.metrics.collected
        await eventually(lambda: held(collected(metrics)) == len(recording(1.0)))
        refused = draft.stub.StreamingRecognize(iter([streaming_config(mode="MODE_SYNC")]))
        assert isinstance(await error_of(refused), ServerFull)
        call.cancel()
        await eventually(lambda: draft.service.num_sessions == 0 and target.num_free_slots == 1)
        refused = draft.stub.StreamingRecognize(iter([streaming_config(mode="MODE_SYNC")]))
        assert isinstance(await error_of(refused), InvalidRequest), "no audio"
        samples = collected(draft.service.metrics.collected)
        assert value(samples, f"{DRAFT}_sessions_total", mode="sync", outcome="cancelled") == 1
        assert value(samples, f"{DRAFT}_sessions_total", mode="sync", outcome="refused") == 2
        assert value(samples, f"{DRAFT}_errors_total", kind="ServerFull") == 1
        await target.server.stop(drain_timeout_s=0)
        await error_of(draft.stub.StreamingRecognize(iter([streaming_config(mode="MODE_SYNC")])))
        samples = collected(draft.service.metrics.collected)
        assert value(samples, f"{DRAFT}_sessions_total", mode="sync", outcome="failed") == 1
        assert value(collected(target.service.metrics.collected), f"{TARGET}_draining") == 1


async def test_the_latency_of_live_text_and_the_loss_of_a_target_are_exported(energy_vad, fast_retries):
    async with (
        speaking_target() as target,
        cut_network(target.address, [3]) as (network, _),
        speaking_draft(network.address) as draft,
    ):
        responses = await listen(draft, talk(), interim=True)
        samples = collected(draft.service.metrics.collected)
    num_final = sum(any(result.is_final for result in response.results) for response in responses)
    assert value(samples, f"{DRAFT}_final_latency_seconds_count") == num_final
    assert 1 <= value(samples, f"{DRAFT}_first_text_seconds_count", kind="live") <= len(SPANS)
    assert value(samples, f"{DRAFT}_audio_seconds_total") == pytest.approx(LIVE_LENGTH_S)
    assert value(samples, f"{DRAFT}_session_resumes_total", reason="TargetUnavailable") == 1
    assert value(samples, f"{DRAFT}_resume_seconds_count") == 1
    assert value(samples, f"{DRAFT}_windows_total") == responses[-1].statistics.num_windows
    assert value(samples, f"{DRAFT}_held_audio_bytes") == 0


def exposed(**options):
    """Run a server without services, and its metrics."""
    metrics = ServerMetrics("specwhisper_test", model="m", dtype="float32", device="cpu")
    return running({}, ServingOptions(**{"metrics_port": 0} | options), metrics)


async def test_metrics_have_a_port_of_their_own_that_closes_with_the_server():
    async with exposed() as server:
        text, media_type = await scrape(server.metrics_address)
        assert media_type.startswith("text/plain")
        assert value(parsed(text), "specwhisper_test_active_sessions") == 0
        assert value(parsed(text), "process_open_fds") > 0
    with pytest.raises(urllib.error.URLError):
        await scrape(server.metrics_address)


async def test_metrics_need_the_same_certificates_and_tokens_as_calls(tmp_path):
    authority = trustme.CA()
    tls = save(authority, tmp_path, "server")
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)
    token = "0123456789abcdef"
    known = {"Authorization": f"Bearer {token}"}
    async with exposed(tls=tls, tokens=Tokens({token: "prometheus"}), metrics_host="127.0.0.1") as server:
        address = server.metrics_address
        text, _ = await scrape(address, context=trusting, headers=dict(known))
        assert "specwhisper_test_active_sessions" in text
        with pytest.raises(urllib.error.HTTPError) as refused:
            await scrape(address, context=trusting)
        assert refused.value.code == 401
        refused.value.close()
        with pytest.raises(urllib.error.URLError, match="CERTIFICATE_VERIFY_FAILED"):
            await scrape(address, context=ssl.create_default_context(), headers=dict(known))
        with pytest.raises(OSError):
            await scrape(address, headers=dict(known))
        roots = ClientTls(tmp_path / "roots.pem")
        for credentials, error in (
            (Credentials(roots, token), ""),
            (Credentials(roots), "answers 401 Unauthorized"),
            (Credentials(roots, "fedcba9876543210"), "answers 401 Unauthorized"),
        ):
            (reading,) = await asyncio.to_thread(read_all, [address], credentials)
            assert reading.error == error
            assert bool(reading.samples) is not bool(error)
