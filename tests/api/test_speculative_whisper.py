"""The Python API in one process: what users of openai/whisper and faster-whisper expect of it."""

from __future__ import annotations

import subprocess
from io import BytesIO

import numpy as np
import pytest
import soundfile
import torch

from experiments.common.checkpoints import Shape, save_checkpoint
from experiments.exactness.prepared import recording
from specwhisper import SpeculativeConfig, SpeculativeWhisper
from specwhisper.errors import InvalidAudio, InvalidRequest, UnsupportedOption

SHAPE = Shape(seed=11, scale=0.1)
MAX_TOKENS = 12


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save_checkpoint(SHAPE, tmp_path_factory.mktemp("models") / "target")


@pytest.fixture(scope="module")
def pair(folder):
    return SpeculativeWhisper(str(folder), str(folder), device="cpu", batch_size=2)


@pytest.fixture(scope="module")
def samples() -> np.ndarray:
    return np.frombuffer(recording(1, 3.0), "<i2")


def test_one_recording_gives_one_result_that_prints_as_its_text(pair, samples):
    result = pair.transcribe(samples, language="en", max_tokens=MAX_TOKENS)
    assert str(result) == result.text == "".join(s.text for s in result.segments).strip()
    assert result.duration_s == 3.0
    assert result.language == "en"
    assert not result.is_lossy


def test_several_give_a_list_in_their_order(pair, samples):
    lengths = (3.0, 1.0, 2.0, 0.5, 2.5)
    recordings = [samples[: int(length_s * 16_000)] for length_s in lengths]
    results = pair.transcribe(recordings, language="en", max_tokens=MAX_TOKENS)
    assert [result.duration_s for result in results] == list(lengths)
    for audio, result in zip(recordings, results, strict=True):
        assert result.text == pair.transcribe(audio, language="en", max_tokens=MAX_TOKENS).text
    assert pair.transcribe([]) == []


def test_a_file_by_name_or_open_and_an_array_are_the_same(pair, samples, tmp_path):
    path = tmp_path / "a.wav"
    soundfile.write(path, samples, 16_000, "PCM_16")
    asked = {"language": "en", "max_tokens": MAX_TOKENS}
    expected = pair.transcribe(samples, **asked).text
    floats = samples.astype(np.float32) / 32768
    row = {"path": None, "array": floats, "sampling_rate": 16_000}
    files = (path, str(path), BytesIO(path.read_bytes()), path.read_bytes())
    for audio in (*files, floats, floats.astype(np.float64), torch.from_numpy(floats), row):
        assert pair.transcribe(audio, **asked).text == expected


def test_statistics(pair, samples):
    result = pair.transcribe(samples, language="en", max_tokens=MAX_TOKENS)
    counts = result.stats.counts
    assert result.stats.overall_acceptance_rate == 1.0
    assert result.stats.avg_tokens_per_iteration == counts.num_committed / counts.num_passes > 1
    assert sum(result.stats.acceptance_histogram) <= counts.num_passes
    assert pair.transcribe(samples, language="en", max_tokens=4, return_stats=False).stats is None


def test_the_target_alone_writes_the_same(pair, samples):
    asked = {"language": "en", "max_tokens": MAX_TOKENS, "temperatures": (0.8,), "seed": 3}
    alone = pair.without_draft().transcribe(samples, **asked)
    split = pair.transcribe(samples, **asked)
    assert [s.tokens for s in alone.segments] == [s.tokens for s in split.segments]
    assert alone.stats.counts.num_verified == 0


def test_equal_encoders_are_shared(pair, folder, tmp_path):
    assert pair.shares_encoder
    other = save_checkpoint(Shape(seed=12), tmp_path / "other")
    assert not SpeculativeWhisper(str(other), str(folder), device="cpu", batch_size=1).shares_encoder


def test_a_window_is_encoded_once_where_the_encoder_is_shared(folder, samples):
    pair = SpeculativeWhisper(str(folder), str(folder), device="cpu", batch_size=1)
    encoder = pair.final_model._encoder._encoder
    calls = []
    handle = encoder.register_forward_hook(lambda *_: calls.append(1))
    pair.transcribe(samples, language="en", max_tokens=MAX_TOKENS)
    handle.remove()
    assert (
        len(calls) == pair.transcribe(samples, language="en", max_tokens=MAX_TOKENS).stats.counts.num_windows
    )


def test_the_config_says_how(folder, samples):
    config = SpeculativeConfig(gamma=3, use_adaptive_gamma=True, temperature=[0.0, 0.5], top_k=5)
    lossy = SpeculativeConfig(acceptance_threshold=0.3)
    pair = SpeculativeWhisper(str(folder), str(folder), device="cpu", config=config, batch_size=1)
    assert pair.transcribe(samples, language="en", max_tokens=MAX_TOKENS).text
    pair.config = lossy
    assert pair.transcribe(samples, language="en", max_tokens=MAX_TOKENS).is_lossy


@pytest.mark.parametrize(
    ("asked", "error", "message"),
    [
        ({"langauge": "en"}, InvalidRequest, "There is no option 'langauge'"),
        ({"language": "xx"}, UnsupportedOption, "Language 'xx' is unknown"),
        ({"max_tokens": 0}, InvalidRequest, "max_new_tokens is 0"),
        ({"initial_prompt": "wood " * 300}, UnsupportedOption, "shorten it"),
        ({"initial_prompt": "<|en|>"}, UnsupportedOption, "special tokens such as"),
        ({"beam_size": 5}, UnsupportedOption, "Beam search is not offered"),
        ({"language": 5}, InvalidRequest, "language is 5: it must be text"),
        ({"stride_length_s": 2.0}, InvalidRequest, "give chunk_length_s too"),
        ({"chunk_length_s": 5.0, "word_timestamps": True}, UnsupportedOption, "leave chunk_length_s or word"),
    ],
)
def test_what_cannot_be_is_refused(pair, samples, asked, error, message):
    with pytest.raises(error, match=message):
        pair.transcribe(samples, **asked)


@pytest.mark.parametrize(
    ("audio", "message"),
    [
        (np.full(16_000, np.nan, np.float32), "not finite"),
        (np.zeros((2, 16_000), np.float32), "is no recording"),
        (np.zeros(0, np.float32), "is empty"),
        (np.zeros(16_000, np.int32), "int32 are not supported"),
        ("nowhere.wav", "does not exist"),
        ([0.0, 0.1], "of type float cannot be read: give a file name"),
        (None, "of type NoneType cannot be read: give a file name"),
        ({"path": "a.wav"}, "with path cannot be read: give a file name"),
        (b"no audio at all", "neither libsndfile nor FFmpeg"),
    ],
)
def test_bad_audio_is_refused(pair, audio, message):
    with pytest.raises(InvalidAudio, match=message):
        pair.transcribe(audio)


def test_an_open_file_that_cannot_go_back_is_read_once(pair, samples, tmp_path):
    path = tmp_path / "a.wav"
    soundfile.write(path, samples, 16_000, "PCM_16")
    asked = {"language": "en", "max_tokens": 4}
    process = subprocess.Popen(["cat", path], stdout=subprocess.PIPE)
    with process, process.stdout as pipe:
        assert pair.transcribe(pipe, **asked).text == pair.transcribe(path, **asked).text


def test_options_as_other_whispers_have_them(pair, samples):
    expected = pair.transcribe(samples, language="en", temperatures=(0.5,), seed=1, max_tokens=4)
    asked = {"temperature": 0.5, "initial_prompt": None, "hotwords": None, "beam_size": 1, "top_k": None}
    assert pair.transcribe(samples, language="en", seed=1, max_tokens=4, **asked).text == expected.text


def test_a_segment_ends_no_later_than_its_recording(pair, samples):
    result = pair.transcribe(samples, language="en", timestamps=False, max_tokens=4)
    assert max(segment.end_s for segment in result.segments) == 3.0  # where transformers says 30
    assert all(segment.start_s <= segment.end_s for segment in result.segments)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"gamma": 0}, "gamma is 0"),
        ({"acceptance_threshold": 7}, "acceptance_threshold is 7"),
        ({"temperature": "hot"}, "temperatures is 'hot'"),
    ],
)
def test_a_config_that_cannot_be_meant(config, message):
    with pytest.raises(InvalidRequest, match=message):
        SpeculativeConfig(**config)


def test_names_of_languages(pair, samples):
    by_name = pair.transcribe(samples, language="German", max_tokens=4)
    assert by_name.language == "de"


def test_a_batch_needs_a_place(folder):
    with pytest.raises(InvalidRequest, match="batch_size is 0"):
        SpeculativeWhisper(None, str(folder), batch_size=0)
