"""Beginning a training with an exported target, whose optimiser, averages and CTC head are gone."""

from __future__ import annotations

from pathlib import Path
from shutil import copyfile

import torch
from torch.optim.swa_utils import AveragedModel
from transformers import WhisperForConditionalGeneration

from experiments.demo_pair import model
from experiments.demo_pair.data.phonemes import Phonemes
from experiments.demo_pair.data.tokenizer import Vocabulary
from experiments.demo_pair.model import Recognizer
from experiments.demo_pair.training.checkpoint import write
from experiments.demo_pair.training.schedule import Schedule

WORD_PIECES = ("vocab.json", "merges.txt")


def is_exported(folder: Path) -> bool:
    """Return whether a folder has exported models rather than a work folder's state."""
    return (folder / "target" / "model.safetensors").exists()


def copy_word_pieces(folder: Path, bpe: Path) -> None:
    """Copy the exported target's word pieces, without which its embeddings mean nothing."""
    bpe.mkdir(parents=True, exist_ok=True)
    for name in WORD_PIECES:
        copyfile(folder / "target" / name, bpe / name)


def exported_recognizer(folder: Path, phonemes: int) -> Recognizer:
    """Load an exported target in single precision, with a new CTC head."""
    exported = WhisperForConditionalGeneration.from_pretrained(folder / "target", dtype=torch.float32)
    whisper = model.build(Vocabulary.of(with_cantonese=True), **model.TARGET)
    whisper.load_state_dict(exported.state_dict())
    return Recognizer(whisper, phonemes)


def begin(folder: Path, work: Path, path: Path) -> None:
    """Write the first state of a training that continues from an exported target, unless there is one."""
    if path.exists():
        return
    recognizer = exported_recognizer(folder, Phonemes.load(work).size)
    state: dict[str, object] = {
        "weights": recognizer.state_dict(),
        "averaged": AveragedModel(recognizer).state_dict(),
        "optimizer": {},
        "schedule": Schedule(minutes=1.0, peak=0.0, course="continued").state(),
    }
    write(state, path)
