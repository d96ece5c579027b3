"""Any recogniser drafts: its text becomes hints, whatever it does."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any

import pytest

from examples import captions_recogniser
from experiments.common.models.speech import SPANS, spoken_utterances, talk
from specwhisper.errors import InvalidRequest, UnsupportedOption
from specwhisper.rpc.channels import with_true_status
from specwhisper.types import SAMPLE_RATE, Mode
from specwhisper.wire import codec
from specwhisper_draft_server.config import DraftConfig
from specwhisper_draft_server.draft_source import LoadDraft
from specwhisper_draft_server.server import SERVICE_NAME as TRANSCRIPTION
from specwhisper_recognisers.protocol import Recognised, Recogniser, load_recogniser
from specwhisper_recognisers.recognising import RecogniserDrafting
from tests.rpc.health import NOT_SERVING, SERVING, until
from tests.rpc.services import all_free, audio_requests, draft_server, error_of
from tests.rpc.speaking import config, final_results, letters, listen, speaking_target, texts_of

pytestmark = pytest.mark.usefixtures("energy_vad", "fast_retries")
STEP = {"step_ms": 1_000}


class Scripted:
    """Recognises :func:`talk` as far as it was accepted, or does what a test asks for."""

    name = "scripted"

    def __init__(self, edit: Callable[[str], str] = lambda text: text) -> None:
        self.edit = edit
        self.is_live = True
        self.starts_s: list[float] = []

    def open(self, language: str | None, start_s: float, *, is_live: bool) -> ScriptedStream:
        assert is_live == self.is_live
        self.starts_s.append(start_s)
        return ScriptedStream(self.edit, start_s)


class ScriptedStream:
    def __init__(self, edit: Callable[[str], str], start_s: float) -> None:
        self._edit = edit
        self._start_s = self._now_s = start_s

    def accept(self, pcm: bytes, *, is_pause: bool, is_last: bool, waiting_s: float) -> list[Recognised]:
        before_s = self._now_s
        self._now_s += len(pcm) / 2 / SAMPLE_RATE
        recognised = []
        for (begin_s, end_s), text in zip(SPANS, spoken_utterances(talk()).values(), strict=True):
            if begin_s < self._now_s and before_s < end_s + 0.2:
                said = min(1.0, (self._now_s - begin_s) / (end_s - begin_s))
                text = self._edit(letters(text[: round(said * len(text))]))
                recognised.append(Recognised(begin_s - self._start_s, text))
        return recognised


async def ten_times_real_time(requests: Iterable[Any]) -> AsyncIterator[Any]:
    """Send so that hints, at most forty a second, reach the target before an utterance ends."""
    for request in requests:
        yield request
        await asyncio.sleep(0.01)


def drafting_of(recogniser: Recogniser, timeout_s: float = 15.0) -> LoadDraft:
    return lambda on_failure: RecogniserDrafting(recogniser, timeout_s=timeout_s, on_failure=on_failure)


async def talked(recogniser: Recogniser, **settings):
    """Return the statistics of a live talk, whose text is checked."""
    async with (
        speaking_target() as target,
        draft_server(target.address, load_draft=drafting_of(recogniser), **settings) as draft,
    ):
        requests = [config(live=STEP), *audio_requests(talk(), 3_200)]
        call = with_true_status(draft.stub.StreamingRecognize(ten_times_real_time(requests)))
        responses = [response async for response in call]
        assert texts_of(final_results(responses)) == spoken_utterances(talk())
        assert responses[0].model.draft == recogniser.name
        await all_free(target, draft)
        return codec.statistics_from_proto(responses[-1].statistics)


async def test_captions_are_a_recogniser_whose_text_is_verified_as_hints(tmp_path):
    path = tmp_path / "talk.srt"
    path.write_text(
        "".join(
            f"{number}\n00:00:0{begin_s:.3f} --> 00:00:{end_s:06.3f}\n{letters(text)}\n\n".replace(".", ",")
            for (number, text), (begin_s, end_s) in zip(spoken_utterances(talk()).items(), SPANS, strict=True)
        )
    )
    statistics = await talked(captions_recogniser.create(str(path)))
    assert statistics.num_hinted_accepted > 10
    assert statistics.num_drafted == 0


async def test_wrong_text_of_a_recogniser_changes_nothing():
    await talked(Scripted(lambda text: text[::-1] + "<|endoftext|>"))


@pytest.mark.usefixtures("fast_health_checks")
async def test_a_recogniser_that_hangs_ends_no_session():
    gate = threading.Event()

    def hang(text: str) -> str:
        gate.wait()
        return text

    async with (
        speaking_target() as target,
        draft_server(
            target.address, load_draft=drafting_of(Scripted(hang), timeout_s=0.2), reports_engine_health=True
        ) as draft,
    ):
        try:
            requests = ten_times_real_time([config(live=STEP), *audio_requests(talk(), 3_200)])
            responses = [each async for each in draft.stub.StreamingRecognize(requests)]
            assert texts_of(final_results(responses)) == spoken_utterances(talk())
            await until(draft.address, NOT_SERVING, TRANSCRIPTION)
        finally:
            gate.set()
        await until(draft.address, SERVING, TRANSCRIPTION)
        await all_free(target, draft)


async def test_a_recogniser_drafts_in_mode_full_only():
    recogniser = Scripted()
    async with (
        speaking_target() as target,
        draft_server(target.address, load_draft=drafting_of(recogniser)) as draft,
    ):
        error = await error_of(draft.stub.StreamingRecognize(iter([config(mode="MODE_SYNC")])))
        assert isinstance(error, UnsupportedOption) and "mode full" in str(error)
        responses = await listen(draft, talk(), live=STEP, mode="MODE_TARGET_ONLY")
        assert texts_of(final_results(responses)) == spoken_utterances(talk())
        assert recogniser.starts_s == []
    with pytest.raises(UnsupportedOption, match="mode full"):
        DraftConfig(extras={"recogniser": "a:b"}, mode=Mode.PIPELINED)


def test_a_recogniser_may_ask_for_pieces_of_a_possible_length_only():
    recogniser = Scripted()
    recogniser.piece_s = 60.0
    with pytest.raises(InvalidRequest, match="piece_s is 60: "):
        RecogniserDrafting(recogniser)


@pytest.mark.parametrize("factory", ["examples", ":create", "no_such_module:create", "examples:no"])
def test_a_factory_that_does_not_exist_is_named(factory):
    with pytest.raises(InvalidRequest, match=r"--draft-recogniser"):
        load_recogniser(factory, "")


@pytest.mark.parametrize("content", [None, b"a script, and no captions", b"\xd0\xd0"])
def test_a_model_that_a_factory_cannot_read_is_named(tmp_path, content):
    path = tmp_path / "talk.srt"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InvalidRequest, match=r"talk\.srt"):
        load_recogniser("examples.captions_recogniser:create", str(path))
