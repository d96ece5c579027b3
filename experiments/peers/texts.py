"""Texts of the arms: error rates, and broken promises of ours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from experiments.common.audio.samples import BUNDLED, Sample
from experiments.peers.arms import FLOAT32, Arm, Part, Piece, System
from experiments.peers.summary import Summary
from specwhisper.evaluation.references import from_folder
from specwhisper.evaluation.scoring import error_rates
from specwhisper.transcription.vocabulary import Vocabulary


def word_error_rates(
    summaries: Mapping[Arm, Summary], samples: Sequence[Sample], vocabulary: Vocabulary
) -> dict[Arm, float]:
    """Score the demo pair's texts against what is said in the bundled recordings; nothing of others."""
    said = {reference.name: reference.text for reference in from_folder(BUNDLED)}
    if any(sample.name not in said for sample in samples):
        return {}
    references = [said[sample.name] for sample in samples]
    return {
        arm: error_rates(references, [vocabulary.decode(tokens) for tokens in summary.run.tokens], "en").wer
        for arm, summary in summaries.items()
        if arm.part is Part.DEMO
    }


def differences(summaries: Mapping[Arm, Summary], pieces: Sequence[Piece]) -> tuple[list[str], list[str]]:
    """Return what is wrong, and what is only a note.

    It is wrong when ours in float32 is not our target's own text, or when a peer wrote another number of
    tokens than it was asked for. In reduced precision a pass over several tokens may round differently.
    """
    broken: list[str] = []
    noted: list[str] = []
    wanted = [piece.num_tokens for piece in pieces]
    for arm, summary in summaries.items():
        tokens = summary.run.tokens
        if arm.system.is_ours:
            alone = summaries.get(replace(arm, system=System.TARGET_ONLY))
            if alone is not None and tokens != alone.run.tokens:
                line = f"{arm}: the text is not that of target-only"
                (broken if arm.precision == FLOAT32 else noted).append(line)
        elif arm.part is Part.SHAPE and (written := [len(one) for one in tokens]) != wanted:
            broken.append(f"{arm}: {written} tokens were written, {wanted} were asked for")
    return broken, noted
