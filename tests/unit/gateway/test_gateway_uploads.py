"""An upload has a least rate."""

import asyncio

import pytest

from specwhisper_gateway.audio import uploads
from specwhisper_gateway.audio.uploads import IDLE_TIMEOUT_S, MIN_BYTES_PER_S
from specwhisper_gateway.errors import IdleTimeout


async def test_an_upload_has_a_least_rate(monkeypatch):
    now_s, num_bytes = 0.0, MIN_BYTES_PER_S

    async def receive():
        nonlocal now_s
        now_s += 1.0
        await asyncio.sleep(0)
        return {"body": bytes(num_bytes)}

    monkeypatch.setattr(uploads, "monotonic", lambda: now_s)
    limited = uploads._limited(receive, 10**9)
    for _ in range(1_000):
        await limited()
    num_bytes = MIN_BYTES_PER_S // 2
    for _ in range(round(2 * IDLE_TIMEOUT_S)):
        await limited()
    with pytest.raises(IdleTimeout, match="over a faster network"):
        await limited()
