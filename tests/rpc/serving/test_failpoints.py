"""Sessions reach every failpoint; one that raises ends only its session."""

import signal

import pytest

from specwhisper.errors import SpecWhisperError
from specwhisper.testing.failpoints import DRAFT_POINTS, TARGET_POINTS, Failpoint, Failpoints, Fault
from tests.rpc.services import (
    all_free,
    audio_requests,
    check_text,
    draft_server,
    recording,
    refusal,
    streaming_config,
    target_server,
)

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
