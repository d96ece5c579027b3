"""Map a target's vocabulary to a draft's; refuse a pair that cannot work."""

from __future__ import annotations

from specwhisper.errors import PairMismatch
from specwhisper.model.checkpoints.generation import NUM_TIMESTAMPS
from specwhisper.transcription.vocabulary import Vocabulary

# A draft that cannot spell a tenth of the target's words is another language's tokenizer, not a pair.
MIN_SHARED_TEXT = 0.9


def draft_ids(
    draft: Vocabulary, target: Vocabulary, *, draft_name: str, target_name: str
) -> list[int | None]:
    """Return the draft's id of every target token, ``None`` if it has none.

    Tokens are matched by their strings. Ids of Whisper's vocabularies differ: large-v3 inserts ``<|yue|>``,
    which increases every later id by one, timestamps included.
    """
    if bool(draft.languages) != bool(target.languages):
        english = draft_name if not draft.languages else target_name
        raise PairMismatch(
            f"Draft '{draft_name}' cannot work with target '{target_name}': {english} is English-only and "
            f"the other "
            "is multilingual; choose two of one kind."
        )
    known = {token: i for i, token in enumerate(draft.tokens)}
    ids = [known.get(token) for token in target.tokens]
    shared = sum(i is not None for i in ids[: target.end_of_text])
    if shared < MIN_SHARED_TEXT * target.end_of_text:
        raise PairMismatch(
            f"Draft '{draft_name}' cannot work with target '{target_name}': it has {shared} of its "
            f"{target.end_of_text} text tokens; choose a draft with the same tokenizer."
        )
    times = range(len(target))[target.timestamp_begin :][:NUM_TIMESTAMPS]
    needed = (target.end_of_text, target.start_of_transcript, *times)
    missing = [target.tokens[i] for i in needed if ids[i] is None]
    if missing:
        raise PairMismatch(
            f"Draft '{draft_name}' cannot work with target '{target_name}': it lacks {missing[0]} and "
            f"{len(missing) - 1} more of the target's special tokens; choose a draft with the same tokenizer."
        )
    return ids
