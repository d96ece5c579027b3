"""Command line: `python -m experiments.demo_pair STAGE --work FOLDER`."""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path

import torch
from transformers import set_seed
from transformers.utils import logging

from experiments.demo_pair import export, model
from experiments.demo_pair.data import samples
from experiments.demo_pair.data.corpus import Corpus, build
from experiments.demo_pair.data.phonemes import FILE as LEXICON
from experiments.demo_pair.data.phonemes import write_phonemes
from experiments.demo_pair.data.sentences import corpus
from experiments.demo_pair.data.tokenizer import train_bpe
from experiments.demo_pair.evaluation import peek
from experiments.demo_pair.evaluation.card import write_card
from experiments.demo_pair.evaluation.evaluate import MODELS, evaluate
from experiments.demo_pair.training import distil, parallel, pieces, takeover, train
from experiments.demo_pair.training.checkpoint import continue_training

OUT = Path(__file__).parents[2] / "specwhisper" / "demo"
STATE = "target.state.pt"
STAGES = ("data", "target", "drafts", "export", "samples", "evaluate")


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="experiments.demo_pair", description=__doc__)
    parser.add_argument("stage", choices=("all", *STAGES, "peek"))
    parser.add_argument("--work", type=Path, required=True, help="folder for data and checkpoints")
    parser.add_argument("--out", type=Path, default=OUT, help="where the models go")
    parser.add_argument("--fsdd", type=Path, help="Free Spoken Digit Dataset recordings (optional)")
    parser.add_argument(
        "--continue-from",
        type=Path,
        help="another work folder, or a folder of exported models: take over its target and word pieces, "
        "and skip the first lessons",
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--sentences", type=int, default=40_000)
    parser.add_argument(
        "--more-sentences",
        type=int,
        default=0,
        help="further training sentences; the test sets stay as they are without them",
    )
    parser.add_argument("--minutes", type=float, default=80.0, help="training time of the target")
    parser.add_argument("--peak", type=float, default=3e-3, help="the target's highest learning rate")
    parser.add_argument(
        "--hold", type=float, default=0.0, help="share of the target's training before that rate falls"
    )
    parser.add_argument(
        "--draft-minutes",
        type=float,
        default=16.0,
        help="training time of both drafts together",
    )
    parser.add_argument("--processes", type=int, default=2, help="training processes, one a core")
    parser.add_argument("--quick", action="store_true", help="a tiny run that tests the pipeline")
    return parser.parse_args()


def run(stage: str, args: argparse.Namespace) -> None:
    """Run one stage."""
    work, seed, store = args.work, args.seed, str(args.work / "processes")
    if stage == "data":
        if (work / LEXICON).exists():  # the last thing that this stage writes
            print("the data are there already")
            return
        held_out = 40 if args.quick else 1000
        build(work, args.sentences, held_out, seed, args.fsdd, args.more_sentences)
        # Word pieces and sounds come from text alone, so that a small corpus has all of them too.
        texts = [*corpus(20_000, 0, seed)[0], *(clip.text for clip in Corpus.load(work).clips)]
        earlier = args.continue_from
        if earlier is None:
            train_bpe(texts, work / "bpe")
        elif takeover.is_exported(earlier):
            takeover.copy_word_pieces(earlier, work / "bpe")
        else:
            shutil.copytree(earlier / "bpe", work / "bpe", dirs_exist_ok=True)
            texts += [" ".join(json.loads((earlier / LEXICON).read_text()))]
            continue_training(earlier / STATE, work / STATE, args.minutes)
        write_phonemes(texts, work)
    elif stage == "target":
        if args.continue_from is not None and takeover.is_exported(args.continue_from):
            takeover.begin(args.continue_from, work, work / STATE)
        target = (work, args.minutes, seed, args.peak, args.hold)
        parallel.run(args.processes, store, train.train_target, *target)
    elif stage == "drafts":
        parallel.run(
            args.processes,
            store,
            distil.train_drafts,
            work,
            args.draft_minutes,
            seed,
        )
    elif stage == "export":
        export_all(work, args.out)
    elif stage == "evaluate":
        few = {"per_split": 8, "packed": 2} if args.quick else {}
        evaluate(args.out, work, args.minutes, args.draft_minutes, seed=seed, **few)
        write_card(args.out)
    elif stage == "peek":
        torch.set_num_threads(1)
        peek.peek(args.work, 10 if args.quick else 40, seed)
    elif stage == "samples":
        samples.make_samples(args.out / "samples", seed)


def export_all(work: Path, out: Path) -> None:
    """Export the three models."""
    target = distil.load_target(work).whisper
    tiny = model.build(pieces.TINY_IDS, **model.TINY)
    tiny.load_state_dict(torch.load(work / "draft-tiny.pt"))
    shared = pieces.distil_from(target)
    shared.load_state_dict(torch.load(work / "draft-distil.pt"))
    for name, whisper in (("draft-tiny", tiny), ("draft-distil", shared), ("target", target)):
        export.export(whisper, work / "bpe", out / name, MODELS[name] is pieces.TARGET_IDS)


def main() -> None:
    """Run one stage, or all of them."""
    args = parse()
    logging.set_verbosity_error()
    set_seed(args.seed)
    if args.quick:
        args.sentences, args.minutes, args.draft_minutes = 150, 0.2, 0.1
    for stage in STAGES if args.stage == "all" else (args.stage,):
        print(f"== {stage}", flush=True)
        run(stage, args)


if __name__ == "__main__":
    main()
