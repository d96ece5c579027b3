"""Speculative decoding in 100 lines: two scripted models, and every step of the idea.

A large target writes text, and a small draft guesses ahead of it. One forward pass of the target checks all
guesses. The text is the target's own, whatever the draft guesses.

python examples/how_it_works.py
"""

from __future__ import annotations

from itertools import takewhile

END = "<end>"
SAID = "He was not an ill-disposed young man . <end>".split()
MISHEARD = {"ill-disposed": "old-sposed", "man": "men"}  # what the draft writes instead


class ScriptedModel:
    """A language model of one sentence, with a cache like a transformer's.

    Attributes
    ----------
    cache : tokens whose keys and values it holds: those before the next forward pass.
    num_forwards : forward passes so far; for a large model each takes as long as reading its weights.
    """

    def __init__(self, mistakes: dict[str, str]) -> None:
        self.mistakes = mistakes
        self.cache: list[str] = []
        self.num_forwards = 0

    def forward(self, tokens: list[str]) -> list[str]:
        """Append tokens to the cache; return the model's choice after each of them."""
        self.num_forwards += 1
        choices = []
        for token in tokens:
            self.cache.append(token)
            said = SAID[min(len(self.cache) - 1, len(SAID) - 1)]
            choices.append(self.mistakes.get(said, said))
        return choices

    def roll_back(self, num_tokens: int) -> None:
        """Forget what follows the first tokens: their text does not exist."""
        del self.cache[num_tokens:]


def propose(draft: ScriptedModel, committed: list[str], gamma: int) -> list[str]:
    """Return the draft's next tokens, one forward pass each: it is small, so they are cheap."""
    num_same = len(
        list(takewhile(lambda pair: pair[0] == pair[1], zip(draft.cache, committed, strict=False)))
    )
    draft.roll_back(num_same)  # it follows the target's corrections
    pending = committed[len(draft.cache) :]
    candidates: list[str] = []
    while len(candidates) < gamma and END not in candidates:
        candidates.append(draft.forward(pending)[-1])
        pending = candidates[-1:]
    return candidates


def verify(target: ScriptedModel, committed: list[str], candidates: list[str]) -> tuple[list[str], int]:
    """Return what the target appends, and how many candidates are accepted: one forward pass."""
    pending = committed[len(target.cache) :]  # the last token, which no pass has had yet
    choices = target.forward([*pending, *candidates])[len(pending) - 1 :]
    tokens, num_accepted = accept(candidates, choices)
    target.roll_back(len(committed) + num_accepted)
    return tokens, num_accepted


def accept(candidates: list[str], choices: list[str]) -> tuple[list[str], int]:
    """Return the target's choices up to the first that differs from its candidate.

    The choice after the committed text is compared with the first candidate, and so on. The first choice that
    differs is the correction; what was drafted after it continued another text.
    """
    for num_accepted, candidate in enumerate(candidates):
        if choices[num_accepted] != candidate:
            return choices[: num_accepted + 1], num_accepted
    is_complete = END in candidates
    return choices[: len(candidates) + (not is_complete)], len(candidates)


def transcribe(target: ScriptedModel, draft: ScriptedModel, gamma: int) -> list[str]:
    """Alternate between draft and target until the target ends the text."""
    committed = ["<start>"]
    while committed[-1] != END:
        candidates = propose(draft, committed, gamma)
        tokens, num_accepted = verify(target, committed, candidates)
        print(f"draft: {' '.join(candidates):32} target: {' '.join(tokens):28} accepted: {num_accepted}")
        committed += tokens
    return committed[1:]


if __name__ == "__main__":
    target = ScriptedModel(mistakes={})
    assert transcribe(target, ScriptedModel(MISHEARD), gamma=6) == SAID
    print(f"{len(SAID)} tokens in {target.num_forwards} forward passes of the target")
