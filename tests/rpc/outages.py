"""Targets that come and go, for tests of outages."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from experiments.common.models.speech import SPOKEN
from specwhisper.types import SAMPLE_RATE, VoiceEvent
from specwhisper_client.streaming import StreamingClient
from tests.rpc.services import Draft, Target, eventually
from tests.rpc.speaking import Listener, live_client, speaking_draft, speaking_target

BEGUN = 10 * SAMPLE_RATE * 2  # bytes; within the third utterance


class Targets:
    """Runs one target after another at one address."""

    def __init__(self, stack: AsyncExitStack) -> None:
        self._stack = stack
        self._port = 0
        self.current: Target | None = None

    async def start(self, **kwargs) -> Target:
        """Start a target, at the address of the first one."""
        target = await self._stack.enter_async_context(speaking_target(port=self._port, **kwargs))
        self._port, self.current = target.port, target
        return target

    async def stop(self) -> None:
        """Stop the target that runs, at once."""
        assert self.current is not None
        await self.current.server.stop(drain_timeout_s=0)


@asynccontextmanager
async def breaking_pair(**kwargs) -> AsyncIterator[tuple[Targets, Draft]]:
    async with AsyncExitStack() as stack:
        targets = Targets(stack)
        first = await targets.start()
        # Calls that wait for the target fail soon, so the session is often without one.
        settings = {"connect_timeout_s": 0.3} | kwargs
        yield targets, await stack.enter_async_context(speaking_draft(first.address, **settings))


def unverified_client(draft: Draft, **kwargs) -> StreamingClient:
    return live_client(draft.address, continue_unverified=True, **kwargs)


def decoded(texts: dict[int, list[int]]) -> str:
    """Return the text of all utterances."""
    return SPOKEN.decode([token for text in texts.values() for token in text])


def unverified(listener: Listener, since: int = 0) -> list[str]:
    """Return the text that was shown without a target."""
    return [update.text for update in listener.updates[since:] if update.is_unverified]


async def shown_unverified(listener: Listener, since: int = 0) -> None:
    """Wait until unverified text is shown."""
    await eventually(lambda: any(text.strip() for text in unverified(listener, since)))


def check_unverified(listener: Listener) -> None:
    """Check that only draft text is marked, and that speech events are in order."""
    for update in listener.updates:
        if update.is_unverified:
            assert update.stable_text or update.tentative_text
    events = [update.speech for update in listener.updates if update.speech is not None]
    assert events[::2] == [VoiceEvent.BEGIN] * len(events[::2])
    assert events[1::2] == [VoiceEvent.END] * len(events[1::2])
