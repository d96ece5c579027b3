"""Command line: `python -m experiments.demo_pair STAGE --work FOLDER`."""

from __future__ import annotations

import argparse
from pathlib import Path

from transformers import set_seed

from experiments.demo_pair import processes
from experiments.demo_pair.corpus import Corpus, build
from experiments.demo_pair.drafts import export, train_drafts
from experiments.demo_pair.measure import measure
from experiments.demo_pair.sentences import corpus
from experiments.demo_pair.target import train_target
from experiments.demo_pair.vocabulary import LEXICON, words, write_phonemes
from specwhisper.model.checkpoints.names import DEMO_FOLDER

STAGES = ("data", "target", "drafts", "export", "evaluate")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="experiments.demo_pair", description=__doc__)
    parser.add_argument("stage", choices=("all", *STAGES))
    parser.add_argument("--work", type=Path, required=True, help="folder for data and checkpoints")
    parser.add_argument("--out", type=Path, default=DEMO_FOLDER, help="where the models go")
    parser.add_argument("--fsdd", type=Path, help="Free Spoken Digit Dataset recordings (optional)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--sentences", type=int, default=40_000)
    parser.add_argument("--minutes", type=float, default=80.0, help="training time of the target")
    parser.add_argument(
        "--draft-minutes", type=float, default=16.0, help="training time of both drafts together"
    )
    parser.add_argument("--processes", type=int, default=2, help="training processes, one a core")
    parser.add_argument("--quick", action="store_true", help="a tiny run that tests the pipeline")
    return parser.parse_args()


def make_data(args: argparse.Namespace) -> None:
    if (args.work / LEXICON).exists():  # the last thing that this stage writes
        print("the data are there already")
        return
    held_out = 40 if args.quick else 1000
    build(args.work, args.sentences, held_out, args.seed, args.fsdd)
    # Sounds come from text alone, so that a small corpus has all of them too.
    texts = [*corpus(20_000, 0, args.seed)[0], *(clip.text for clip in Corpus.load(args.work).clips)]
    write_phonemes(texts, args.work)
    print(f"{len({word for text in texts for word in words(text)})} words")


def run(stage: str, args: argparse.Namespace) -> None:
    work, out, store = args.work, args.out, args.work / "processes"
    match stage:
        case "data":
            make_data(args)
        case "target":
            processes.run(args.processes, store, train_target, work, args.minutes, args.seed)
        case "drafts":
            processes.run(args.processes, store, train_drafts, work, args.draft_minutes, args.seed)
        case "export":
            export(work, out)
        case "evaluate":
            drafts = [str(out / "draft-tiny"), str(out / "draft-distil")]
            figures = out / "metrics.json"
            measure(str(out / "target"), drafts, work=work, quick=args.quick, seed=args.seed, json=figures)


def main() -> None:
    args = parse()
    set_seed(args.seed)
    if args.quick:
        args.sentences, args.minutes, args.draft_minutes = 150, 0.2, 0.1
    for stage in STAGES if args.stage == "all" else (args.stage,):
        print(f"== {stage}", flush=True)
        run(stage, args)


if __name__ == "__main__":
    main()
