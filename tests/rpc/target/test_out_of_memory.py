"""Sessions of a target without memory continue with the same text."""

import pytest
import torch

from experiments.common.models.scripted import ScriptedModel, scripted_checkpoint
from specwhisper.audio.canonical import CanonicalStream
from specwhisper.engine import verifier
from specwhisper.errors import OutOfMemory
from specwhisper.types import Limits
from specwhisper.wire import codec
from specwhisper_client.api import TranscriptionClient
from specwhisper_target_server.config import TargetConfig
from specwhisper_target_server.server import running_service
from tests.nightly import mostly_nightly
from tests.rpc.hostile import hello, session, whole
from tests.rpc.services import (
    MAX_SESSIONS,
    MODES,
    all_free,
    check_text,
    draft_server,
    recording,
    stream,
    target_alone,
    target_server,
    wav,
)

pytestmark = pytest.mark.usefixtures("fast_retries")


class NowAndThen(ScriptedModel):
    """Has no memory in every n-th forward pass or encoding."""

    def __init__(self, *, forwards: int = 10**9, encodings: int = 10**9) -> None:
        super().__init__(MAX_SESSIONS)
        self._forwards, self._encodings = forwards, encodings
        self._num_encodings = 0

    def score(self, rows):
        scores = super().score(rows)
        if self.num_forwards % self._forwards == 0:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return scores

    def encode(self, slot, recording, start_frame):
        super().encode(slot, recording, start_frame)
        self._num_encodings += 1
        if self._num_encodings % self._encodings == 0:
            raise torch.OutOfMemoryError("CUDA out of memory.")


@pytest.mark.parametrize("mode", mostly_nightly(MODES, by_day=2))
@pytest.mark.parametrize("fails", mostly_nightly([{"forwards": 9}, {"encodings": 2}]))
async def test_a_session_without_memory_continues_soon(mode, fails):
    async with target_server(NowAndThen(**fails)) as target, draft_server(target.address) as draft:
        await check_text(draft, 65.0, mode=mode)
        await all_free(target, draft)


async def test_a_session_without_memory_on_any_target_fails():
    async with (
        target_server(NowAndThen(forwards=1)) as target,
        draft_server(target.address, resume_timeout_s=0.3) as draft,
    ):
        with pytest.raises(Exception, match="no memory for this session"):
            await stream(draft, recording(1.0))
        await all_free(target, draft)
        async with session(target, hello(), *whole(recording(1.0))) as one:
            ended = await one.error()
        assert dict(ended.trailing_metadata())["specwhisper-error"] == OutOfMemory.__name__


class ShortOfMemory:
    """Receives pieces of audio; for one of them the host has no memory."""

    def __init__(self, receive, fails_at: int) -> None:
        self._receive, self._left = receive, fails_at

    def __call__(self, *args, **kwargs):
        self._left -= 1
        if self._left == 0:
            raise MemoryError
        return self._receive(*args, **kwargs)


@pytest.mark.parametrize("mode", mostly_nightly(MODES, by_day=2))
async def test_sessions_leave_a_target_without_memory_for_their_messages(mode, monkeypatch):
    monkeypatch.setattr(verifier, "CANDIDATES_TIMEOUT_NS", 200_000_000)
    short = ShortOfMemory(codec.audio_chunk_from_proto, fails_at=9)
    monkeypatch.setattr(codec, "audio_chunk_from_proto", short)
    async with target_server() as one, target_server() as other:
        async with draft_server(f"{one.address},{other.address}") as draft:
            await check_text(draft, 33.0, mode=mode)
            await all_free(one, draft)
            await all_free(other)
    assert short._left < 0


async def test_clients_leave_a_draft_server_without_memory_for_their_messages(monkeypatch, tmp_path):
    short = ShortOfMemory(CanonicalStream.push, fails_at=9)
    received = type("Received", (CanonicalStream,), {"push": lambda *args: short(*args)})
    monkeypatch.setattr("specwhisper_draft_server.requests.CanonicalStream", received)
    path = wav(tmp_path / "audio.wav", recording(33.0))
    async with (
        target_server() as target,
        draft_server(target.address) as one,
        draft_server(target.address) as two,
    ):
        async with TranscriptionClient(f"{one.address},{two.address}") as client:
            transcript = await client.transcribe_file(path)
        assert transcript.text == target_alone(33.0).text
        await all_free(target, one)
    assert short._left < 0


@pytest.mark.parametrize(
    "error",
    [MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory: x")],
)
async def test_too_many_slots_are_reported_in_one_sentence(monkeypatch, error):
    def fails(*_, **__):
        raise error

    monkeypatch.setattr("specwhisper_target_server.server.WhisperModel", fails)
    config = TargetConfig(limits=Limits(max_sessions=2_000))
    with pytest.raises(OutOfMemory, match=r"no memory for 'scripted' .* 2000 slots: .* --max-sessions"):
        async with running_service(config, scripted_checkpoint()):
            pass
