"""The Python API in one process: what users of openai/whisper and faster-whisper expect of it."""

import subprocess
from dataclasses import replace
from io import BytesIO, StringIO

import numpy as np
import pytest
import soundfile
import torch

from experiments.common.models.checkpoints import Shape, save_checkpoint
from experiments.exactness.prepared import recording
from specwhisper import SpeculativeConfig, SpeculativeWhisper, compare_gammas
from specwhisper.errors import InvalidAudio, InvalidRequest, UnsupportedOption
from specwhisper.model import backends
from specwhisper.model.backends import SharedEncoder, load_encoders
from specwhisper.model.checkpoints.checkpoint import load_checkpoint
from specwhisper.types import Mode
from tests.encoding import note_encoded

SHAPE = Shape(seed=11, scale=0.3)
ASKED = {"language": "en", "max_new_tokens": 12, "temperature": 0.0}  # random weights fail each temperature


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
    result = pair.transcribe(samples, **ASKED)
    assert str(result) == result.text != ""
    assert result.text == "".join(s.text for s in result.segments).strip()
    assert result.duration_s == 3.0
    assert result.language == "en"
    assert not result.is_lossy
    assert result.stats.overall_acceptance_rate == 1.0
    assert result.stats.avg_tokens_per_iteration == result.stats.num_committed / result.stats.num_forwards > 1
    assert sum(result.stats.acceptance_histogram) <= result.stats.num_forwards
    german = pair.transcribe(samples, language="German", max_new_tokens=4, return_stats=False)
    assert (german.language, german.stats) == ("de", None)


class AudioDecoder:
    """An item of `datasets` from version 4 on."""

    def __init__(self, samples: np.ndarray) -> None:
        self._samples = samples

    def get_all_samples(self) -> np.ndarray:
        return self._samples

    def __getitem__(self, name: str) -> object:
        return {"array": self._samples, "sampling_rate": 16_000}[name]


def test_a_file_by_name_or_open_and_an_array_are_the_same(pair, samples, tmp_path):
    path = tmp_path / "a.wav"
    soundfile.write(path, samples, 16_000, "PCM_16")
    expected = pair.transcribe(samples, **ASKED).text
    floats = samples.astype(np.float32) / 32768
    files = (path, str(path), BytesIO(path.read_bytes()), path.read_bytes())
    tensor = torch.from_numpy(floats.copy()).requires_grad_()
    rows = (
        {"path": None, "array": floats, "sampling_rate": 16_000},
        {"path": "a.wav", "bytes": path.read_bytes()},
        {"path": str(path), "bytes": None},
        AudioDecoder(floats),
    )
    for audio in (*files, floats, floats.astype(np.float64), tensor, *rows):
        assert pair.transcribe(audio, **ASKED).text == expected


def test_an_open_file_twice_in_a_list_is_refused(pair, tmp_path, samples):
    soundfile.write(tmp_path / "a.wav", samples, 16_000, "PCM_16")
    with open(tmp_path / "a.wav", "rb") as file, pytest.raises(InvalidAudio, match="in the list twice"):
        pair.transcribe([file, file], **ASKED)


def test_a_call_can_choose_the_mode_and_the_draft_length(pair, samples):
    asked = {**ASKED, "greedy": True}
    default, short = pair.transcribe(samples, **asked), pair.transcribe(samples, gamma=2, **asked)
    assert (default.model.mode, default.model.gamma, short.model.gamma) == (Mode.ONE_PROCESS, 5, 2)
    assert len(short.stats.acceptance_histogram) <= 3 < len(default.stats.acceptance_histogram)
    adaptive = pair.transcribe(samples, gamma=2, use_adaptive_gamma=True, **asked)
    assert (adaptive.model.gamma, adaptive.text) == (0, default.text)
    (figures,) = compare_gammas(pair.transcribe, samples, (2,), **asked)
    assert figures.stats.num_accepted == short.stats.num_accepted
    for target_only in (
        pair.transcribe(samples, mode=Mode.TARGET_ONLY, **asked),
        pair.transcribe(samples, mode="target-only", gamma=3, **asked),
        pair.without_draft().transcribe(samples, **asked),
    ):
        assert target_only.model == replace(default.model, draft="", mode=Mode.TARGET_ONLY, gamma=0)
        assert (target_only.stats.num_verified, target_only.text) == (0, default.text)
    with pytest.raises(InvalidRequest, match="there is no draft model; leave mode out"):
        pair.without_draft().transcribe(samples, mode=Mode.ONE_PROCESS, **asked)


def test_equal_encoders_are_shared(pair, folder, tmp_path):
    assert pair.shares_encoder
    other = save_checkpoint(Shape(seed=12), tmp_path / "other")
    assert not SpeculativeWhisper(str(other), str(folder), device="cpu", batch_size=1).shares_encoder


@pytest.mark.parametrize(
    ("libraries", "dtypes"),
    [(("pytorch", "onnx"), ("float32", "float32")), (("pytorch", "pytorch"), ("float32", "float16"))],
)
def test_models_of_two_libraries_or_types_share_no_encoder(folder, monkeypatch, libraries, dtypes):
    models = [load_checkpoint(str(folder), dtype=dtype) for dtype in dtypes]
    library_of = dict(zip(map(id, models), libraries, strict=True))
    monkeypatch.setattr(backends, "library_for", lambda checkpoint, *_: library_of[id(checkpoint)])
    encoders = load_encoders(*models, 1)
    assert not any(isinstance(encoder, SharedEncoder) for encoder in encoders)


def test_a_window_is_encoded_once_for_draft_and_target_and_never_remembered(folder, samples, monkeypatch):
    pair = SpeculativeWhisper(str(folder), str(folder), device="cpu", batch_size=1)
    encoded = note_encoded(monkeypatch)
    for model in (pair, pair.without_draft(), pair, pair.without_draft()):
        encoded.clear()
        result = model.transcribe(samples, greedy=True, **ASKED)
        assert len(encoded) == result.stats.num_windows > 0


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"language": "xx"}, "Language 'xx' is unknown"),
        ({"initial_prompt": "<|en|>"}, "special tokens such as"),
    ],
)
def test_what_the_model_lacks_is_refused(pair, samples, asked, message):
    with pytest.raises(UnsupportedOption, match=message):
        pair.transcribe(samples, **asked)


def test_a_channel_is_taken(pair, samples):
    file = BytesIO()
    soundfile.write(file, np.stack([samples, 0 * samples], axis=1), 16_000, format="WAV")
    left, right = (pair.transcribe(file.getvalue(), channel=channel, **ASKED) for channel in ("left", 2))
    assert left.text == pair.transcribe(samples, **ASKED).text
    assert right.text == pair.transcribe(0 * samples, **ASKED).text
    with pytest.raises(InvalidAudio, match="no channel '3': the number of channels is 2"):
        pair.transcribe(file.getvalue(), channel=3, **ASKED)


def test_a_recording_that_lacks_something_has_warnings(pair, samples):
    damaged = samples.astype(np.float32) / 32_768
    damaged[8_000] = np.nan
    healthy, result = pair.transcribe([samples, damaged], **ASKED)
    assert healthy.warnings == ()
    (warning,) = result.warnings
    assert "not finite numbers: 1 of them, the first at 0.5 s" in warning
    with pytest.raises(InvalidAudio, match="not finite numbers"):
        pair.transcribe(damaged, strict=True)


@pytest.mark.parametrize(
    ("audio", "message"),
    [
        (np.full(16_000, np.nan, np.float32), "no samples that are finite numbers"),
        (np.zeros((2, 16_000), np.float32), "is not a recording"),
        (np.zeros(0, np.float32), "holds no audio samples"),
        ("nowhere.wav", "does not exist"),
        ([0.0, 0.1], "of type float cannot be read: pass a file name"),
        ({"audio": "a.wav"}, "with audio cannot be read: pass a file name"),
        ({"array": np.zeros(9), "sampling_rate": np.nan}, "sample rate of nan Hz .* a whole number"),
        (StringIO("text"), "open it with mode 'rb'"),
        (b"no audio at all", "neither libsndfile nor FFmpeg"),
    ],
)
def test_bad_audio_is_refused(pair, audio, message):
    with pytest.raises(InvalidAudio, match=message):
        pair.transcribe(audio)


def test_an_open_file_that_cannot_go_back_is_read_once(pair, samples, tmp_path):
    path = tmp_path / "a.wav"
    soundfile.write(path, samples, 16_000, "PCM_16")
    process = subprocess.Popen(["cat", path], stdout=subprocess.PIPE)
    with process, process.stdout as pipe:
        assert pair.transcribe(pipe, **ASKED).text == pair.transcribe(path, **ASKED).text


def test_a_long_recording_without_timestamps_has_a_warning(pair, samples):
    long = np.tile(samples, 31 * 16_000 // len(samples) + 1)
    (warning,) = pair.transcribe(long, timestamps=False, **ASKED).warnings
    assert "parts of 30 s" in warning
    assert pair.transcribe(long, **ASKED).warnings == ()


def test_a_segment_ends_no_later_than_its_recording(pair, samples):
    result = pair.transcribe(samples, language="en", timestamps=False, max_new_tokens=4)
    assert max(segment.end_s for segment in result.segments) == 3.0  # where transformers says 30
    assert all(segment.start_s <= segment.end_s for segment in result.segments)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"gamma": 0}, "gamma is 0"),
        ({"temperature": "hot"}, "temperatures is 'hot'"),
        ({"use_adaptive_gamma": "no"}, "use_adaptive_gamma is 'no': it must be True or False"),
    ],
)
def test_invalid_configs_are_refused(config, message):
    with pytest.raises(InvalidRequest, match=message):
        SpeculativeConfig(**config)


def test_a_batch_needs_a_slot(folder):
    with pytest.raises(InvalidRequest, match="batch_size is 0"):
        SpeculativeWhisper(None, str(folder), batch_size=0)
