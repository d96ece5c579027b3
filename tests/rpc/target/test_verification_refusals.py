"""A target refuses invalid messages in one sentence; other sessions continue."""

import asyncio

import pytest

from experiments.common.models.scripted import END, VOCABULARY, ScriptedModel
from specwhisper.errors import (
    InvalidAudio,
    InvalidCandidates,
    InvalidRequest,
    MessageTooLarge,
    PairMismatch,
    SpecWhisperError,
    UnsupportedOption,
)
from specwhisper.wire.status import INTERNAL_ERROR, error_from_rpc
from specwhisper.wire.v1 import verification_pb2 as pb
from tests.rpc.hostile import Session, audio, candidates, heartbeat, hello, session, whole
from tests.rpc.services import (
    MAX_SESSIONS,
    all_free,
    check_error,
    recording,
    target_alone,
    target_server,
)

SECOND = recording(1.0)
LONG = recording(65.0)
SIZE = len(VOCABULARY)


def resume(committed=(), **window) -> pb.VerifyRequest:
    fields = {"id": 1, "start_frame": 100, "num_frames": 3000, "prompt": [END + 1], "max_new_tokens": 60}
    message = pb.Resume(
        window=pb.Window(**fields | window), committed=committed, log_probs=[0.0] * len(committed)
    )
    return pb.VerifyRequest(resume=message)


def position(next_sample=320, **fields) -> pb.VerifyRequest:
    return pb.VerifyRequest(position={"next_sample": next_sample, **fields})


OPENINGS = {
    "no hello": ([heartbeat()], InvalidRequest, "begins with a hello"),
    "another protocol": ([hello(protocol_version=7)], PairMismatch, "speaks protocol 7"),
    "another vocabulary": ([hello(vocabulary_digest="?")], PairMismatch, "'by-hand' .* target 'scripted'"),
    "other weights": ([hello(weights_digest="?")], PairMismatch, "other weights than .* 'scripted'"),
    "no mode": ([hello(mode=0)], InvalidRequest, "Mode 0 is unset"),
    "an unknown language": ([hello(options={"languages": ["xx"]})], UnsupportedOption, "English-only"),
}
MESSAGES = {
    "a second hello": ([hello()], InvalidRequest, "no 'hello' message after"),
    "nothing": ([pb.VerifyRequest()], InvalidRequest, "no 'None' message"),
    "no FLAC": ([audio(SECOND, encoding="AUDIO_ENCODING_FLAC")], InvalidAudio, "not a FLAC"),
    "a gap": ([audio(SECOND), audio(SECOND, 20_000)], InvalidAudio, "samples 16000 to 20000 are missing"),
    "audio after the end": ([*whole(SECOND), audio(SECOND, 16_000)], InvalidAudio, "after the end"),
    "an end in the past": ([audio(SECOND), audio(b"", 5, is_last=True)], InvalidAudio, "ends at sample 5"),
    "no audio": ([audio(b"", is_last=True)], InvalidAudio, "is empty"),
    "audio too far ahead": (whole(recording(160.0))[:-1], InvalidRequest, "must wait for the next window"),
    "a message too large": ([audio(bytes(300_000))], MessageTooLarge, r"300\d+ bytes exceeds the 262144"),
    "a token out of range": ([candidates([SIZE])], InvalidCandidates, f"{SIZE} is out of range"),
    "a block too long": ([candidates([0] * 65)], InvalidCandidates, "65 tokens; at most 64"),
    "resume after audio": ([audio(SECOND), resume()], InvalidRequest, "before any audio"),
    "resume with a bad token": ([resume([SIZE])], InvalidRequest, "out of range"),
    "resume of an attempt too many": ([resume(attempt=1)], InvalidRequest, "options name 1 temperatures"),
    "resume with a prefix": ([resume(prefix=[SIZE])], InvalidRequest, "has a prefix of 1 tokens"),
    "a position of a recording": ([position()], InvalidRequest, "is for live audio"),
    "a position between two times": ([position(next_sample=7)], InvalidRequest, "of 320"),
    "a position without order": ([position(pieces=[{"start_sample": 640}])], InvalidRequest, "not in order"),
    "resume without prompt": ([resume(prompt=[])], InvalidRequest, "prompt of 0 tokens"),
    "resume with a long prompt": ([resume(prompt=[0] * 64)], InvalidRequest, "prompt of 64 tokens"),
    "resume beyond the model": ([resume(max_new_tokens=64)], InvalidRequest, "does not fit"),
    "resume of a full window": ([resume([1, 1], max_new_tokens=2)], InvalidRequest, "is complete"),
    "resume of an ended window": ([resume([1, END])], InvalidRequest, "is complete"),
    "resume with audio from too late": ([resume(), *whole(LONG, 16_000)], InvalidAudio, "15800 to 16000"),
}


async def check_refusal(target, requests, error_type, words):
    """Check that the sender is refused; tests/fuzz looks at sessions beside it."""
    async with session(target) as hostile:
        error = error_from_rpc(await hostile.error(requests), "the target")
    check_error(error, error_type, words)
    await all_free(target)


@pytest.mark.parametrize("case", OPENINGS)
async def test_an_invalid_opening(target, case):
    await check_refusal(target, *OPENINGS[case])


@pytest.mark.parametrize("case", MESSAGES)
async def test_an_invalid_message(target, case):
    requests, error_type, words = MESSAGES[case]
    await check_refusal(target, [hello(mode="MODE_SYNC"), *requests], error_type, words)


async def test_cancelling_before_the_end_of_the_audio():
    for requests, error_type, words in (
        ([], InvalidRequest, "begins with a hello"),
        ([hello()], InvalidAudio, "left before the last audio"),
        ([hello(), audio(SECOND)], InvalidAudio, "left before the last audio"),
    ):
        async with target_server() as target, session(target, *requests) as left:
            await left.call.done_writing()
            check_error(error_from_rpc(await left.error(), "the target"), error_type, words)
            await all_free(target)


async def test_a_resumed_session_cannot_hoard_audio_from_before_its_window(target):
    """The window may begin a hundred years later: no audio before it is kept."""
    async with session(target, hello(), resume(start_frame=2**40)) as resumed:
        await resumed.send(*whole(recording(300.0)))
        assert await resumed.finish() == ()


class BreaksAt(ScriptedModel):
    """Fails on every forward pass with a certain token."""

    def __init__(self, num_slots: int, token: int) -> None:
        super().__init__(num_slots)
        self._token = token

    def score(self, rows):
        scores = super().score(rows)  # a failing forward pass has written into every slot
        if any(self._token in row.tokens[len(row.tokens) - row.num_candidates :] for row in rows):
            raise RuntimeError("out of memory, or a defect")
        return scores


async def test_a_failing_forward_pass_ends_only_the_session_that_caused_it():
    token = 5
    texts = [target_alone(33.0, seed).window_tokens for seed in range(3)]
    async with target_server(BreaksAt(MAX_SESSIONS, token)) as target:
        async with session(target, hello(mode="MODE_PIPELINED"), *whole(SECOND)) as guilty:
            others = [Session(target) for _ in texts]
            for seed, other in enumerate(others):
                await other.send(hello(), *whole(recording(33.0, seed)))
            reading = [asyncio.create_task(other.finish()) for other in others]
            await guilty.read_until("window_opened")
            await guilty.send(candidates([token]))
            error = error_from_rpc(await guilty.error(), "the target")
            assert await asyncio.gather(*reading) == texts
        await all_free(target)
    assert type(error) is SpecWhisperError
    assert INTERNAL_ERROR in str(error)
