"""A pair is called as transformers' pipeline is, and returns the same."""

from pathlib import Path

import numpy as np
import pytest
import soundfile
from transformers import pipeline

import specwhisper
from experiments.common.models.checkpoints import Shape, save_checkpoint
from specwhisper import RecordingsFailed, SpeculativeWhisper
from specwhisper.errors import InvalidAudio, InvalidRequest, UnsupportedOption

DEMO = Path(specwhisper.__file__).parent / "demo"
NAMES = ("01_phone_call.flac", "02_tomato_soup.flac")
LENGTH = 38_400  # samples of each, which end in a pause
GENERATE = {"language": "en", "task": "transcribe"}
SHORT = {**GENERATE, "max_new_tokens": 6}


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> list[Path]:
    """Return the beginnings of two recordings."""
    folder = tmp_path_factory.mktemp("recordings")
    for name in NAMES:
        samples, rate = soundfile.read(DEMO / "samples" / name, LENGTH, dtype="int16")
        soundfile.write(folder / name, samples, rate)
    return [folder / name for name in NAMES]


@pytest.fixture(scope="module")
def pair() -> SpeculativeWhisper:
    return SpeculativeWhisper("demo-draft-tiny", "demo-target", device="cpu")


@pytest.fixture(scope="module")
def quick(tmp_path_factory) -> SpeculativeWhisper:
    """Return a pair of random weights, for what does not depend on a model."""
    folder = str(save_checkpoint(Shape(seed=11, scale=0.3), tmp_path_factory.mktemp("models") / "random"))
    return SpeculativeWhisper(folder, folder, device="cpu")


@pytest.fixture(scope="module")
def theirs():
    return pipeline("automatic-speech-recognition", model=str(DEMO / "target"), device="cpu")


def samples(file: Path) -> np.ndarray:
    return soundfile.read(file, dtype="int16")[0].astype(np.float32) / 32768


@pytest.mark.parametrize(("return_timestamps", "length"), [(None, LENGTH), (True, None)])
def test_the_result_is_that_of_transformers(pair, theirs, return_timestamps, length):
    recording = samples(DEMO / "samples" / NAMES[0])[:length]
    expected = theirs(
        recording, return_timestamps=return_timestamps, generate_kwargs={**GENERATE, "num_beams": 1}
    )
    assert pair(recording, return_timestamps=return_timestamps, generate_kwargs=GENERATE) == expected


def test_words_have_the_times_of_transformers(pair, files):
    result = pair(str(files[0]), return_timestamps="word", generate_kwargs=GENERATE)
    words = pair.transcribe(files[0], word_timestamps=True, word_times="model", **GENERATE).words
    assert result["chunks"] == [
        {"timestamp": (word.start_s, word.end_s), "text": word.text} for word in words
    ]
    assert result["text"] == "".join(chunk["text"] for chunk in result["chunks"])


def test_chunks_have_the_language_on_request(quick, files):
    (*_, chunk) = quick(files[0], return_language=True, generate_kwargs=SHORT)["chunks"]
    assert chunk.keys() == {"language", "text"}
    assert chunk["language"] == "english"


def test_a_recording_may_be_raw_and_several_a_list(quick, files):
    array = samples(files[0])
    several = quick(files, generate_kwargs=SHORT, batch_size=2)
    assert isinstance(several, list) and several[0] != several[1]
    assert quick({"raw": array, "sampling_rate": 16_000}, generate_kwargs=SHORT) == several[0]


def test_an_iterable_is_read_as_its_results_are(quick, files):
    read = []

    def recordings():
        for file in [*files, *files]:
            read.append(file)
            yield str(file)

    results = quick(recordings(), generate_kwargs=SHORT, batch_size=1)
    assert not read
    first = next(results)
    assert len(read) < 4
    assert [first, *results] == quick(files, generate_kwargs=SHORT) * 2


def test_an_error_is_raised_in_its_place(quick, tmp_path, files):
    results = quick(iter([files[0], tmp_path / "none.wav", files[1]]), generate_kwargs=SHORT)
    assert next(results)["text"]
    with pytest.raises(InvalidAudio, match=r"none\.wav' does not exist"):
        next(results)
    with pytest.raises(RecordingsFailed, match="1 of 2 recordings"):
        quick([files[0], b"no audio"], generate_kwargs=SHORT)


def test_options_of_generate_are_read(quick, files):
    alike = {"num_beams": 1, "do_sample": False, "num_assistant_tokens": 3, "prompt_ids": None}
    expected = quick(files[0], return_timestamps=True, generate_kwargs=SHORT)
    assert (
        quick(files[0], return_timestamps=True, generate_kwargs=SHORT | alike, chunk_length_s=0) == expected
    )
    assert quick(files[0], condition_on_prev_tokens=True, return_timestamps=True, **SHORT) == expected


@pytest.mark.parametrize(
    ("asked", "error", "message"),
    [
        (
            {"generate_kwargs": {"length_penalty": 1.0}},
            InvalidRequest,
            "Unknown option 'length_penalty': choose from ",
        ),
        ({"generate_kwargs": {"num_beams": 5}}, UnsupportedOption, "Beam search is not offered"),
        ({"generate_kwargs": {"do_sample": True}}, UnsupportedOption, "do_sample is not offered: a temp"),
        ({"generate_kwargs": {"assistant_model": 1}}, UnsupportedOption, "an argument of SpeculativeWhisper"),
        ({"return_timestamps": "char"}, InvalidRequest, "is 'char': choose True, False or 'word'"),
    ],
)
def test_other_options_are_refused_with_a_sentence(quick, asked, error, message, files):
    with pytest.raises(error, match=message):
        quick(files[0], **asked)
