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
FILES = [DEMO / "samples" / name for name in ("01_phone_call.flac", "02_tomato_soup.flac")]
GENERATE = {"language": "en", "task": "transcribe"}


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
    expected = theirs(
        samples(FILES[0]),
        return_timestamps=return_timestamps,
        generate_kwargs={**GENERATE, "num_beams": 1},
    )
    assert pair(samples(FILES[0]), return_timestamps=return_timestamps, generate_kwargs=GENERATE) == expected


def test_words_have_the_times_of_transformers(pair):
    result = pair(str(FILES[0]), return_timestamps="word", generate_kwargs=GENERATE)
    words = pair.transcribe(FILES[0], word_timestamps=True, word_times="model", **GENERATE).words
    assert result["chunks"] == [
        {"timestamp": (word.start_s, word.end_s), "text": word.text} for word in words
    ]
    assert result["text"] == "".join(chunk["text"] for chunk in result["chunks"])


def test_chunks_have_the_language_on_request(pair):
    (*_, chunk) = pair(FILES[0], return_language=True, generate_kwargs=GENERATE)["chunks"]
    assert chunk.keys() == {"language", "text"}
    assert chunk["language"] == "english"


def test_recordings_come_in_every_form(pair):
    array = samples(FILES[0])
    expected = pair(array, **GENERATE)
    for recording in (
        FILES[0],
        FILES[0].read_bytes(),
        {"raw": array, "sampling_rate": 16_000},
        {"array": array, "sampling_rate": 16_000, "path": "a.flac"},
    ):
        assert pair(recording, generate_kwargs=GENERATE) == expected
    several = pair(FILES, generate_kwargs=GENERATE, batch_size=2)
    assert isinstance(several, list)
    assert several[0] == expected


def test_an_iterable_is_read_as_its_results_are(pair):
    read = []

    def recordings():
        for file in [*FILES, *FILES]:
            read.append(file)
            yield str(file)

    results = pair(recordings(), generate_kwargs=GENERATE, batch_size=1)
    assert not read
    first = next(results)
    assert len(read) < 4
    assert [first, *results] == pair(FILES, generate_kwargs=GENERATE) * 2


def test_an_error_is_raised_in_its_place(pair, tmp_path):
    results = pair(iter([FILES[0], tmp_path / "none.wav", FILES[1]]), generate_kwargs=GENERATE)
    assert next(results)["text"].startswith(" Hello")
    with pytest.raises(InvalidAudio, match=r"none\.wav' does not exist"):
        next(results)
    with pytest.raises(RecordingsFailed, match="1 of 2 recordings"):
        pair([FILES[0], b"no audio"], generate_kwargs=GENERATE)


def test_options_of_generate_are_read(pair):
    alike = {"num_beams": 1, "do_sample": False, "num_assistant_tokens": 3, "prompt_ids": None}
    expected = pair(FILES[0], generate_kwargs=GENERATE)
    assert pair(FILES[0], generate_kwargs=GENERATE | alike, chunk_length_s=0) == expected
    conditioned = pair(FILES[0], condition_on_prev_tokens=True, return_timestamps=True, **GENERATE)
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
def test_other_options_are_refused_with_a_sentence(pair, asked, error, message):
    with pytest.raises(error, match=message):
        pair(FILES[0], generate_kwargs=asked)


def test_there_are_no_times_of_characters(pair):
    with pytest.raises(InvalidRequest, match="return_timestamps is 'char': choose True, False or 'word'"):
        pair(FILES[0], return_timestamps="char")
