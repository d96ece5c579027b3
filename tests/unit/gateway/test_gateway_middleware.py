"""Refused bodies are read to their end, and work ends with its client."""

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
    """Answer without reading the body."""
    for message in ANSWER:
        await send(message)


async def request(app, headers, incoming):
    """Return the messages to a client, and how many of its own were not read."""
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
    sent, num_left = await request(Lingering(refuse), {"content-length": "36"}, BODY)
    assert [message.get("body") for message in sent] == [None, b"too large", b""]
    assert [message.get("more_body") for message in sent[1:]] == [True, False]
    assert num_left == 0


@pytest.mark.parametrize(
    "headers",
    [{}, {"content-length": "0"}, {"content-length": "36", "expect": "100-continue"}],
)
async def test_a_request_without_a_body_to_come_is_answered_at_once(headers):
    sent, num_left = await request(Lingering(refuse), headers, BODY)
    assert sent == ANSWER
    assert num_left == len(BODY)


@pytest.mark.parametrize("incoming", [BODY[:2], [CLOSED]])
async def test_a_client_that_stops_or_disconnects_is_not_waited_for(incoming):
    sent, _ = await request(Lingering(refuse, linger_s=0.0), {"transfer-encoding": "chunked"}, incoming)
    assert sent[-1]["more_body"] is False


class Request:
    """A request whose client disconnects when ``disconnects`` is set."""

    def __init__(self):
        self.disconnects = asyncio.Event()

    async def receive(self):
        await self.disconnects.wait()
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
    request.disconnects.set()
    with pytest.raises(ClientGone):
        await waiting
    assert ended.is_set()


async def test_cancel_on_disconnect_returns_the_result():
    async def work():
        return 7

    assert await cancel_on_disconnect(Request(), work()) == 7


async def test_cancel_on_disconnect_raises_the_error():
    async def work():
        raise KeyError("lost")

    with pytest.raises(KeyError):
        await cancel_on_disconnect(Request(), work())
