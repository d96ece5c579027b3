"""How far a training is that still runs: the full windows, measured with the weights last saved."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from transformers import WhisperForConditionalGeneration

from experiments.demo_pair import model
from experiments.demo_pair.data.corpus import Corpus
from experiments.demo_pair.data.phonemes import Phonemes
from experiments.demo_pair.evaluation.evaluate import (
    FULL_WINDOWS,
    MODELS,
    Exported,
    measure_windows,
    test_windows,
)
from experiments.demo_pair.export import export
from experiments.demo_pair.training.pieces import TARGET_IDS, TINY_IDS, distil_from

TARGET_STATE = "target.state.pt"
DRAFTS_STATE = "drafts.state.pt"


def part(state: dict[str, torch.Tensor], prefix: str) -> dict[str, torch.Tensor]:
    """Return the weights below a prefix, by their names there."""
    return {name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)}


def saved_models(work: Path) -> tuple[dict[str, WhisperForConditionalGeneration], dict[str, float]]:
    """Load the models that have been saved, and for how many minutes each was trained."""
    state = torch.load(work / TARGET_STATE)
    recognizer = model.Recognizer(model.build(TARGET_IDS, **model.TARGET), Phonemes.load(work).size)
    recognizer.load_state_dict(part(state["averaged"], "module."))
    models, minutes = {"target": recognizer.whisper}, {"target": state["schedule"]["minutes"]}
    if (work / DRAFTS_STATE).exists():
        drafts = torch.load(work / DRAFTS_STATE)
        minutes["drafts"] = drafts["schedule"]["minutes"]
        models["draft-tiny"] = model.build(TINY_IDS, **model.TINY)
        models["draft-distil"] = distil_from(recognizer.whisper)
        for name in ("draft-tiny", "draft-distil"):
            models[name].load_state_dict(part(drafts["weights"], f"{name}.whisper."))
    return models, minutes


def peek(work: Path, packed: int, seed: int) -> None:
    """Print the measurements of the full windows as JSON."""
    models, minutes = saved_models(work)
    with TemporaryDirectory() as folder:
        for name, whisper in models.items():
            export(whisper, work / "bpe", Path(folder) / name, MODELS[name] is TARGET_IDS)
        loaded = {name: Exported(Path(folder) / name, MODELS[name]) for name in models}
        windows = test_windows(Corpus.load(work), 0, packed, seed)
        for name in FULL_WINDOWS:
            rates, agreements = measure_windows(windows[name], loaded, local=True)
            found = {"windows": name, "minutes": minutes, "wer": rates, "drafts": agreements}
            print(json.dumps(found), flush=True)
