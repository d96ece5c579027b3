"""Sessions survive servers with failed devices and killed clients."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from experiments.faults.clients import recording_file
from specwhisper.engine.process import FAULT_STATUS
from specwhisper.options import DecodingOptions
from specwhisper.types import Limits, Mode
from specwhisper_client.api import TranscriptionClient
from tests.e2e.processes import Server
from tests.rpc.services import all_free, check_text, draft_server, running_pair, target_alone, target_server


@asynccontextmanager
async def process(*command: str):
    server = await asyncio.to_thread(Server, *command)
    try:
        yield server
    finally:
        await asyncio.to_thread(server.end)


async def test_sessions_of_a_target_with_a_failed_device_migrate(emptiest_first):
    """The target's process ends; its sessions resume at the spare."""
    async with (
        process("tests.e2e.stopping.faulty_server", "40") as faulty,
        target_server(limits=Limits(max_sessions=2)) as spare,
    ):
        address = await asyncio.to_thread(lambda: faulty.address)
        async with draft_server(
            f"{address},{spare.address}"
        ) as draft:  # the target with more free slots is chosen
            await check_text(draft, 65.0, mode="MODE_TARGET_ONLY")
        status, _, _ = await asyncio.to_thread(faulty.wait)
        assert status == FAULT_STATUS
        assert faulty.wait_event("device fault")["level"] == "critical"
        assert faulty.session_ids()


@pytest.mark.nightly
async def test_clients_of_a_draft_server_with_a_failed_device_resume(tmp_path, monkeypatch):
    """The draft server's process ends; the client resumes at another."""
    monkeypatch.setattr("specwhisper_client.servers.random", lambda: 0.0)  # the first address is chosen
    path = recording_file(65.0, 0, tmp_path)
    async with (
        running_pair() as (target, spare),
        process("tests.e2e.stopping.faulty_server", "9", target.address) as faulty,
    ):
        address = await asyncio.to_thread(lambda: faulty.address)
        async with TranscriptionClient(f"{address},{spare.address}") as client:
            transcript = await client.transcribe_file(
                path, DecodingOptions.greedy(language="en"), mode=Mode.SYNC
            )
        assert [s.tokens for s in transcript.segments] == [s.tokens for s in target_alone(65.0).segments]
        status, _, _ = await asyncio.to_thread(faulty.wait)
        assert status == FAULT_STATUS
        assert faulty.wait_event("device fault")["level"] == "critical"
        await all_free(target, spare)
