"""Turns of speakers, found by sherpa-onnx with tiny models."""

import asyncio
import io
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import numpy as np
import onnx
import pytest
import soundfile

from specwhisper.errors import DiarizationFailed, InvalidAudio, InvalidRequest
from specwhisper_speakers.diarizer import Diarizer
from tests.rpc.services import eventually
from tests.speaker_models import HIGH_HZ, LOW_HZ, RATE, save_models, tones, workers

SPANS = ((1, 4, HIGH_HZ), (5, 8, LOW_HZ), (9, 13, HIGH_HZ), (14, 20, LOW_HZ))
TALK = tones(SPANS, 22.0)
PCM = (TALK * 32_767).astype("<i2").tobytes()


@pytest.fixture(scope="module")
def diarizer(speaker_models):
    return Diarizer(speaker_models)


def check(turns) -> None:
    """Check that they are those of ``SPANS``, with speakers named in their order."""
    assert [turn.speaker for turn in turns] == ["A", "B", "A", "B"]
    found = [time_s for turn in turns for time_s in (turn.start_s, turn.end_s)]
    assert found == pytest.approx([time_s for span in SPANS for time_s in span[:2]], abs=0.1)


def test_a_file_has_its_turns(diarizer):
    file = io.BytesIO()
    soundfile.write(file, TALK, RATE, format="FLAC")
    check(diarizer.turns(file))


async def test_a_stream_of_audio_has_the_same_turns(diarizer):
    pieces = [PCM[at : at + 10_001] for at in range(0, len(PCM), 10_001)]
    threads = set()

    def decode():
        for piece in pieces:
            threads.add(threading.current_thread().name)
            yield piece

    check(await diarizer.turns_of(decode))
    assert all(name.startswith("decoding") for name in threads), "it is decoded in turns, as recordings are"


def test_silence_has_no_turns(diarizer):
    assert diarizer.turns(np.zeros(1, np.float32)) == ()


def test_the_number_of_speakers_can_be_set(speaker_models):
    turns = Diarizer(speaker_models, num_speakers=1).turns(TALK)
    assert {turn.speaker for turn in turns} == {"A"}


LOW, HIGH = (tones([(0.0, 3.0, hz)], 3.0) for hz in (LOW_HZ, HIGH_HZ))


def test_only_the_first_seconds_of_a_sample_are_used(diarizer):
    long = np.concatenate([np.tile(LOW, 10), np.tile(HIGH, 30)])
    turns = diarizer.knowing({"Bob": long}).turns(TALK)
    assert [turn.speaker for turn in turns] == ["A", "Bob", "A", "Bob"]


@pytest.mark.parametrize(
    ("name", "sample", "sentence"),
    [
        ("Ann", HIGH[:1600], "sample of speaker 'Ann' has 0.1 s"),
        ("Ann", b"RIFF", "sample of speaker 'Ann' cannot be used. .* cannot be decoded"),
        ("Ann", [HIGH, LOW], "pass one"),
        (" ", HIGH, "name of a speaker is empty"),
    ],
)
def test_a_sample_that_cannot_be_used_is_refused(diarizer, name, sample, sentence):
    with pytest.raises((InvalidAudio, InvalidRequest), match=sentence):
        diarizer.knowing({name: sample})


def test_an_error_of_the_audio_is_raised(diarizer, tmp_path):
    (tmp_path / "noise.wav").write_bytes(b"RIFF")
    with pytest.raises(InvalidAudio, match="cannot be decoded"):
        diarizer.turns(tmp_path / "noise.wav")
    with pytest.raises(InvalidAudio, match="pass one"):
        diarizer.turns([TALK, TALK])


async def test_an_error_in_the_middle_of_the_audio_ends_the_process(diarizer):
    def decode():
        yield PCM
        raise InvalidAudio("The rest cannot be decoded.")

    with pytest.raises(InvalidAudio, match="The rest"):
        await diarizer.turns_of(decode)
    assert workers() == []


@asynccontextmanager
async def running(diarizer) -> AsyncIterator[asyncio.Task]:
    """Find the turns of audio whose rest comes after the body."""
    may_go_on = threading.Event()

    def decode():
        yield PCM
        may_go_on.wait()
        yield from [PCM] * 20

    turns = asyncio.create_task(diarizer.turns_of(decode))
    try:
        await eventually(workers)
        yield turns
    finally:
        may_go_on.set()


async def test_cancelling_ends_the_process(diarizer):
    async with running(diarizer) as turns:
        turns.cancel()
        with pytest.raises(asyncio.CancelledError):
            await turns
        assert workers() == []


async def test_a_process_that_is_killed_is_an_error(diarizer):
    async with running(diarizer) as turns:
        for worker in workers():
            worker.kill()
    with pytest.raises(DiarizationFailed, match="exit status -9"):
        await turns


def test_a_folder_without_a_model_is_refused(speaker_models, tmp_path):
    with pytest.raises(InvalidRequest, match="no model for speaker segmentation"):
        Diarizer(tmp_path)
    (tmp_path / "model.onnx").write_bytes((speaker_models / "segmentation" / "model.onnx").read_bytes())
    with pytest.raises(InvalidRequest, match="no model for speaker embeddings"):
        Diarizer(tmp_path)


def test_a_model_that_cannot_be_used_is_refused_and_other_files_do_not_matter(speaker_models, tmp_path):
    save_models(tmp_path / "models")
    for name in ("another.onnx", "._model.onnx"):
        (tmp_path / "models" / name).write_bytes(b"no model")
    Diarizer(tmp_path / "models")
    path = tmp_path / "models" / "segmentation" / "model.onnx"
    model = onnx.load(path)
    onnx.helper.set_model_props(model, {"receptive_field_shift": "270"})
    onnx.save(model, path)
    with pytest.raises(InvalidRequest, match="sherpa-onnx cannot use the models"):
        Diarizer(tmp_path / "models")
    path.write_bytes(b"no model")
    with pytest.raises(
        InvalidRequest, match=r"speaker segmentation: .*not a model that onnxruntime can read"
    ):
        Diarizer(tmp_path / "models")


@pytest.mark.parametrize("settings", [{"num_speakers": 0}, {"threshold": 0.0}, {"threshold": float("nan")}])
def test_values_out_of_range_are_refused(speaker_models, settings):
    with pytest.raises(InvalidRequest, match=next(iter(settings))):
        Diarizer(speaker_models, **settings)
