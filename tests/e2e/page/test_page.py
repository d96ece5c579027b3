"""The gateway's page in a browser: display, saving, keyboard."""

import json
import re
from difflib import SequenceMatcher
from pathlib import Path

import pytest
import soundfile

from specwhisper.model.checkpoints.names import DEMO_FOLDER
from specwhisper_gateway.config import API_KEY
from tests.e2e.page.pages import browser, faults, opened, playwright
from tests.e2e.processes import Server
from tests.nightly import mostly_nightly

SAMPLES = DEMO_FOLDER / "samples"
SHORT, TITLE = "01_phone_call", "A phone call"
TEXT = json.loads((SAMPLES / "metadata.jsonl").read_text().splitlines()[0])["text"]
COMPLETE = "The transcript is complete."
pytestmark = [pytest.mark.timeout(600), pytest.mark.asyncio(loop_scope="module")]
expect = playwright.expect


@pytest.fixture
def url(demo_gateway) -> str:
    return f"http://localhost:{demo_gateway.port}/"


@pytest.fixture(scope="module")
def microphone(tmp_path_factory) -> Path:
    """Write a recording that Chromium's microphone plays."""
    path = tmp_path_factory.mktemp("microphone") / "speech.wav"
    samples, rate = soundfile.read(SAMPLES / f"{SHORT}.flac", dtype="int16")
    soundfile.write(path, samples, rate)
    return path


def similarity(text: str, expected: str = TEXT) -> float:
    return SequenceMatcher(None, words(text), words(expected)).ratio()


def words(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())


async def try_sample(page, *, at_once=False) -> None:
    await page.page.select_option("#sample", SHORT)
    if at_once:
        await page.locator("#at-once").check()
    await page.locator("#try-sample").click()


async def final_text(page) -> str:
    return " ".join(await page.words("final"))


async def test_a_sample_is_drafted_verified_and_final(chromium, url, tmp_path):
    """After one click text appears while the sample plays, and it can be saved."""
    async with opened(chromium, url) as page:
        # Record the states that the page shows of each word.
        await page.page.evaluate(
            """() => {
                window.seen = new Set();
                const look = () => {
                    for (const word of document.querySelectorAll("#transcript .word")) {
                        seen.add(word.className.split(" ")[1]);
                        if (word.querySelector("rt")) seen.add("corrected");
                    }
                };
                new MutationObserver(look).observe(document.querySelector("#transcript"),
                    { subtree: true, childList: true, attributes: true });
            }"""
        )
        frames = []
        page.page.on(
            "websocket", lambda socket: socket.on("framereceived", lambda frame: frames.append(frame))
        )
        await page.locator("#latency").fill("100")  # else a draft may be verified before it is shown
        await try_sample(page)
        await expect(page.locator("#transcript .word.final").first).to_be_visible(timeout=60_000)
        await page.status_is("Transcribing")  # still running
        await page.status_is(COMPLETE)
        seen = {*await page.page.evaluate("[...seen]")}
        assert {"tentative", "final"} <= seen <= {"tentative", "stable", "verified", "final", "corrected"}
        assert await page.words("tentative") == await page.words("verified") == []
        text = await final_text(page)
        assert similarity(text) > 0.9
        assert words(await page.locator("#sentences").inner_text()) == words(text)
        statistics = [json.loads(frame).get("statistics") or {} for frame in frames if isinstance(frame, str)]
        # On a busy machine the target may decode by itself: then there is no acceptance to show.
        was_drafted = any(counts.get("verified", 0) > 0 for counts in statistics)
        await shows_figures(page, *(["acceptance"] if was_drafted else []), "tokens", "roundTrip", "lag")
        await page.locator("#with-sound").check()
        saved = {}
        for name in ("srt", "vtt", "replay"):
            async with page.page.expect_download() as download:
                await page.locator(f"#save-{name}").click()
            await (await download.value).save_as(tmp_path / f"{name}.html")
            saved[name] = (tmp_path / f"{name}.html").read_text()
        assert saved["srt"].startswith("1\n00:00:00,")
        assert saved["vtt"].startswith("WEBVTT\n\n00:00:00.")
        for subtitles in (saved["srt"], saved["vtt"]):
            lines = [line for line in subtitles.splitlines() if "-->" not in line and not line.isdecimal()]
            assert words(" ".join(lines).removeprefix("WEBVTT")) == words(text)
        await replays(chromium, tmp_path / "replay.html", text)


async def shows_figures(page, *names: str) -> None:
    for name in names:
        await expect(page.locator(f"[data-figure={name}] output")).to_have_text(re.compile(r"^\d"))
        assert await page.locator(f"[data-figure={name}] .line").get_attribute("d")


async def replays(chromium, path: Path, text: str) -> None:
    """Check that a saved session plays from its file, without a network."""
    async with opened(chromium, path.as_uri(), offline=True) as page:
        requests = []
        page.page.on("request", lambda request: requests.append(request.url))
        await expect(page.locator("#title")).to_contain_text(TITLE)
        await page.locator("#play").click()
        await expect(page.locator("#transcript .word").first).to_be_visible(timeout=30_000)
        await expect(page.locator("#play")).to_have_text("Pause")
        await expect(page.locator("#sound")).to_have_js_property("paused", False)
        await page.locator("#audible").uncheck()
        await expect(page.locator("#sound")).to_have_js_property("muted", True)
        await page.locator("#play").click()
        await expect(page.locator("#sound")).to_have_js_property("paused", True)
        await expect(page.locator("#play")).to_have_text("Play")
        await page.locator("#seek").press("End")
        await expect(page.locator("#transcript .word.tentative")).to_have_count(0)
        assert words(await final_text(page)) == words(text)
        await page.locator("#seek").press("Home")
        await expect(page.locator("#transcript .word")).to_have_count(0)
        assert await faults(page) == []
        assert requests == []


@pytest.mark.nightly
async def test_speech_into_the_microphone_is_transcribed(url, microphone):
    async with browser(microphone) as chromium, opened(chromium, url) as page:
        await page.locator("#languages").fill("en")
        await page.locator("#microphone").click()
        await page.status_is("Listening")
        await expect(page.locator("#transcript")).to_contain_text("that you called", timeout=60_000)
        await page.locator("#stop").click()
        await page.status_is(COMPLETE)
        assert similarity(await final_text(page)) > 0.8


async def test_without_a_microphone_the_page_says_what_to_do(chromium, url):
    async with opened(chromium, url) as page:  # without permission
        await page.locator("#microphone").click()
        await page.status_is("microphone")
        await expect(page.locator("#status")).to_have_class("error")
        await expect(page.locator("#try-sample")).to_be_enabled()


async def test_browsers_refuse_the_microphone_to_insecure_origins(demo_gateway):
    elsewhere = browser(None, "--host-resolver-rules=MAP gateway.test 127.0.0.1")
    async with elsewhere as chromium, opened(chromium, f"http://gateway.test:{demo_gateway.port}/") as page:
        await page.locator("#microphone").click()
        await page.status_is("https")


@pytest.mark.nightly
async def test_the_page_waits_for_a_full_server(chromium, start_server_for_all):
    target = start_server_for_all("specwhisper_target_server")
    draft = start_server_for_all(
        "specwhisper_draft_server", "--target", target.address, "--max-sessions", "1"
    )
    server = Server("specwhisper_gateway", "--port", "0", "--server", draft.address)
    try:
        url = f"http://localhost:{server.port}/"
        async with opened(chromium, url) as first, opened(chromium, url) as second:
            await try_sample(first)
            await expect(first.locator("#transcript .word").first).to_be_visible(timeout=60_000)
            await try_sample(second)
            await second.status_is("holds its 1 sessions already")
            await first.locator("#stop").click()
            await second.status_is(COMPLETE)
            assert similarity(await final_text(second)) > 0.9  # audio from the wait is not lost
    finally:
        server.end()


@pytest.mark.nightly
async def test_sliders_act_during_a_session(chromium, url):
    async with opened(chromium, url) as page:
        await try_sample(page)
        await expect(page.locator("#transcript .word.final").first).to_be_visible(timeout=60_000)
        await page.locator("#latency").fill("300")
        await expect(page.locator("#latency-value")).to_have_text("300 ms")
        await expect(page.locator("[data-figure=roundTrip] output")).to_have_text(
            re.compile(r"^[3-9]\d\d$"), timeout=30_000
        )
        await page.locator("input[value=target-only]").check()
        await expect(page.locator("#pair")).to_contain_text("alone", timeout=30_000)
        await page.status_is(COMPLETE)
        assert similarity(await final_text(page)) > 0.8  # no word is lost or repeated


async def test_a_file_is_transcribed_with_the_keyboard_alone(chromium, url, microphone):
    async with opened(chromium, url) as page:
        await expect(page.locator("#sample option").first).to_be_attached()

        async def go_to(selector: str) -> None:
            for _ in range(40):
                await page.page.keyboard.press("Tab")
                if await page.page.evaluate("selector => document.activeElement.matches(selector)", selector):
                    style = "getComputedStyle(document.activeElement)"
                    outline = await page.page.evaluate(f"() => {style}.outlineStyle + {style}.opacity")
                    assert outline == "solid1" or selector.startswith("input[name=mode]")
                    return
            raise AssertionError(f"{selector} cannot be reached")

        await go_to("#at-once")
        await page.page.keyboard.press("Space")
        await go_to("input[name=mode]")
        await page.page.keyboard.press("ArrowRight")
        await expect(page.locator("input[value=target-only]")).to_be_checked()
        await go_to("#languages")
        await page.page.keyboard.type("English")
        async with page.page.expect_file_chooser() as chooser:
            await go_to("#open-file")
            await page.page.keyboard.press("Enter")
        await (await chooser.value).set_files(microphone)
        await page.status_is(COMPLETE)
        assert similarity(await final_text(page)) > 0.9


@pytest.mark.nightly
async def test_a_race_ends_with_the_same_text_twice(chromium, url):
    async with opened(chromium, url) as page:
        await page.locator("#race").check()
        await try_sample(page)
        await page.status_is(COMPLETE)
        for lane in ("#own-progress", "#rival .progress"):
            await expect(page.locator(lane)).to_contain_text("complete after", timeout=60_000)
        assert await faults(page) == []
        alone = await page.locator("#rival .word.final").all_inner_texts()
        assert alone == await page.words("final")


@pytest.mark.parametrize(
    ("width", "scheme"), mostly_nightly([(360, "light"), (1280, "dark"), (360, "dark"), (1280, "light")])
)
async def test_the_page_is_accessible(chromium, url, width, scheme):
    settings = {"viewport": {"width": width, "height": 800}, "color_scheme": scheme}
    async with opened(chromium, url, **settings, reduced_motion="reduce") as page:
        await expect(page.locator("#pair")).to_contain_text("demo-target")
        assert await faults(page) == []
        await try_sample(page)
        await expect(page.locator("#transcript .word.final").first).to_be_visible(timeout=60_000)
        assert await faults(page) == []
        await page.status_is(COMPLETE)


async def test_every_control_reports_an_unreachable_gateway(chromium, demo_server):
    server = Server("specwhisper_gateway", "--port", "0", "--server", demo_server)
    try:
        async with opened(chromium, f"http://localhost:{server.port}/") as page:
            await try_sample(page, at_once=True)
            await page.status_is(COMPLETE)
            await expect(page.locator("#with-sound")).to_be_disabled()  # not sent in real time
            server.end()
            for button in ("#save-replay", "#try-sample"):
                await page.locator(button).click()
                await page.status_is("The gateway does not answer")
                await expect(page.locator("#status")).to_have_class("error")
            assert all("ERR_CONNECTION_REFUSED" in warning for warning in page.warnings)
            page.warnings.clear()  # the browser's own
    finally:
        server.end()


async def test_a_file_that_is_not_audio(chromium, url, tmp_path):
    (tmp_path / "letter.txt").write_text("Dear Sir or Madam")
    async with opened(chromium, url) as page:
        await page.locator("#file").set_input_files(tmp_path / "letter.txt")
        await page.status_is("cannot decode this file")


@pytest.mark.nightly
async def test_a_key_is_required(chromium, demo_server, monkeypatch):
    monkeypatch.setenv(API_KEY, "the-right-one-of-anna")
    server = Server("specwhisper_gateway", "--port", "0", "--server", demo_server)
    try:
        async with opened(chromium, f"http://localhost:{server.port}/") as page:
            sockets = []
            page.page.on("websocket", lambda socket: sockets.append(socket))
            await try_sample(page)
            await page.status_is("API key")
            await page.locator("#key").fill("the-right-one-of-anna")
            await page.locator("#key").press("Enter")
            await page.status_is("Transcribing")
            await page.locator("#key").press("Enter")
            await page.status_is(COMPLETE)
            assert len(sockets) == 1, "the running session continues"
            assert [text for text in page.warnings if "401" not in text] == []
            page.warnings.clear()
    finally:
        server.end()
