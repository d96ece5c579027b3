"""The adapter of sherpa-onnx, with a tiny streaming model that is made here."""

import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

from specwhisper.errors import InvalidRequest, MissingExtra
from specwhisper.types import SAMPLE_RATE
from specwhisper_recognisers.protocol import load_recogniser
from tests.sherpa_model import write_model

FACTORY = "specwhisper_recognisers.sherpa:create"
LOUD_S = ((1.0, 1.3), (4.0, 4.3))
PIECE = SAMPLE_RATE // 10


def audio() -> np.ndarray:
    """Return silence with two stretches of noise."""
    samples = np.zeros(7 * SAMPLE_RATE)
    for begin_s, end_s in LOUD_S:
        begin, end = round(begin_s * SAMPLE_RATE), round(end_s * SAMPLE_RATE)
        samples[begin:end] = np.random.default_rng(0).normal(0, 0.2, end - begin)
    return (samples * 32_767).clip(-32_768, 32_767).astype("<i2")


def test_an_utterance_grows_and_the_next_one_begins_after_it(tmp_path):
    recogniser = load_recogniser(FACTORY, str(write_model(tmp_path / "tiny")))
    assert recogniser.name == "tiny"
    stream, recognised, samples = recogniser.open("en", 0.0, is_live=True), [], audio()
    for start in range(0, len(samples), PIECE):
        is_last = start + PIECE >= len(samples)
        recognised += stream.accept(
            samples[start : start + PIECE].tobytes(), is_pause=False, is_last=is_last, waiting_s=0
        )
    for begin_s, end_s in LOUD_S:
        texts = [text for start_s, text in recognised if begin_s - 0.2 <= start_s <= end_s]
        assert len(texts) > 1
        assert texts == sorted(texts, key=len)
        assert all(text.startswith("Hello") and text[1:].islower() for text in texts)
    assert all(
        any(begin_s - 0.2 <= start_s <= end_s for begin_s, end_s in LOUD_S) for start_s, _ in recognised
    )


def test_a_stream_of_another_session_is_its_own(tmp_path):
    recogniser = load_recogniser(FACTORY, str(write_model(tmp_path)))
    first, second = recogniser.open("en", 0.0, is_live=True), recogniser.open("en", 0.0, is_live=True)
    pcm = audio().tobytes()
    assert not first.accept(b"", is_pause=True, is_last=False, waiting_s=0)
    assert first.accept(pcm, is_pause=False, is_last=True, waiting_s=0)
    assert not second.accept(bytes(len(pcm)), is_pause=False, is_last=True, waiting_s=0)


def test_a_folder_without_a_model_is_refused(tmp_path):
    with pytest.raises(InvalidRequest, match=r"holds tokens\.txt"):
        load_recogniser(FACTORY, str(tmp_path / "none"))
    folder = write_model(tmp_path / "half")
    (folder / "joiner.onnx").unlink()
    with pytest.raises(InvalidRequest, match="no streaming model"):
        load_recogniser(FACTORY, str(folder))


def without_metadata(encoder: Path) -> None:
    model = onnx.load(encoder)
    del model.metadata_props[:]
    onnx.save(model, encoder)


@pytest.mark.parametrize(
    "spoil", [without_metadata, lambda encoder: encoder.write_bytes(b"no model")], ids=["offline", "corrupt"]
)
@pytest.mark.parametrize("is_whole", [False, True], ids=["transducer", "whole"])
def test_a_model_that_sherpa_onnx_cannot_use_is_refused_and_ends_no_process(tmp_path, spoil, is_whole):
    folder = write_model(tmp_path)
    spoil(folder / "encoder.onnx")
    if is_whole:
        (folder / "joiner.onnx").unlink()
        (folder / "decoder.onnx").unlink()
    with pytest.raises(InvalidRequest, match=r"sherpa-onnx \(|can read|no streaming model"):
        load_recogniser(FACTORY, str(folder))


def test_without_sherpa_onnx_it_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "sherpa_onnx", None)
    with pytest.raises(MissingExtra, match=r"specwhisper\[sherpa\]"):
        load_recogniser(FACTORY, "folder")
