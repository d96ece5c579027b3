"""List the models on this machine, and which may help which as a draft."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from specwhisper.errors import CheckpointError, MissingExtra
from specwhisper.model.checkpoints.files import ModelFiles
from specwhisper.model.checkpoints.formats import format_of, open_model
from specwhisper.model.checkpoints.names import DEMO_MODELS, fetched_folder, resolve
from specwhisper.model.checkpoints.sizes import ModelSizes
from specwhisper.model.checkpoints.weights import PROJECTION, weight_shapes
from specwhisper.model.local.fetching import SOURCES

ENGLISH_TOKENS = 51_864  # in published English-only models; multilingual ones have one or two more
SHAPE = ("parameters", "encoder_layers", "decoder_layers", "width", "tokens", "english_only")


def local_models() -> list[dict[str, Any]]:
    """Return facts of the models on this machine, as plain values.

    ``drafts_for`` names the models that a model may help. Any model can draft for any other.
    """
    models = list(filter(None, (_facts(name, place) for name, place in _places())))
    for model in models:
        model["drafts_for"] = [each["name"] for each in models if _may_help(model, each)]
    return models


def _may_help(draft: Mapping[str, Any], target: Mapping[str, Any]) -> bool:
    """Return whether a draft is smaller and has about as many tokens.

    One that has far fewer lacks most of the target's words.
    """
    if draft["parameters"] is None or target["parameters"] is None:
        return False
    fewest, most = sorted((draft["tokens"], target["tokens"]))
    return bool(draft["parameters"] < target["parameters"] and most < 2 * fewest)


def _places() -> Iterator[tuple[str, str]]:
    for name in DEMO_MODELS:
        with suppress(CheckpointError):  # an installed package has none
            yield name, resolve(name)
    yield from ((name, str(folder)) for name in SOURCES if (folder := fetched_folder(name)).is_dir())
    yield from _cached()
    cache = Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser() / "whisper"  # openai-whisper's
    yield from ((str(path), str(path)) for path in sorted(cache.glob("*.pt")))


def _cached() -> Iterator[tuple[str, str]]:
    from huggingface_hub import scan_cache_dir
    from huggingface_hub.errors import CacheNotFound

    with suppress(CacheNotFound):
        for repository in sorted(scan_cache_dir().repos, key=lambda each: each.repo_id):
            if repository.repo_type == "model" and (revision := repository.refs.get("main")) is not None:
                yield repository.repo_id, str(revision.snapshot_path)


def _facts(name: str, place: str) -> dict[str, Any] | None:
    sizes, is_quantised = None, False
    try:
        files = ModelFiles(place)
        with files.errors_reported():
            model = open_model(files)
            sizes, is_quantised = model.sizes, model.is_quantised
            _, paths = model.weights()
    except MissingExtra:  # a file of PyTorch without torch
        paths = [Path(place)]
    except CheckpointError:
        return None
    return {
        "name": name,
        "path": place,
        "format": str(format_of(paths[0]) or "ONNX"),
        "quantised": is_quantised,
        "bytes": sum(path.stat().st_size for path in paths),
        **dict.fromkeys(SHAPE),
        **({} if sizes is None else _shape(sizes)),
    }


def _shape(sizes: ModelSizes) -> dict[str, int]:
    weights = (math.prod(shape) for name, shape in weight_shapes(sizes).items() if name != PROJECTION)
    return {
        "parameters": sum(weights),
        "encoder_layers": sizes.encoder_layers,
        "decoder_layers": sizes.decoder_layers,
        "width": sizes.d_model,
        "tokens": sizes.vocab_size,
        "english_only": sizes.vocab_size == ENGLISH_TOKENS,
    }
