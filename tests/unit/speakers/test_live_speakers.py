"""Speakers of live utterances, found by sherpa-onnx with tiny models."""

import asyncio

import numpy as np
import pytest
import pytest_asyncio

from specwhisper.errors import DiarizationFailed
from specwhisper.types import Segment, Word
from specwhisper_speakers.live_diarizer import LiveDiarizer
from specwhisper_speakers.live_speakers import MAX_KEPT_S, LiveSpeakers
from tests.speaker_models import HIGH_HZ, LOW_HZ, RATE, tones, workers

SPANS = ((1, 4, HIGH_HZ), (5, 8, LOW_HZ), (9, 13, HIGH_HZ), (14, 17, LOW_HZ), (17, 20, HIGH_HZ))
PCM = (tones(SPANS, 22.0) * 32_767).astype("<i2").tobytes()
PIECE = 3_200


@pytest_asyncio.fixture
async def diarizer(speaker_models):
    diarizer = LiveDiarizer(speaker_models)
    yield diarizer
    await diarizer.close()
    assert workers() == []


def utterance(start_s: float, end_s: float, *words: Word) -> Segment:
    text = "".join(word.text for word in words) or " Yes."
    return Segment(start_s, end_s, (), text, words=words)


async def test_utterances_have_their_speakers(diarizer):
    speakers, names = LiveSpeakers(diarizer), []
    sent = 0
    for start_s, end_s, _ in SPANS[:4]:
        until = round((end_s + 0.5) * RATE) * 2
        for at in range(sent, until, PIECE):
            speakers.append(PCM[at : min(at + PIECE, until)])
        sent = until
        names.append((await speakers.named(utterance(start_s, end_s))).speaker)
    assert names == ["A", "B", "A", "B"]


async def test_words_of_an_utterance_have_speakers_of_their_own(diarizer):
    speakers = LiveSpeakers(diarizer)
    speakers.append(PCM)
    words = (Word(15.0, 16.0, " One", 1.0), Word(18.0, 19.5, " two.", 1.0))
    named = await speakers.named(utterance(14.0, 20.0, *words))
    assert [word.speaker for word in named.words] == ["A", "B"]
    assert named.text == " One two."


async def test_each_session_has_its_own_speakers(diarizer):
    one, other = LiveSpeakers(diarizer), LiveSpeakers(diarizer, max_speakers=1)
    for each in (one, other):
        each.append(PCM)
    spans = [utterance(start_s, end_s) for start_s, end_s, _ in SPANS[1:3]]
    found = await asyncio.gather(*(each.named(span) for span in spans for each in (one, other)))
    assert [segment.speaker for segment in found] == ["A", "A", "B", "A"]
    assert len(workers()) == 1


async def test_silence_has_no_speaker(diarizer):
    speakers = LiveSpeakers(diarizer)
    speakers.append(bytes(2 * 3 * RATE))
    assert (await speakers.named(utterance(0.5, 2.5))).speaker == ""
    assert (await speakers.named(utterance(2.9, 2.95))).speaker == ""


async def test_old_audio_is_not_kept(diarizer):
    speakers = LiveSpeakers(diarizer)
    minute = np.zeros(60 * RATE, "<i2").tobytes()
    for _ in range(5):
        speakers.append(minute)
    assert len(speakers._pcm) == MAX_KEPT_S * RATE * 2
    speakers.append(PCM)
    assert (await speakers.named(utterance(301.0, 304.0))).speaker == "A"
    assert len(speakers._pcm) < 20 * RATE * 2
    assert (await speakers.named(utterance(10.0, 20.0))).speaker == ""  # long past


async def test_a_process_that_is_killed_costs_one_answer(diarizer, caplog):
    speakers = LiveSpeakers(diarizer)
    speakers.append(PCM)
    assert (await speakers.named(utterance(1.0, 4.0))).speaker == "A"
    for worker in workers():
        worker.kill()
    assert (await speakers.named(utterance(5.0, 8.0))).speaker == ""
    (line,) = caplog.records
    assert line.message == "speakers not found" and "exit status -9" in line.error
    assert (await speakers.named(utterance(14.0, 17.0))).speaker == "B"


async def test_a_process_that_hangs_is_ended(speaker_models):
    diarizer = LiveDiarizer(speaker_models, timeout_s=0.2)
    diarizer._command = ("sleep", "600")
    with pytest.raises(DiarizationFailed, match=r"not answered within 0\.2 s"):
        await diarizer.voices_in(PCM)
    await diarizer.close()


async def test_a_cancelled_caller_leaves_no_answer_to_the_next(diarizer):
    speakers = LiveSpeakers(diarizer)
    speakers.append(PCM)
    cancelled = asyncio.create_task(diarizer.voices_in(PCM))
    await asyncio.sleep(0)
    cancelled.cancel()
    with pytest.raises(asyncio.CancelledError):
        await cancelled
    assert len((await diarizer.voices_in(PCM[: 2 * 4 * RATE])).turns) == 1
