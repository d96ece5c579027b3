"""Draft servers and their locator: sessions spread over draft servers, and resume where one is killed."""

import asyncio
from pathlib import Path

import pytest

from specwhisper.rpc.channels import OPEN
from specwhisper_client.api import TranscriptionClient
from specwhisper_client.resolving import list_draft_servers
from specwhisper_deploy.command import deploy
from tests.cluster.clients import LENGTH_S, OPTIONS, expected
from tests.cluster.conftest import START_TIMEOUT_S, application, are_running, process_at, serve_config, until
from tests.rpc.services import expected_finals, recording, wav

MAX_SESSIONS = 4

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(400)]


def config(target: Path, draft: Path, target_port: int, draft_port: int):
    """Configure a target and two draft servers, each kind with a locator."""
    targets = {
        "target": {"model": str(target), "threads": 1, "max-sessions": 2 * MAX_SESSIONS},
        "locator": {"port": target_port},
    }
    drafts = {
        "draft": {
            "target": f"127.0.0.1:{target_port}",
            "draft-model": str(draft),
            "threads": 1,
            "max-sessions": MAX_SESSIONS,
            "port": 0,
        },
        "locator": {"port": draft_port},
    }
    checks = {"health_check_period_s": 0.5}
    return serve_config(
        application("targets", targets, {"name": "Target", "num_replicas": 1, **checks}),
        application("drafts", drafts, {"name": "Draft", "num_replicas": 2, **checks}),
    )


async def wait_until_replaced(locator: str, address: str) -> None:
    """Wait until a locator lists two draft servers without the one at an address."""
    async with asyncio.timeout(START_TIMEOUT_S):
        while address in (found := await list_draft_servers(locator, OPEN)) or len(found) < 2:
            await asyncio.sleep(0.2)


async def test_sessions_spread_over_draft_servers_and_resume_where_one_is_killed(
    shared_ray, checkpoints, tmp_path, unused_tcp_port_factory
):
    ports = unused_tcp_port_factory(), unused_tcp_port_factory()
    locator = f"127.0.0.1:{ports[1]}"
    deploy(config(*checkpoints, *ports))
    await until(lambda: are_running("targets", "drafts"))
    paths = [wav(tmp_path / f"{seed}.wav", recording(LENGTH_S, seed)) for seed in range(2 * MAX_SESSIONS)]
    texts = [expected(checkpoints, seed) for seed in range(len(paths))]
    async with TranscriptionClient(f"locator:///{locator}") as client:

        async def transcribe_all() -> list[list[tuple]]:
            """Fill both draft servers: without spreading, one of them would refuse half of the sessions."""
            results = await asyncio.gather(*(client.transcribe_file(path, OPTIONS) for path in paths))
            return [expected_finals(result) for result in results]

        assert await transcribe_all() == texts

        killed = (await list_draft_servers(locator, OPEN))[0]
        have_begun = [asyncio.Event() for _ in range(MAX_SESSIONS)]
        streams = [client.stream_file(path, OPTIONS) for path in paths[:MAX_SESSIONS]]

        async def read(number: int) -> None:
            async for _ in streams[number]:
                have_begun[number].set()

        reading = [asyncio.create_task(read(number)) for number in range(MAX_SESSIONS)]
        await asyncio.gather(*(begun.wait() for begun in have_begun))
        process_at(killed).kill()
        await asyncio.gather(*reading)
        assert [expected_finals(stream.result) for stream in streams] == texts[:MAX_SESSIONS]
        assert sum(stream.num_resumes for stream in streams) >= 1, "the killed one had sessions"

        await wait_until_replaced(locator, killed)
        assert await transcribe_all() == texts
