"""No caller can use another caller's session ids, leases or resume points.

A session is its call: no call can name another session. It resumes elsewhere from a resume point.
"""

from specwhisper.errors import InvalidAudio, LeaseRefused
from specwhisper.rpc.channels import with_true_status
from specwhisper.rpc.tokens import Leases, Tokens
from specwhisper.wire.status import error_from_rpc
from specwhisper.wire.v1 import transcription_pb2 as client_pb
from specwhisper.wire.v1 import verification_pb2 as pb
from tests.rpc.hostile import audio, hello, session, whole
from tests.rpc.services import (
    RATE,
    Draft,
    all_free,
    audio_requests,
    callers,
    draft_server,
    error_of,
    expected_finals,
    finals,
    opening,
    recording,
    responses_to,
    resume_point_of,
    running_pair,
    target_alone,
    target_server,
)

ANNAS, BENS = "anna-has-this-token", "ben-has-another-one"
TOKENS = Tokens({ANNAS: "anna", BENS: "ben"})
SECOND, LONG = recording(1.0), recording(40.0)


async def test_a_lease_is_valid_for_its_caller_only():
    async with (
        target_server(tokens=TOKENS, leases=Leases()) as target,
        callers(target, ANNAS, BENS) as (anna, ben),
    ):
        hers = (await anna.stub.Locate(pb.LocateRequest())).lease
        his = (await ben.stub.Locate(pb.LocateRequest())).lease
        for caller, stolen in ((ben, hers), (anna, his), (anna, "")):
            error = await error_of(with_true_status(caller.stub.Verify(iter([hello(lease=stolen)]))))
            assert type(error) is LeaseRefused
            assert "has granted you no such lease" in str(error)
        for caller, own in ((anna, hers), (ben, his)):
            async with session(caller, hello(lease=own), *whole(SECOND)) as talking:
                assert await talking.finish() == target_alone(1.0).window_tokens
        await all_free(target)


async def test_another_callers_session_id_opens_a_session_of_its_own():
    """Ben uses Anna's session id: her text is unchanged, and he receives none of it."""
    async with target_server(tokens=TOKENS) as target, callers(target, ANNAS, BENS) as (anna, ben):
        async with session(anna, hello(session="hers"), *whole(LONG)[:-1]) as talking:
            await talking.read_until("window_opened")
            async with session(ben, hello(session="hers"), *whole(recording(1.0, 1))) as listening:
                assert await listening.finish() == target_alone(1.0, 1).window_tokens
            async with session(
                ben, hello(session="hers"), audio(b"", len(LONG) // 2, is_last=True)
            ) as resumed:
                error = error_from_rpc(await resumed.error(), "the target")
                assert type(error) is InvalidAudio
            kinds = {answer.WhichOneof("message") for answer in resumed.responses}
            assert kinds <= {"welcome", "heartbeat"}
            async with session(ben, hello(session="hers")) as cancelled:
                await cancelled.read()
            await talking.send(whole(LONG)[-1])
            assert await talking.finish() == target_alone(40.0).window_tokens
        await all_free(target)


async def resumed(draft: Draft, resume_point: client_pb.ResumePoint, pcm: bytes) -> list[tuple]:
    return finals(await responses_to(draft, opening(resume_point=resume_point), *audio_requests(pcm)))


async def test_a_resume_point_reveals_only_its_own_content():
    """Ben resumes at Anna's resume point; a server without her session answers the same."""
    silence = bytes(2 * RATE)
    async with (
        target_server() as target,
        draft_server(target.address, tokens=TOKENS) as draft,
        callers(draft, ANNAS, BENS) as (anna, ben),
    ):
        resume_point = await resume_point_of(anna)
        resumed_finals = await resumed(ben, resume_point, silence)
        await all_free(target, draft)
    async with running_pair() as (elsewhere, stranger):
        assert await resumed(stranger, resume_point, silence) == resumed_finals
        await all_free(elsewhere, stranger)
    assert resumed_finals and resumed_finals != expected_finals(target_alone(40.0))
