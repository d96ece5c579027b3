"""A pair is called as transformers' pipeline is, and returns the same."""

from pathlib import Path

import numpy as np
import pytest
import soundfile
from transformers import pipeline

import specwhisper
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
def theirs():
    return pipeline("automatic-speech-recognition", model=str(DEMO / "target"), device="cpu")


def samples(file: Path) -> np.ndarray:
    return soundfile.read(file, dtype="int16")[0].astype(np.float32) / 32768


@pytest.mark.parametrize("return_timestamps", [None, True])
def test_the_result_is_that_of_transformers(pair, theirs, return_timestamps):
    recording = samples(DEMO / "samples" / NAMES[0])
    expected = theirs(
        recording,
        return_timestamps=return_timestamps,
        generate_kwargs={**GENERATE, "num_beams": 1},
    )
    assert pair(recording, return_timestamps=return_timestamps, generate_kwargs=GENERATE) == expected


def test_words_have_the_times_of_transformers(pair, files):
    result = pair(str(files[0]), return_timestamps="word", generate_kwargs=GENERATE)
    words = pair.transcribe(files[0], word_timestamps=True, word_times="model", **GENERATE).words
    assert result["chunks"] == [
        {"timestamp": (word.start_s, word.end_s), "text": word.text} for word in words
    ]
    assert result["text"] == "".join(chunk["text"] for chunk in result["chunks"])


def test_chunks_have_the_language_on_request(pair, files):
    (*_, chunk) = pair(files[0], return_language=True, generate_kwargs=SHORT)["chunks"]
    assert chunk.keys() == {"language", "text"}
    assert chunk["language"] == "english"


def test_a_recording_may_be_raw_and_several_a_list(pair, files):
    array = samples(files[0])
    several = pair(files, generate_kwargs=SHORT, batch_size=2)
    assert isinstance(several, list)
    assert pair({"raw": array, "sampling_rate": 16_000}, generate_kwargs=SHORT) == several[0]


def test_an_iterable_is_read_as_its_results_are(pair, files):
    read = []

    def recordings():
        for file in [*files, *files]:
            read.append(file)
            yield str(file)

    results = pair(recordings(), generate_kwargs=SHORT, batch_size=1)
    assert not read
    first = next(results)
    assert len(read) < 4
    assert [first, *results] == pair(files, generate_kwargs=SHORT) * 2


def test_an_error_is_raised_in_its_place(pair, tmp_path, files):
    results = pair(iter([files[0], tmp_path / "none.wav", files[1]]), generate_kwargs=SHORT)
    assert next(results)["text"].startswith(" Hello")
    with pytest.raises(InvalidAudio, match=r"none\.wav' does not exist"):
        next(results)
    with pytest.raises(RecordingsFailed, match="1 of 2 recordings"):
        pair([files[0], b"no audio"], generate_kwargs=SHORT)


def test_options_of_generate_are_read(pair, files):
    alike = {"num_beams": 1, "do_sample": False, "num_assistant_tokens": 3, "prompt_ids": None}
    expected = pair(files[0], generate_kwargs=GENERATE)
    assert pair(files[0], generate_kwargs=GENERATE | alike, chunk_length_s=0) == expected
    conditioned = pair(files[0], condition_on_prev_tokens=True, return_timestamps=True, **GENERATE)
    assert conditioned["text"] == expected["text"]


@pytest.mark.parametrize(
    ("asked", "error", "message"),
    [
        ({"length_penalty": 1.0}, InvalidRequest, "There is no option 'length_penalty'; there are "),
        ({"num_beams": 5}, UnsupportedOption, "Beam search is not offered"),
        ({"do_sample": True}, UnsupportedOption, "do_sample is not offered: a temperature above 0 samples"),
        ({"assistant_model": 1}, UnsupportedOption, "the draft is an argument of SpeculativeWhisper"),
    ],
)
def test_other_options_are_refused_with_a_sentence(pair, asked, error, message, files):
    with pytest.raises(error, match=message):
        pair(files[0], generate_kwargs=asked)


def test_there_are_no_times_of_characters(pair, files):
    with pytest.raises(InvalidRequest, match="return_timestamps is 'char': choose True, False or 'word'"):
        pair(files[0], return_timestamps="char")
