"""The Python API: one recording, several at once, options, statistics. Runs offline on the bundled pair.

python examples/transcribe.py [FILE...]
"""

from __future__ import annotations

import sys
from importlib.resources import files
from pathlib import Path

from specwhisper import SpeculativeConfig, SpeculativeWhisper


def main() -> None:
    """Transcribe the given files, or two bundled samples."""
    samples = Path(str(files("specwhisper"))) / "demo" / "samples"
    recordings = sys.argv[1:] or sorted(map(str, samples.glob("*.flac")))[:2]
    whisper = SpeculativeWhisper(
        draft_model="demo-draft-tiny",
        final_model="demo-target",
        config=SpeculativeConfig(gamma=5, use_adaptive_gamma=True),
    )

    result = whisper.transcribe(recordings[0], language="en")
    print(result)  # prints as its text
    print(f"accepted {result.stats.overall_acceptance_rate:.0%} of the draft's tokens,")
    print(f"{result.stats.avg_tokens_per_iteration:.2f} tokens per forward pass of the target")
    print(f"passes by how many draft tokens they kept: {result.stats.acceptance_histogram}")

    print("\nSide by side, with the times of segments and words:")
    for name, result in zip(
        recordings, whisper.transcribe(recordings, language="en", word_timestamps=True), strict=True
    ):
        print(Path(name).name)
        for segment in result.segments:
            print(f"  {segment.start_s:6.2f} - {segment.end_s:6.2f} {segment.text}")
        for word in result.words[:5]:
            print(f"    {word.start_s:6.2f} - {word.end_s:6.2f} {word.text.strip()} ({word.confidence:.0%})")


if __name__ == "__main__":
    main()
