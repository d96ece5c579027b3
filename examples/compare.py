"""How much faster is the pair than the target alone? Text, time and acceptance for several draft lengths.

python examples/compare.py [FILE]
"""

from __future__ import annotations

import sys
import time
from importlib.resources import files
from pathlib import Path

from specwhisper import SpeculativeConfig, SpeculativeWhisper


def main() -> None:
    """Print a line per draft length; for measurements to publish use ``python -m experiments.peers pair``."""
    samples = Path(str(files("specwhisper"))) / "demo" / "samples"
    recording = sys.argv[1] if len(sys.argv) > 1 else str(samples / "04_harbor_in_the_storm.ogg")
    pair = SpeculativeWhisper("demo-draft-tiny", "demo-target", device="cpu", batch_size=1)
    alone = pair.without_draft()
    for model in (alone, pair):
        model.transcribe(recording, language="en")  # first calls cost what later ones do not

    def timed(model: SpeculativeWhisper) -> tuple[float, str, float]:
        started_s = time.perf_counter()
        result = model.transcribe(recording, language="en")
        return time.perf_counter() - started_s, result.text, result.stats.overall_acceptance_rate

    alone_s, expected, _ = timed(alone)
    print(f"target alone: {alone_s:.2f} s")
    for gamma in (1, 2, 3, 5, 8, 12):
        pair.config = SpeculativeConfig(gamma=gamma)
        elapsed_s, text, accepted = timed(pair)
        verdict = "same text" if text == expected else "OTHER TEXT"
        speed = alone_s / elapsed_s
        print(f"gamma {gamma:2}: {speed:.2f} times as fast, {accepted:.0%} accepted, {verdict}")


if __name__ == "__main__":
    main()
