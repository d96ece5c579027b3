"""``specwhisper evaluate --server`` compares a mode with ``target-only`` through the same servers."""

import asyncio
import json
from io import BytesIO

import numpy as np
import pytest
import soundfile

from experiments.common.models.scripted import recording
from specwhisper.errors import InvalidRequest
from specwhisper.types import Mode
from specwhisper_evaluation.comparison import Comparison, compare
from specwhisper_evaluation.methods import over_servers
from specwhisper_evaluation.references import Reference
from tests.rpc.client_scripts import ScriptedTranscription, serving
from tests.rpc.services import running_pair, target_alone
from tests.rpc.terminals import run_cli

LENGTHS_S = (3.0, 35.0)


def flac(length_s: float) -> bytes:
    file = BytesIO()
    soundfile.write(file, np.frombuffer(recording(length_s), "<i2"), 16_000, format="FLAC")
    return file.getvalue()


@pytest.fixture
def folder(tmp_path):
    for number, length_s in enumerate(LENGTHS_S):
        (tmp_path / f"{number}.flac").write_bytes(flac(length_s))
        (tmp_path / f"{number}.txt").write_text(target_alone(length_s).text)
    return tmp_path


async def compared(address: str, *references: Reference, batch_size: int = 1, **how) -> Comparison:
    def run() -> Comparison:
        with over_servers(address, **how) as methods:
            return compare(methods, references, batch_size=batch_size)

    return await asyncio.to_thread(run)


async def test_both_write_the_same_from_files_and_from_bytes(folder):
    references = [
        Reference("file", folder / "1.flac", target_alone(35.0).text),
        Reference("bytes", BytesIO(flac(3.0)), target_alone(3.0).text),
    ]
    async with running_pair() as (_, draft):
        found = await compared(draft.address, *references, batch_size=2, mode=Mode.SYNC, gamma=3)
    assert (found.standard.name, found.speculative.name) == ("target-only", "sync")
    assert found.num_identical == 2
    assert found.standard.texts == [target_alone(35.0).text, target_alone(3.0).text]
    assert found.standard.statistics.num_drafted == 0 < found.speculative.statistics.num_accepted
    assert (found.model.mode, found.model.gamma) == (Mode.SYNC, 3)


async def test_the_command_writes_tables_and_figures(folder):
    file = folder / "figures.json"
    arguments = ("--folder", folder, "--json", file, "--mode", "pipelined", "--plot", f"{file}.svg")
    async with running_pair() as (_, draft):
        status, out, err = await run_cli("evaluate", *arguments, "--server", draft.address)
    assert (status, err) == (0, "")
    assert "2 of 2 identical" in out
    rows = [line.split() for line in out.splitlines() if line.startswith(("0.flac", "1.flac"))]
    assert [row[-1] for row in rows] == ["yes", "yes"]
    figures = json.loads(file.read_text())
    assert (figures["standard"]["name"], figures["speculative"]["name"]) == ("target-only", "pipelined")
    assert [each["name"] for each in figures["recordings"]] == ["0.flac", "1.flac"]
    assert figures["standard"]["wer"] == figures["speculative"]["wer"] == 0.0
    assert "<svg" in (folder / "figures.json.svg").read_text()


async def test_a_server_that_runs_without_a_draft_is_refused():
    async with running_pair(mode=Mode.TARGET_ONLY) as (_, draft):
        with pytest.raises(InvalidRequest, match="'target-only' has no draft"):
            await compared(draft.address)


async def test_a_token_before_the_command_reaches_the_server(folder, monkeypatch):
    seen = []
    server = ScriptedTranscription()
    answer = server.GetModel

    async def noted(request, context):
        seen.append(dict(context.invocation_metadata()).get("authorization"))
        return await answer(request, context)

    monkeypatch.setattr(server, "GetModel", noted)
    async with serving(server) as address:
        (folder / "token").write_text("secret-token-of-a-test")
        await run_cli("--token-file", folder / "token", "evaluate", "--folder", folder, "--server", address)
    assert seen == ["Bearer secret-token-of-a-test"]
