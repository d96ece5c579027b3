"""The command ``specwhisper top`` shows a running cluster."""

import json

from specwhisper.errors import TargetUnavailable
from specwhisper.observe.metrics import ServerMetrics
from specwhisper.rpc.metrics_server import metrics_page, serving_page, targets_page
from tests.rpc.client_scripts import ScriptedTranscription, serving
from tests.rpc.gateways import running_gateway
from tests.rpc.scrapes import collected, parsed, scrape, value
from tests.rpc.services import (
    MAX_SESSIONS,
    Draft,
    draft_server,
    eventually,
    recording,
    stream,
    streaming_config,
    target_server,
)
from tests.rpc.terminals import run_cli


def round_trips(draft: Draft) -> float:
    samples = collected(draft.service.metrics.collected)
    return value(samples, "specwhisper_draft_round_trip_seconds_count")


async def run(*arguments: str) -> tuple[int, str]:
    status, out, err = await run_cli("top", *arguments)
    return status, out + err


async def test_a_cluster_is_shown_once():
    async with target_server(metrics_port=0) as target, draft_server(target.address, metrics_port=0) as draft:
        addresses = f"{target.server.metrics_address},{draft.server.metrics_address}"
        responses = await stream(draft, recording(70.0), mode="MODE_SYNC")
        call = draft.stub.StreamingRecognize()
        await call.write(streaming_config())
        await eventually(lambda: target.num_free_slots == MAX_SESSIONS - 1)
        await eventually(lambda: round_trips(draft) > 0)
        status, out = await run("--metrics", addresses, "--json")
        assert status == 0
        at_target, at_draft = json.loads(out)["servers"]
        one = {"sessions": 1, "capacity": MAX_SESSIONS}
        named = {"kind": "target", "model": "scripted", "state": "serving"}
        assert one.items() <= at_draft.items() and (one | named).items() <= at_target.items()
        statistics = responses[-1].statistics
        acceptance = statistics.num_accepted / statistics.num_verified
        assert at_draft["acceptance"] == at_target["acceptance"] == acceptance
        assert at_draft["tokens_per_forward"] == statistics.num_committed / statistics.num_forwards
        assert at_draft["round_trip_s"] > 0
        assert json.loads(out)["totals"]["target"]["sessions"] == 1

        status, out = await run("--metrics", addresses + ",127.0.0.1:1", "--once")
        assert status == 1, "the exit status reports a server that does not answer"
        assert "target servers" in out
        assert "draft servers" in out
        assert f"1/{MAX_SESSIONS}" in out
        assert "127.0.0.1:1  no server answers" in out
        call.cancel()


async def test_the_targets_of_a_locator_are_followed():
    found: list[str] = []
    of_locator = ServerMetrics("specwhisper_locator", model="", dtype="", device="")
    own_metrics = metrics_page(of_locator.collected)

    def find() -> list[str]:
        if not found:
            raise TargetUnavailable("No target answers the locator.")
        return found

    async with target_server(metrics_port=0) as one, target_server(metrics_port=0) as other:
        async with serving_page(targets_page(find, own_metrics), "127.0.0.1", 0, None, None) as locator:
            status, out = await run("--locator", locator, "--json")
            assert status == 1
            (row,) = json.loads(out)["servers"]
            assert (row["address"], row["reason"]) == (locator, "answers 503 Service Unavailable")
            for servers in ([one], [one, other], [other]):
                found[:] = [each.server.metrics_address for each in servers]
                status, out = await run("--locator", locator, "--metrics", found[0], "--json")
                assert status == 0
                assert [row["address"] for row in json.loads(out)["servers"]] == found
            text, _ = await scrape(locator)
            assert value(parsed(text), "specwhisper_locator_draining") == 0
            status, out = await run("--metrics", locator, "--json")
            assert (status, json.loads(out)["servers"]) == (0, []), "a removed target is not a lost server"
        found[:] = ["nowhere"]
        for hostile in (find, lambda: [7], lambda: [[]]):
            answer = targets_page(hostile, own_metrics)
            async with serving_page(answer, "127.0.0.1", 0, None, None) as locator:
                status, out = await run("--locator", locator, "--json")
                assert status == 1
                assert json.loads(out)["servers"][0]["address"] == locator


async def test_a_gateway_shows_its_open_transcriptions():
    async with (
        serving(ScriptedTranscription()) as address,
        running_gateway(address, max_sessions=3, metrics_port=0) as gateway,
    ):
        state = gateway.server.app.state.gateway
        with state.limiter.admit("anna"), state.limiter.admit("bert"):
            status, out = await run("--metrics", gateway.server.metrics_address, "--json")
        assert status == 0
        (row,) = json.loads(out)["servers"]
        assert (row["kind"], row["state"], row["sessions"], row["capacity"]) == ("gateway", "serving", 2, 3)
        gateway.server.stop()
        assert value(collected(state.metrics.collected), "specwhisper_gateway_draining") == 1
