"""Sizes of installed packages, a model that repeats another's calls, and the bars of a draft server."""

from __future__ import annotations

import pytest

from experiments.common.models.checkpoints import Shape, build_checkpoint
from experiments.exactness.prepared import recording
from experiments.light.__main__ import find_bars
from experiments.light.disk import installed_mb
from experiments.light.measure import Footprint, Live
from experiments.light.serve_draft import Beside
from specwhisper.engine.inline_pair import InlinePair
from specwhisper.model.model import WhisperModel
from specwhisper.options import DecodingOptions
from specwhisper.types import Mode


def test_an_extra_is_as_large_as_what_it_requires():
    sizes = installed_mb("draft")
    assert list(sizes.values()) == sorted(sizes.values(), reverse=True)
    assert {"onnxruntime", "tokenizers", "grpcio", "protobuf", "idna"} <= sizes.keys(), "also indirectly"
    assert not {"specwhisper", "torch", "transformers", "av"} & sizes.keys()
    assert sizes["onnxruntime"] > 30
    assert {"torch", "av"} <= installed_mb("server").keys()


def test_a_repeating_model_changes_no_text(monkeypatch):
    _, checkpoint = build_checkpoint(Shape(seed=2))
    _, other = build_checkpoint(Shape(seed=3, d_model=32))
    pcm, options = [recording(1, 3.0)], DecodingOptions.greedy()
    target, draft, repeating = (WhisperModel(each, 1) for each in (checkpoint, checkpoint, other))
    repeated, score = [], repeating.score
    monkeypatch.setattr(repeating, "score", lambda rows: repeated.append(score(rows)))
    texts = [
        InlinePair(target, model, mode=Mode.ONE_PROCESS, max_new_tokens=20).transcribe(pcm, options)[0]
        for model in (draft, Beside(draft, repeating))
    ]
    assert texts[0].window_tokens == texts[1].window_tokens
    assert repeated


@pytest.mark.parametrize(("share", "holds"), [(0.9, True), (1.1, False)])
def test_eight_sessions_must_fit_on_a_core(share, holds):
    footprints = [Footprint("demo", (1.0, 9.0, 1.2), 199.0), Footprint("int8", (2.0,), 301.0)]
    found = {"worse": Live(8, 2.0, 0.9), "best": Live(8, share, 0.9)}
    bars = {bar.name: bar.holds for bar in find_bars({"numpy": 300.0, "onnx": 49.0}, footprints, found)}
    assert bars == {
        "packages of the extra draft, MB on disk": True,
        "demo, MB resident": True,
        "int8, MB resident": False,
        "demo, s to start": True,
        "int8, s to start": False,
        "core's share of a live session of tiny's shape, at best": holds,
    }
