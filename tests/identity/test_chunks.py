"""Chunks are cut and joined as transformers' pipeline does it."""

import numpy as np
import pytest
from transformers import WhisperFeatureExtractor, pipeline

from experiments.common.models.checkpoints import Shape, build_model, build_tokenizer, save_checkpoint
from experiments.exactness.prepared import recording
from specwhisper import SpeculativeWhisper
from specwhisper.errors import InvalidRequest
from specwhisper.types import SAMPLE_RATE
from tests.nightly import mostly_nightly

SHAPE = Shape(seed=41, decoder_layers=2)
LENGTHS_S = (0.4, 15.0, 31.5)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save_checkpoint(SHAPE, tmp_path_factory.mktemp("models") / "target")


@pytest.fixture(scope="module")
def pair(folder):
    return SpeculativeWhisper(str(folder), str(folder), device="cpu", batch_size=4)


@pytest.fixture(scope="module")
def theirs():
    model, _ = build_model(SHAPE)
    return pipeline(
        "automatic-speech-recognition",
        model=model,
        tokenizer=build_tokenizer(SHAPE),
        feature_extractor=WhisperFeatureExtractor(SHAPE.num_mel_bins),
        device="cpu",
    )


def samples(length_s: float) -> np.ndarray:
    return np.frombuffer(recording(5, length_s), "<i2")


@pytest.mark.parametrize("timestamps", mostly_nightly([True, False]))
@pytest.mark.parametrize(
    ("chunk_length_s", "stride_length_s"), mostly_nightly([(15.0, None), (10.0, 0.0), (30.0, 4.0)])
)
def test_chunks_are_the_pipelines(pair, theirs, timestamps, chunk_length_s, stride_length_s):
    recordings = [samples(length_s) for length_s in LENGTHS_S]
    results = pair.transcribe(
        recordings,
        language="en",
        greedy=True,
        max_new_tokens=20,
        timestamps=timestamps,
        chunk_length_s=chunk_length_s,
        stride_length_s=stride_length_s,
    )
    for pcm, ours in zip(recordings, results, strict=True):
        expected = theirs(
            {"raw": pcm.astype(np.float32) / 32768, "sampling_rate": SAMPLE_RATE},
            chunk_length_s=chunk_length_s,
            stride_length_s=stride_length_s,
            return_timestamps=timestamps,
            generate_kwargs={"language": "en", "task": "transcribe", "max_new_tokens": 20, "num_beams": 1},
        )
        assert "".join(segment.text for segment in ours.segments) == expected["text"]
        if timestamps:
            for segment, chunk in zip(ours.segments, expected["chunks"], strict=True):
                start_s, end_s = chunk["timestamp"]
                assert segment.text == chunk["text"]
                assert start_s in (None, segment.start_s)
                assert end_s in (None, segment.end_s)
        assert all(s.avg_logprob < 0 < s.confidence < 1 for s in ours.segments)
        assert all((s.compression_ratio > 0) == bool(s.text.strip()) for s in ours.segments)
        assert ours.duration_s == len(pcm) / SAMPLE_RATE
        assert ours.stats.num_accepted == ours.stats.num_verified > 0


@pytest.mark.parametrize(("chunk_length_s", "stride_length_s"), [(31.0, None), (10.0, 5.0)])
def test_invalid_chunks_are_refused(pair, chunk_length_s, stride_length_s):
    with pytest.raises(InvalidRequest, match="at most 30 s long"):
        pair.transcribe(samples(1.0), chunk_length_s=chunk_length_s, stride_length_s=stride_length_s)
