"""Map a target's vocabulary to that of a draft with the same tokenizer."""

from __future__ import annotations

from specwhisper.model.checkpoints.generation import NUM_TIMESTAMPS
from specwhisper.transcription.vocabulary import Vocabulary

# A draft that lacks more of the target's words splits text otherwise, too.
MIN_SHARED_TEXT = 0.9


def draft_ids(draft: Vocabulary, target: Vocabulary) -> list[int | None] | None:
    """Return the draft's id of every target token, ``None`` if it has none.

    Return ``None`` for the whole if the tokenizers differ: then the draft is translated
    (:mod:`specwhisper.model.translated`). Tokens are matched by their strings. Ids of Whisper's vocabularies
    differ: large-v3 inserts ``<|yue|>``, which increases every later id by one, timestamps included.
    """
    if bool(draft.languages) != bool(target.languages):
        return None
    known = {token: i for i, token in enumerate(draft.tokens)}
    ids = [known.get(token) for token in target.tokens]
    if sum(i is not None for i in ids[: target.end_of_text]) < MIN_SHARED_TEXT * target.end_of_text:
        return None
    times = range(len(target))[target.timestamp_begin :][:NUM_TIMESTAMPS]
    needed = (target.end_of_text, target.start_of_transcript, *times)
    return None if any(ids[i] is None for i in needed) else ids
