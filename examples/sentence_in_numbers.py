"""Print every forward pass of the sentence that docs/architecture.md explains.

specwhisper models get tiny.en base
python examples/sentence_in_numbers.py [DRAFT TARGET]
"""

from __future__ import annotations

import sys
from typing import Any

from specwhisper import DecodingOptions, SpeculativeWhisper
from specwhisper.audio.decode import decode_file
from specwhisper.engine.pair_engine import PairEngine, PairSession
from specwhisper.speculation.draft_length import DraftLength
from specwhisper.types import Commit, Mode

RECORDING = "specwhisper/demo/human/austen_0880.flac"
GAMMA = 7


def main(draft: str = "tiny.en", target: str = "base") -> None:
    pair = SpeculativeWhisper(draft, target, batch_size=1)
    show_passes(pair.final_model, pair.draft_model)
    engine = PairEngine(pair.final_model, pair.draft_model)
    length, options = DraftLength(Mode.ONE_PROCESS, GAMMA), DecodingOptions(language="en")
    engine.open(PairSession("", decode_file(RECORDING), length, options, pair.final_model.vocabulary))
    while engine.has_work:
        for _, event in engine.step():
            if isinstance(event, Commit):
                print("commit      ", event.base, event.num_accepted, event.tokens)


def show_passes(target: Any, draft: Any) -> None:
    """Make the target print its rows before it scores them, and its choices after that."""
    score = target.score

    def shown(rows: Any) -> Any:
        scores = score(rows)
        if hasattr(draft, "_slots"):  # a draft of another tokenizer
            print("draft's own ", draft._slots[0].own)
        print("forward pass", rows[0].tokens)
        print("choices     ", scores[0].tokens)
        return scores

    target.score = shown


if __name__ == "__main__":
    main(*sys.argv[1:])
