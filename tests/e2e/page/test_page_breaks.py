"""A page that loses its connection shows the text of an undisturbed page."""

from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import soundfile

from experiments.common.models.speech import SPOKEN, EnergyVad, samples_of, spoken_utterances, talk
from specwhisper.types import SAMPLE_RATE
from tests.e2e.page.pages import Opened, browser, opened, playwright
from tests.rpc.gateways import running_gateway
from tests.rpc.speaking import speaking_pair

SPANS, LENGTH_S = ((0.3, 3.5), (4.5, 8.5)), 9.4
BREAKS_AFTER = 3  # final words of each utterance
expect = playwright.expect


@pytest.fixture
def recording(tmp_path) -> Path:
    path = tmp_path / "talk.wav"
    soundfile.write(path, samples_of(talk(SPANS, LENGTH_S)), SAMPLE_RATE, subtype="PCM_16")
    return path


async def final_text(page: Opened) -> str:
    return "".join(await page.words("final"))


async def test_no_word_is_lost_or_repeated_when_the_gateway_is_replaced(recording, monkeypatch):
    monkeypatch.setattr("specwhisper_draft_server.voice_activity._model", EnergyVad)
    async with speaking_pair() as (_, draft), browser() as chromium, AsyncExitStack() as stack:
        gateway = await stack.enter_async_context(running_gateway(draft.address, drain_timeout_s=0))
        port, before = int(gateway.url.rpartition(":")[2]), ""
        async with opened(chromium, gateway.url) as page:
            await page.locator("#file").set_input_files(recording)
            for number in range(1, len(SPANS) + 1):
                utterance = page.locator(f"#transcript p:nth-child({number})")
                await expect(utterance.locator(".word.final").nth(BREAKS_AFTER - 1)).to_be_attached(
                    timeout=30_000
                )
                await stack.aclose()
                await page.status_is("Trying again")
                await page.locator("#retry").click()  # no server answers yet, and no word is lost
                assert (await final_text(page)).startswith(before)
                before = await final_text(page)
                gateway = await stack.enter_async_context(
                    running_gateway(draft.address, port=port, drain_timeout_s=0)
                )
            await page.status_is("The transcript is complete.")
            text = await final_text(page)
            page.warnings.clear()  # the browser's own, for failed connections
    spoken = spoken_utterances(talk(SPANS, LENGTH_S)).values()
    assert text == "".join(SPOKEN.decode(tokens).replace(" ", "") for tokens in spoken)
