"""Draft servers behind their locator: sessions spread over them, and go on at another one that is free."""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
import pytest
import soundfile
from ray import serve
from ray.serve.schema import ServeDeploySchema

from specwhisper.rpc.channels import OPEN
from specwhisper.types import SAMPLE_RATE
from specwhisper_client.api import TranscriptionClient
from specwhisper_client.resolving import ask_locator
from specwhisper_deploy.command import deploy
from tests.cluster.clients import OPTIONS, WAIT_S, pcm, target_alone, written
from tests.cluster.conftest import process_at
from tests.rpc.services import eventually

MAX_SESSIONS = 4

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.timeout(400),
]


class Drafts:
    """Draft servers behind a locator, with a target behind another.

    Attributes
    ----------
    locator : where the draft servers' locator is.
    """

    def __init__(self, target: Path, draft: Path, ports: tuple[int, int]) -> None:
        self.locator = f"127.0.0.1:{ports[1]}"
        of_target = {"model": str(target), "threads": 1, "max-sessions": 2 * MAX_SESSIONS}
        of_draft = {
            "target": f"127.0.0.1:{ports[0]}",
            "draft-model": str(draft),
            "threads": 1,
            "max-sessions": MAX_SESSIONS,
            "port": 0,
        }
        self._config = {
            "proxy_location": "Disabled",
            "logging_config": {"log_level": "WARNING", "enable_access_log": False},
            "applications": [
                _application("targets", {"target": of_target, "locator": {"port": ports[0]}}, "Target", 1),
                _application("drafts", {"draft": of_draft, "locator": {"port": ports[1]}}, "Draft", 2),
            ],
        }

    async def start(self) -> None:
        """Have a target and two draft servers."""
        deploy(ServeDeploySchema.model_validate(self._config))
        await eventually(self._are_running, within_s=WAIT_S)

    def _are_running(self) -> bool:
        states = serve.status().applications
        return all(name in states and states[name].status == "RUNNING" for name in ("targets", "drafts"))

    async def addresses(self) -> set[str]:
        """Return those that the locator lists."""
        return set(await ask_locator(self.locator, OPEN))

    async def wait_until_two(self, but: str) -> None:
        """Wait until the locator lists two, without one that has gone."""
        async with asyncio.timeout(WAIT_S):
            while but in (found := await self.addresses()) or len(found) < 2:
                await asyncio.sleep(0.2)


def _application(name: str, args: dict[str, object], deployment: str, number: int) -> dict[str, object]:
    options = {"name": deployment, "num_replicas": number, "ray_actor_options": {"num_cpus": 0.1}}
    options["health_check_period_s"] = 0.5
    path = f"specwhisper_deploy.serve_app:{name}"
    return {"name": name, "import_path": path, "route_prefix": None, "args": args, "deployments": [options]}


def recordings(folder: Path, number: int) -> list[Path]:
    paths = [folder / f"{seed}.wav" for seed in range(number)]
    for seed, path in enumerate(paths):
        soundfile.write(path, np.frombuffer(pcm(seed), "<i2"), SAMPLE_RATE, subtype="PCM_16")
    return paths


async def test_draft_servers_share_sessions_and_one_that_is_killed_is_left_and_replaced(
    cluster, checkpoints, tmp_path, unused_tcp_port_factory
):
    target, draft = checkpoints
    drafts = Drafts(target, draft, (unused_tcp_port_factory(), unused_tcp_port_factory()))
    await drafts.start()
    paths = recordings(tmp_path, 2 * MAX_SESSIONS)
    alone = target_alone(target)
    expected = [written(alone.transcribe([pcm(seed)], OPTIONS)[0].segments) for seed in range(len(paths))]
    async with TranscriptionClient(f"locator:///{drafts.locator}") as client:
        # As many as both have room for: one that did not share would refuse half of them.
        texts = await asyncio.gather(*(client.transcribe_file(path, OPTIONS) for path in paths))
        assert [written(text.segments) for text in texts] == expected

        before = await drafts.addresses()
        lost = next(iter(before))
        have_begun = [asyncio.Event() for _ in range(MAX_SESSIONS)]
        streams = [client.stream_file(path, OPTIONS) for path in paths[:MAX_SESSIONS]]

        async def follow(number: int) -> None:
            async for _ in streams[number]:
                have_begun[number].set()

        following = [asyncio.create_task(follow(number)) for number in range(MAX_SESSIONS)]
        await asyncio.gather(*(begun.wait() for begun in have_begun))
        process_at(lost).kill()
        await asyncio.gather(*following)
        assert [written(stream.transcript.segments) for stream in streams] == expected[:MAX_SESSIONS]
        assert sum(stream.num_resumes for stream in streams) >= 1, "it was killed amid its sessions"

        await drafts.wait_until_two(but=lost)  # Ray has put another one in its place
        texts = await asyncio.gather(*(client.transcribe_file(path, OPTIONS) for path in paths))
        assert [written(text.segments) for text in texts] == expected
