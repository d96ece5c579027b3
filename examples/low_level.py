"""The engines themselves: a target that verifies, a draft that proposes, and you as the network between them.

python examples/low_level.py
"""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from specwhisper import DecodingOptions
from specwhisper.audio.decode import decode_file
from specwhisper.engine.drafter import Drafter
from specwhisper.engine.verifier import Verifier
from specwhisper.model.checkpoints.checkpoint import load_checkpoint
from specwhisper.model.model import WhisperModel
from specwhisper.model.translated import open_draft
from specwhisper.speculation.draft_length import DraftLength
from specwhisper.types import AudioChunk, Commit, Finished, Mode


def main() -> None:
    """Show every block and what the target makes of it."""
    target, draft = load_checkpoint("demo-target"), load_checkpoint("demo-draft-tiny")
    verifier = Verifier(WhisperModel(target, num_slots=1))
    # The draft proposes tokens of the target, whatever its own tokenizer is.
    drafter = Drafter(open_draft(draft, 1, target.vocabulary))

    options = DecodingOptions.greedy(language="en")
    verifier.open("session", Mode.SYNC, options)
    drafter.open("session", DraftLength(Mode.SYNC, gamma=6), options, max_ahead_tokens=256)
    sample = Path(str(files("specwhisper"))) / "demo" / "samples" / "01_phone_call.flac"
    audio = AudioChunk(0, b"".join(decode_file(sample)), is_last=True)
    verifier.submit("session", audio)
    drafter.submit("session", audio)

    text = target.vocabulary.decode
    while True:
        while drafter.has_work:
            for _, drafted in drafter.step():
                block = drafted.candidates
                if block is None:  # only a report
                    continue
                print(f"draft  @{block.base:3}: {text(block.tokens)!r}")
                verifier.submit("session", block)
        for _, event in verifier.step():
            if isinstance(event, Finished):
                return
            if isinstance(event, Commit) and event.tokens:
                kept = f"kept {event.num_accepted} of {event.num_verified}"
                print(f"target @{event.base:3}: {text(event.tokens)!r} ({kept})")
            drafter.submit("session", event)


if __name__ == "__main__":
    main()
