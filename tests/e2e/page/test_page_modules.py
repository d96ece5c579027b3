"""The page's JavaScript modules in a browser, with a scripted draft server."""

import base64
import io
from itertools import pairwise
from typing import Any

import pytest
import soundfile

from tests.e2e.page.pages import playwright, run

pytestmark = [pytest.mark.timeout(120), pytest.mark.asyncio(loop_scope="module")]
expect = playwright.expect
NOW = "let now = 0; performance.now = () => now;"  # a clock that a test sets


async def test_corrections_of_neighbours_do_not_overlap(page):
    script = """
        const root = document.createElement("div");
        document.body.append(root);
        let now = 0;
        performance.now = () => now;
        const transcript = new Transcript(root);
        const state = { finals: [], stable: "", tentative: "", isUnverified: false };
        const show = (verified) => transcript.render({ ...state, verified });
        show(" A characteristically unbelievable extraordinary end");
        now = 1000;
        show(" A of it be end");
        const places = [...root.querySelectorAll("rt")].map((each) => {
            const { left, right } = each.getBoundingClientRect();
            return [each.dataset.was, left, right];
        });
        root.remove();
        return places;
    """
    places = await run(page, "transcript.js", "Transcript", script)
    assert [was for was, *_ in places] == ["characteristically", "unbelievable", "extraordinary"]
    assert all(right <= left for (_, _, right), (_, left, _) in pairwise(places))


KEPT_WORDS = """
    const root = document.createElement("div");
    const transcript = new Transcript(root);
    const state = { finals: [], speakers: {}, verified: "", stable: "", tentative: "", isUnverified: false };
    const times = { start_s: 0, end_s: 1, utterance: 1, is_utterance_end: true };
    const final = { ...times, text: " And so, my fellows." };
    const seen = [];
    let before = [];
    for (const change of [
        { tentative: " And so my" },
        { stable: " And so", tentative: " your fell" },
        { stable: " And so your fellow", tentative: "s" },
        { finals: [final], tentative: " ask" },
    ]) {
        transcript.render({ ...state, ...change });
        const words = [...root.querySelectorAll(".word")];
        const looks = words.map(({ className }) => className.split(" ")[1]).join(" ");
        const kept = words.filter((word) => before.includes(word)).length;
        seen.push([looks, kept, root.querySelectorAll("rt").length]);
        before = words;
    }
    return seen;
"""


async def test_words_that_stay_keep_their_elements(page):
    """Only a word of the target that replaces another one is shown as a correction."""
    assert await run(
        page, "transcript.js", "Transcript", f"let now = 0; performance.now = () => now += 1000;{KEPT_WORDS}"
    ) == [
        ["tentative tentative tentative", 0, 0],
        ["stable stable tentative tentative", 3, 0],
        ["stable stable stable tentative", 4, 0],
        ["final final final final tentative", 4, 1],
    ]


async def test_words_are_matched_to_their_corrections(page):
    async def match(before: str, after: str) -> Any:
        return await run(
            page, "words.js", "matchWords", f"return matchWords({before.split()}, {after.split()})"
        )

    words = await run(page, "words.js", "splitWords", "return splitWords(' Hello, you  东京')")
    assert words == [" Hello,", " you", "  东", "京"]
    assert await run(page, "words.js", "keyOf", "return keyOf(' “Night,')") == "night"
    for before, after, source, was in (
        ("it took six", "it was a storm", [0, 1, 2, -1], [None, 1, 2, None]),
        ("a stor", "a stormy night", [0, 1, -1], [None, None, None]),  # the word has only grown
        ("night and so", "night", [0], [None]),  # removed words have no replacement
        ("the sailors", "and the sailors", [-1, 0, 1], [None, None, None]),
        ("", "so", [-1], [None]),
    ):
        assert await match(before, after) == {"source": source, "was": was}


async def test_subtitles(page):
    def final(text: str, start_s: float, end_s: float, is_last: str = "false") -> str:
        times = f"start_s: {start_s}, end_s: {end_s}"
        return f"{{text: '{text}', {times}, utterance: {int(start_s > 1)}, is_utterance_end: {is_last}}}"

    finals = ", ".join(
        [
            final(" It was a", 0.0, 1.0),
            final(" night.", 1.0, 1.5),
            final(" A & B", 3599.5, 3600.25),
            final("", 3601.0, 3601.0, "true"),
            *(final(" and so on", 3610.0 + i, 3611.0 + i) for i in range(9)),
        ]
    )
    cues, srt, vtt = [
        await run(page, "subtitles.js", name, f"return {name}({arguments})")
        for name, arguments in (
            ("cues", f"[{finals}]"),
            ("toSrt", f"{{finals: [{finals}], speakers: {{}}}}"),
            ("toVtt", f"{{finals: [{finals}], speakers: {{}}}}"),
        )
    ]
    assert [cue["text"] for cue in cues[:2]] == ["It was a night.", "A & B"]
    assert all(cue["end_s"] - cue["start_s"] <= 7 and len(cue["text"]) <= 84 for cue in cues)
    assert "".join(cue["text"] for cue in cues[2:]).count("and so on") == 9
    assert srt.startswith(
        "1\n00:00:00,000 --> 00:00:01,500\nIt was a night.\n\n2\n00:59:59,500 --> 01:00:00,250\nA & B\n"
    )
    assert vtt.startswith("WEBVTT\n\n00:00:00.000 --> 00:00:01.500\nIt was a night.\n")
    assert "A &amp; B" in vtt
    named = f"{{finals: [{finals}], speakers: {{1: 'B'}}}}"
    assert "01:00:00,250\nB: A & B\n" in await run(page, "subtitles.js", "toSrt", f"return toSrt({named})")
    assert "01:00:00.250\n<v B>A &amp; B\n" in await run(
        page, "subtitles.js", "toVtt", f"return toVtt({named})"
    )


SPEAKERS = """
    const root = document.createElement("div");
    const transcript = new Transcript(root);
    const times = { start_s: 1, end_s: 1.5, is_utterance_end: true };
    const finals = [{ ...times, text: " Yes.", utterance: 1 }, { ...times, text: " No.", utterance: 2 }];
    const seen = [];
    for (const speakers of [{}, { 2: "B" }, { 1: "A", 2: "B" }, {}]) {
        transcript.render({ finals, speakers, verified: "", stable: "", tentative: "" });
        const paragraphs = [...root.querySelectorAll("p")];
        seen.push(paragraphs.map((p) => [p.querySelector("b").textContent, p.dataset.color ?? ""]));
    }
    return seen;
"""


async def test_speakers_have_names_and_colours_once_they_are_known(page):
    assert await run(page, "transcript.js", "Transcript", SPEAKERS) == [
        [["", ""], ["", ""]],
        [["", ""], ["B", "1"]],
        [["A", "0"], ["B", "1"]],
        [["", ""], ["", ""]],
    ]


SESSION = """
    const recorder = new Recorder("talk", { keepsSound: true });
    recorder.note({ type: "ready", target: "large" });
    for (now = 0; now < MINUTES * 60000; now += 1000) {
        recorder.append(new Int16Array(8000).fill(now / 1000), 8000);
        recorder.note({ type: "update", finals: [], resume_point: { start_sample: now * 8 } });
    }
    now += 3600000;  // it is saved long after its end
    const { peaks, ...kept } = await recorder.recording({ withSound: true });
    return { numPeaks: peaks.length, ...kept };
"""


@pytest.mark.parametrize("minutes", [2, 12, pytest.param(62, marks=pytest.mark.nightly)])
async def test_a_replay_holds_the_last_ten_minutes(page, minutes):
    kept = await run(page, "recorder.js", "Recorder", NOW + SESSION.replace("MINUTES", str(minutes)))
    length_s, is_cut = min(minutes * 60, 601), minutes > 10
    ready, *updates = kept["events"]
    assert (ready["type"], ready["target"], ready["at"]) == ("ready", "large", 0)
    assert [update["at"] for update in updates] == [1000 * at for at in range(length_s)]
    assert "resume_point" not in updates[0]
    assert kept["length_ms"] == 1000 * (length_s - 1)
    assert ("last 10 minutes" in kept["about"]) == is_cut
    assert kept["first_peak"] + kept["numPeaks"] == minutes * 60 * 20
    assert kept["numPeaks"] <= 3600 * 20
    sound, rate = soundfile.read(
        io.BytesIO(base64.b64decode(kept["sound"]["url"].partition(",")[2])), dtype="int16"
    )
    assert (rate, len(sound)) == (16_000, min(minutes * 60, 600) * 16_000)
    first, last = minutes * 60 - min(minutes * 60, 600), minutes * 60 - 1
    assert (sound[0], sound[-1]) == (first, last)
    assert kept["sound"]["at"] == (0 if is_cut else -1000)  # a second of sound arrives at its end


AUDIO = """
    const audio = {
        duration: 3, currentTime: 0, paused: true,
        async play() { this.paused = false; },
        pause() { this.paused = true; },
    };
    const playback = new Playback(audio, { at: 1000, url: "data:" });
    const times = [[500, true], [1000, true], [2100, true], [4100, true], [1500, true], [1500, false]];
    return times.map(([at, isPlaying]) => {
        playback.follow(at, isPlaying);
        return [audio.paused, audio.currentTime];
    });
"""


async def test_sound_follows_the_position_of_the_replay(page):
    assert await run(page, "playback.js", "Playback", AUDIO) == [
        [True, 0],  # before the sound
        [False, 0],
        [False, 1.1],
        [True, 1.1],  # after the sound
        [False, 0.5],
        [True, 0.5],
    ]


SOCKET = """
    const sockets = [];
    window.WebSocket = class extends EventTarget {
        static OPEN = 1;
        constructor() { super(); this.sent = []; this.readyState = 1; sockets.push(this); }
        send(data) { this.sent.push(typeof data === "string" ? JSON.parse(data) : data.length); }
        receive(message) {
            this.dispatchEvent(new MessageEvent("message", { data: JSON.stringify(message) }));
        }
        lose() { this.dispatchEvent(new CloseEvent("close", { code: 1006 })); }
    };
    window.setTimeout = (again) => again();
    const [messages, states] = [[], []];
    const connection = new Connection({ sample_rate: 8000 }, "", {
        onMessage: (message) => messages.push(message),
        onState: (state, reason) => states.push([state, reason]),
    });
    const opened = () => (connection.open(), sockets[0].dispatchEvent(new Event("open")));
    const again = () => (sockets.at(-1).lose(), sockets.at(-1).dispatchEvent(new Event("open")));
    const second = (count) => Array.from({ length: count }, () => connection.send(new Int16Array(8000)));
    const update = (start_sample, passes) => sockets.at(-1).receive({
        type: "update", resume_point: { state: "AAAA", start_sample },
        statistics: { drafted: 0, verified: 0, accepted: 0, committed: 0, passes, steps: 0 },
    });
"""


async def test_another_connection_continues_text_and_counts(page):
    sent, passes = await run(
        page,
        "connection.js",
        "Connection",
        SOCKET
        + """
        opened(); second(3); update(24000, 2); update(24000, 5);
        again(); update(24000, 1); update(32000, 4);
        again(); update(32000, 1);
        return [sockets.map(({ sent }) => sent), messages.map(({ statistics }) => statistics.passes)];
        """,
    )
    assert passes == [2, 5, 6, 9, 10]
    (first, *_), (second, *audio), _ = sent
    assert "resume_point" not in first
    assert second["resume_point"] == {"state": "AAAA", "start_sample": 24_000}
    assert audio == [4_000, 8_000]  # from 1.5 s on


async def test_the_page_waits_for_a_gateway_while_it_keeps_audio(page):
    states, waits, kept = await run(
        page,
        "connection.js",
        "Connection",
        NOW
        + SOCKET
        + """
        const waits = [];
        window.setTimeout = (again, ms) => { now += ms; waits.push(ms); again(); };
        opened(); second(1);
        while (states.at(-1)[0] !== "failed") sockets.at(-1).lose();
        return [states.map(([state]) => state), waits, connection.kept.length];
        """,
    )
    assert waits[:6] == [500, 1000, 2000, 4000, 8000, 8000]
    assert 600_000 < sum(waits) <= 608_000
    assert states == ["connecting", "open", *["waiting", "connecting"] * len(waits), "failed"]
    assert kept == 1


async def test_lost_sound_is_skipped_and_reported(page):
    """Lose the connection when no text was final for longer than audio is kept."""
    sent, states = await run(
        page,
        "connection.js",
        "Connection",
        SOCKET
        + """
        opened(); second(2); update(16000, 1); second(605); again();
        return [sockets[1].sent, states];
        """,
    )
    start, *audio = sent
    lost_to = 7 * 16_000
    assert start["resume_point"] == {"state": "AAAA", "start_sample": lost_to}
    assert audio == [8_000] * 600
    assert [state for state, _ in states] == ["connecting", "open", "waiting", "connecting", "open"]
    assert states[1][1] == ""
    assert states[-1][1].startswith("6 s of sound were lost")


PROMPT = """() => {
    window.isClosed = new Promise((close) => {
        const stream = { getTracks: () => [{ stop: () => close(true) }] };
        navigator.mediaDevices.getUserMedia = () =>
            new Promise((allow) => (window.allow = () => allow(stream)));
    });
}"""


async def test_stop_during_the_microphone_prompt(page):
    await page.page.evaluate(PROMPT)
    sockets = []
    page.page.on("websocket", lambda socket: sockets.append(socket))
    await page.locator("#microphone").click()
    await page.page.evaluate("new Promise((asked) => setInterval(() => window.allow && asked(), 10))")
    await page.locator("#stop").click()
    await expect(page.locator("#microphone")).to_be_enabled()
    assert await page.page.evaluate("(allow(), isClosed)")  # allowed too late
    await expect(page.locator("#stop")).to_be_disabled()
    assert sockets == []


async def test_a_failed_start_is_retried(page):
    samples = page.locator("#sample option")
    await expect(page.locator("#pair")).not_to_be_empty()
    num_samples = await samples.count()
    refusal = {"status": 503, "json": {"error": {"message": "No draft server."}}}
    await page.page.route("**/health", lambda route: route.fulfill(**refusal))
    await page.page.reload()
    await page.status_is("No draft server.")
    await page.page.route("**/samples", lambda route: route.abort())
    await page.locator("#retry").click()
    await page.status_is("The gateway does not answer")
    await page.page.unroute_all()
    await page.locator("#retry").click()
    await expect(page.locator("#pair")).not_to_be_empty()
    await expect(page.locator("#status")).to_be_empty()
    await expect(page.locator("#retry")).to_be_hidden()
    await expect(samples).to_have_count(num_samples)
    assert all("Failed to load resource" in warning for warning in page.warnings)
    page.warnings.clear()  # the browser's own


async def test_a_second_stop_ends_the_wait_for_a_gateway(page):
    await page.page.route_web_socket("**/live", lambda socket: socket.close(code=1013))
    await page.page.reload()
    await page.locator("#try-sample").click()
    await page.status_is("Trying again")
    await page.page.wait_for_timeout(300)  # before there is sound, the first stop would be the last
    await page.locator("#stop").click()
    await page.status_is("Trying again")
    await page.locator("#stop").click()
    await page.status_is("Stopped before")
    await expect(page.locator("#try-sample")).to_be_enabled()
    await expect(page.locator("#stop")).to_be_disabled()
