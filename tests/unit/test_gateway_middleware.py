"""The middleware: refused bodies are read to their end, and work ends with its client."""

import asyncio

import pytest

from specwhisper_gateway.errors import ClientGone
from specwhisper_gateway.transport.disconnect import cancel_on_disconnect
from specwhisper_gateway.transport.lingering import Lingering

ANSWER = [
    {"type": "http.response.start", "status": 413, "headers": []},
    {"type": "http.response.body", "body": b"too large"},
]
BODY = [{"type": "http.request", "body": b"0" * 9, "more_body": number < 3} for number in range(4)]
CLOSED = {"type": "http.disconnect"}


async def refuse(scope, receive, send):
    """An application that answers without reading anything."""
    for message in ANSWER:
        await send(message)


async def talk(app, headers, incoming):
    """Return the messages to a client, and how many of its bytes were read."""
    messages, sent = iter(incoming), []

    async def receive():
        for message in messages:
            return message
        await asyncio.Event().wait()

    async def send(message):
        sent.append(message)

    scope = {"type": "http", "headers": [(k.encode(), v.encode()) for k, v in headers.items()]}
    await app(scope, receive, send)
    return sent, len(list(messages))


async def test_the_answer_is_sent_and_the_rest_is_discarded():
    sent, num_left = await talk(Lingering(refuse), {"content-length": "36"}, BODY)
    assert [message.get("body") for message in sent] == [None, b"too large", b""]
    assert [message.get("more_body") for message in sent[1:]] == [True, False]
    assert num_left == 0


@pytest.mark.parametrize(
    "headers",
    [{}, {"content-length": "0"}, {"content-length": "36", "expect": "100-continue"}],
)
async def test_a_complete_request_is_not_waited_for(headers):
    sent, num_left = await talk(Lingering(refuse), headers, BODY)
    assert sent == ANSWER
    assert num_left == len(BODY)


@pytest.mark.parametrize("incoming", [BODY[:2], [CLOSED]])
async def test_a_client_that_stops_or_disconnects_is_not_waited_for(incoming):
    sent, _ = await talk(Lingering(refuse, linger_s=0.0), {"transfer-encoding": "chunked"}, incoming)
    assert sent[-1]["more_body"] is False


class Request:
    """A request whose client disconnects when ``leaves`` is set."""

    def __init__(self):
        self.leaves = asyncio.Event()

    async def receive(self):
        await self.leaves.wait()
        return CLOSED


async def test_work_is_cancelled_when_its_client_disconnects():
    request, begun, ended = Request(), asyncio.Event(), asyncio.Event()

    async def work():
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    waiting = asyncio.create_task(cancel_on_disconnect(request, work()))
    await begun.wait()
    request.leaves.set()
    with pytest.raises(ClientGone):
        await waiting
    assert ended.is_set()


async def test_the_result_of_work_is_returned():
    async def work():
        return 7

    assert await cancel_on_disconnect(Request(), work()) == 7


async def test_the_error_of_work_is_raised():
    async def work():
        raise KeyError("lost")

    with pytest.raises(KeyError):
        await cancel_on_disconnect(Request(), work())
