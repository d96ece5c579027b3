"""Several recordings in one call: what is read when, results as they finish, and recordings that fail."""

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import soundfile

from experiments.common.models.checkpoints import Shape, save_checkpoint
from experiments.exactness.prepared import recording
from specwhisper import RecordingsFailed, SpeculativeConfig, SpeculativeWhisper, Transcription
from specwhisper.errors import InvalidAudio, InvalidRequest, UnsupportedOption

ASKED = {"language": "en", "max_new_tokens": 8, "temperature": 0.0}  # random weights fail each temperature


@pytest.fixture(scope="module")
def pair(tmp_path_factory) -> SpeculativeWhisper:
    folder = save_checkpoint(Shape(seed=11, scale=0.1), tmp_path_factory.mktemp("models") / "target")
    return SpeculativeWhisper(str(folder), str(folder), device="cpu", batch_size=2)


@pytest.fixture
def files(tmp_path) -> list[str]:
    names = [str(tmp_path / f"{number}.wav") for number in range(6)]
    for number, name in enumerate(names):
        soundfile.write(name, np.frombuffer(recording(number, 0.5 + 0.1 * number), "<i2"), 16_000, "PCM_16")
    return names


@pytest.fixture
def broken(tmp_path) -> str:
    path = tmp_path / "broken.wav"
    path.write_bytes(b"RIFF, or so")
    return str(path)


def durations(results: list) -> list[float]:
    return [round(result.duration_s, 2) for result in results]


ALL = [0.5, 0.6, 0.7, 0.8, 0.9, 1.0]


@pytest.mark.parametrize("how", [{"batch_size": 20}, {"chunk_length_s": 0.4}])
def test_files_are_opened_when_their_turn_comes(pair, files, how):
    """Each file is made only when the recording three before it has finished: two slots and one ahead.

    A batch that is larger than the pair's reads no further ahead.
    """
    contents = [Path(name).read_bytes() for name in files]
    for name in files[3:]:
        os.remove(name)
    taken = []

    def names() -> Iterator[str]:
        for name in files:
            taken.append(name)
            yield name

    found = {}
    for place, result in pair.transcribe_iter(names(), **how, **ASKED):
        found[place] = result
        assert len(taken) <= len(found) + 3
        for number in range(3, min(len(files), len(found) + 3)):
            Path(files[number]).write_bytes(contents[number])
    assert durations([found[place] for place in sorted(found)]) == ALL


def test_results_come_as_they_finish(pair):
    long, short = (np.frombuffer(recording(1, length_s), "<i2") for length_s in (70.0, 0.5))
    places = [place for place, _ in pair.transcribe_iter([long, short, short], **ASKED)]
    assert sorted(places) == [0, 1, 2]
    assert places.index(1) < places.index(0)


def test_missing_files_are_all_named_before_anything_is_decoded(pair, files, monkeypatch):
    monkeypatch.setattr(pair, "_prepared", lambda *_: pytest.fail("decoded"))
    missing = [files[0], "nowhere.wav", files[1], {"path": "neither.flac", "bytes": None}]
    for transcribe in (pair.transcribe, pair.transcribe_iter):
        with pytest.raises(InvalidAudio, match=r"2 recordings cannot.*'nowhere\.wav'.*'neither\.flac'"):
            transcribe(missing, **ASKED)
    with pytest.raises(InvalidAudio, match=r"^Audio file 'nowhere\.wav' does not exist\.$"):
        pair.transcribe(missing[:3], **ASKED)


def test_a_file_that_fails_later_raises_after_the_others_with_their_results(pair, files, broken):
    nan = np.full(16_000 * 40, np.nan, np.float32)
    with pytest.raises(
        RecordingsFailed, match=r"2 of 5 recordings failed\. Number 2: .*broken\.wav"
    ) as raised:
        pair.transcribe([files[0], broken, files[1], nan, files[2]], **ASKED)
    error = raised.value
    assert sorted(error.errors) == [1, 3]
    assert all(isinstance(each, InvalidAudio) for each in error.errors.values())
    assert [error.results[place] for place in (1, 3)] == [error.errors[1], error.errors[3]]
    assert durations([error.results[place] for place in (0, 2, 4)]) == ALL[:3]


def rows(files: list[str], error: Exception) -> Iterator[str]:
    """A data set that has a bad row."""
    yield from files
    raise error


@pytest.mark.parametrize(("chunks", "on_error"), [({}, "raise"), ({"chunk_length_s": 0.4}, "return")])
def test_an_iterable_that_raises_discards_no_result(pair, files, broken, chunks, on_error):
    mine, asked = ValueError("row 4"), {"on_error": on_error, **chunks, **ASKED}
    with pytest.raises(RecordingsFailed, match=r"Number 4 could not be read: row 4\.") as raised:
        pair.transcribe(rows([files[0], broken, files[1]], mine), **asked)
    error = raised.value
    assert error.__cause__ is mine
    assert sorted(error.errors) == [1]
    assert durations([error.results[0], error.results[2]]) == ALL[:2]
    found = {}
    with pytest.raises(RecordingsFailed, match="Number 4 could not be read: OSError"):
        found.update(pair.transcribe_iter(rows([files[0], broken, files[1]], OSError()), **asked))
    assert durations([found[0], found[2]]) == ALL[:2]


def test_an_iterable_that_is_interrupted_ends_the_call(pair, files):
    with pytest.raises(KeyboardInterrupt):
        pair.transcribe(rows(files[:2], KeyboardInterrupt()), **ASKED)


def test_an_error_comes_back_in_its_place(pair, files, broken):
    results = pair.transcribe([files[0], broken, "nowhere.wav", 3.5, files[1]], on_error="return", **ASKED)
    assert durations([results[0], results[4]]) == ALL[:2]
    assert [type(result) for result in results[1:4]] == [InvalidAudio] * 3
    assert isinstance(pair.transcribe(broken, on_error="return", **ASKED), InvalidAudio)
    assert isinstance(pair.transcribe(files[0], on_error="return", **ASKED), Transcription)


def test_an_iterator_raises_at_its_end_or_yields_errors(pair, files, broken):
    asked = [broken, *files[:3]]
    found = dict(pair.transcribe_iter(asked, on_error="return", **ASKED))
    assert isinstance(found[0], InvalidAudio)
    assert durations([found[place] for place in (1, 2, 3)]) == ALL[:3]
    results = pair.transcribe_iter(asked, **ASKED)
    assert sorted(place for place, _ in (next(results), next(results), next(results))) == [1, 2, 3]
    with pytest.raises(RecordingsFailed, match="1 of 4") as raised:
        next(results)
    assert sorted(raised.value.errors) == [0]


def test_none_overrides_the_config(pair, files):
    config = pair.config
    try:
        pair.config = SpeculativeConfig(acceptance_threshold=0.3, temperature=0.7, top_k=5)
        assert pair.transcribe(files[0], language="en", max_new_tokens=8).is_lossy
        nothing = {"acceptance_threshold": None, "temperature": None, "top_k": None}
        result = pair.transcribe(files[0], language="en", max_new_tokens=8, **nothing)
        assert not result.is_lossy
    finally:
        pair.config = config
    assert result.text == pair.transcribe(files[0], language="en", max_new_tokens=8).text


NAN = float("nan")


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"langauge": "en"}, "Unknown option 'langauge': choose from .*max_new_tokens"),
        ({"mode": "full"}, "mode is 'full': one process has one-process and target-only"),
        ({"gamma": 0}, "gamma is 0"),
        ({"batch_size": NAN}, "batch_size is nan: it must be a whole number"),
        ({"chunk_length_s": NAN}, "chunk_length_s is nan: it must be a number of seconds"),
        ({"chunk_length_s": 15, "stride_length_s": NAN}, "stride_length_s is nan"),
        ({"chunk_length_s": 0}, "Chunks of 0 s"),
        ({"chunk_length_s": 15, "hint": "a"}, "leave chunk_length_s or hint out"),
        ({"stride_length_s": 2.0}, "set chunk_length_s too"),
        ({"hint": "a"}, "hint is the text of one recording"),
        ({"on_error": "ignore"}, "on_error is 'ignore': choose 'raise' or 'return'"),
    ],
)
def test_invalid_options_are_refused_before_anything_is_decoded(pair, files, asked, message, monkeypatch):
    monkeypatch.setattr(pair, "_pair", None)
    for transcribe in (pair.transcribe, pair.transcribe_iter):
        with pytest.raises((InvalidRequest, UnsupportedOption), match=message):
            transcribe(files, **asked)


def test_a_bar_is_shown_on_a_terminal_only(pair, files, monkeypatch, capsys):
    pair.transcribe(files[:2], **ASKED)
    assert capsys.readouterr().err == ""
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich takes standard error for a terminal then
    monkeypatch.setenv("TERM", "xterm")
    pair.transcribe(files[:2], **ASKED)
    assert " of 2 done" in capsys.readouterr().err
    pair.transcribe(files[:2], progress=False, **ASKED)
    assert capsys.readouterr().err == ""
    monkeypatch.delenv("FORCE_COLOR")
    assert len(list(pair.transcribe_iter(iter(files[:2]), progress=True, **ASKED))) == 2
