"""End the streams of clients that send nothing, to free their sessions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

from specwhisper.errors import IdleClient, InvalidRequest

Request = TypeVar("Request")


class WithIdleTimeout(Generic[Request]):
    """Ends a client's requests if none arrives for some time.

    Iterate over it instead of the requests, within :meth:`error_at_end`. The audio so far is transcribed as
    if the client had ended it. Then the call ends with :class:`IdleClient`.

    Parameters
    ----------
    timeout_s : longest time between two requests.
    """

    def __init__(self, requests: AsyncIterator[Request], timeout_s: float) -> None:
        self._requests = requests
        self._timeout_s = timeout_s
        self._has_expired = False

    async def __aiter__(self) -> AsyncGenerator[Request]:
        requests = aiter(self._requests)
        while True:
            try:
                async with asyncio.timeout(self._timeout_s):
                    request = await anext(requests)
            except StopAsyncIteration:
                return
            except TimeoutError:
                self._has_expired = True
                return
            yield request

    @contextmanager
    def error_at_end(self) -> Iterator[None]:
        """Raise :class:`IdleClient` at the end of the block if the timeout has expired."""
        try:
            yield
        except InvalidRequest:
            if not self._has_expired:  # otherwise it only reports where the client stopped
                raise
        if self._has_expired:
            raise IdleClient(f"The client has sent nothing for {self._timeout_s:g} s: its stream has ended.")
