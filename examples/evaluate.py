"""How accurate is the pair? Word error rates of the target alone and of the pair on recordings with texts.

python examples/evaluate.py [FOLDER]
"""

from __future__ import annotations

import sys
from importlib.resources import files
from pathlib import Path

from specwhisper import SpeculativeWhisper
from specwhisper_evaluation.comparison import compare
from specwhisper_evaluation.methods import in_one_process
from specwhisper_evaluation.references import from_folder


def main() -> None:
    """Print error rates, times and whether the texts are the same; ``specwhisper evaluate`` does more."""
    samples = Path(str(files("specwhisper"))) / "demo" / "samples"
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else samples
    pair = SpeculativeWhisper("demo-draft-tiny", "demo-target", device="cpu", batch_size=1)
    comparison = compare(in_one_process(pair, language="en"), from_folder(folder))
    for method in (comparison.standard, comparison.speculative):
        rates = comparison.rates(method)
        print(f"{method.name}: {rates.wer:.1%} of words wrong, {method.elapsed_s:.1f} s")
    count = len(comparison.references)
    print(f"{comparison.num_identical} of {count} texts are identical, token for token")


if __name__ == "__main__":
    main()
