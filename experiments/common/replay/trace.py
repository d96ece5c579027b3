"""What the demo pair wrote and would have proposed, window by window, as a small JSON file."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path

from specwhisper.audio.recording import Recording
from specwhisper.errors import InvalidRequest

FORMAT = 3
Key = tuple[str, tuple[int, ...], float]  # window_digest, prompt, temperature


@dataclass(frozen=True)
class Decoding:
    """One decoding of one window by the target, and where its draft would have written something else.

    Attributes
    ----------
    recording, start_frame : where it was recorded; the same window may be found elsewhere.
    audio : :func:`window_digest` of what was heard.
    prompt, temperature : as the window was opened with.
    tokens : what the target wrote, end-of-text included; all ids are the target's.
    log_probs, margins : per token, as :class:`specwhisper.model.choosing.Scores` has them.
    no_speech_prob : probability that nothing is spoken.
    divergences : by position: the tokens that the draft writes from there on, where, given ``tokens`` up
        to there, it does not choose the target's next token. At every other position it agrees.
    draft_log_probs, continuation_log_probs : of the draft's choice at each position, and of the tokens of
        each divergence; empty where they were not recorded: every choice then counts as certain.
    """

    recording: str
    start_frame: int
    audio: str
    prompt: tuple[int, ...]
    temperature: float
    tokens: tuple[int, ...]
    log_probs: tuple[float, ...]
    margins: tuple[float, ...]
    no_speech_prob: float | None = None
    divergences: dict[int, tuple[int, ...]] = field(default_factory=dict)
    draft_log_probs: tuple[float, ...] = ()
    continuation_log_probs: dict[int, tuple[float, ...]] = field(default_factory=dict)

    @property
    def key(self) -> Key:
        """What tells this decoding from all others."""
        return self.audio, self.prompt, self.temperature

    def agreed(self, written: Sequence[int]) -> int:
        """Count how many tokens of a text are the target's own, up to the first that is not."""
        pairs = zip(written, self.tokens, strict=False)
        end = min(len(written), len(self.tokens))
        return next((i for i, (ours, theirs) in enumerate(pairs) if ours != theirs), end)

    def draft_after(self, written: Sequence[int]) -> tuple[int, float]:
        """Return the token that the draft writes behind a text of its own and the target's, and its log-prob.

        Behind the end of what was recorded it repeats itself: it goes on at its cost, and is wrong.
        """
        agreed = self.agreed(written)
        if agreed == len(written) and agreed not in self.divergences:
            place = min(agreed, len(self.tokens) - 1)
            return self.tokens[place], self.draft_log_probs[place] if self.draft_log_probs else 0.0
        alone = self.divergences.get(agreed, self.tokens[-1:])
        log_probs = self.continuation_log_probs.get(agreed, (0.0,) * len(alone))
        place = min(len(written) - agreed, len(alone) - 1)
        return alone[place], log_probs[place]


@dataclass(frozen=True)
class Trace:
    """Decodings by one pair.

    Attributes
    ----------
    target, draft : names of the pair; their weights' digests follow.
    vocabulary_digest : of the target, whose ids the tokens are.
    source : digest of recordings and options (:func:`experiments.common.replay.record.source_digest`).
    """

    target: str
    draft: str
    target_digest: str
    draft_digest: str
    vocabulary_digest: str
    source: str
    decodings: tuple[Decoding, ...]

    @cached_property
    def by_key(self) -> dict[Key, Decoding]:
        """Decodings by what tells them apart; one that was recorded twice is the same twice."""
        return {decoding.key: decoding for decoding in self.decodings}

    @cached_property
    def audio(self) -> frozenset[str]:
        """The digests of all windows that were heard."""
        return frozenset(decoding.audio for decoding in self.decodings)

    def save(self, path: Path) -> None:
        """Write the trace."""
        path.write_text(json.dumps({"format": FORMAT, **asdict(self)}) + "\n")

    @staticmethod
    def load(path: Path) -> Trace:
        """Read a trace."""
        try:
            text = path.read_text()
        except OSError as error:
            raise InvalidRequest(f"{path} cannot be read ({error}): record a trace first.") from error
        return Trace.parse(text, str(path))

    @staticmethod
    def parse(text: str, name: str) -> Trace:
        """Read a trace from its text, which messages call by a name."""
        try:
            content = json.loads(text)
            if content.pop("format") != FORMAT:
                raise ValueError("it is of another format")
            decodings = tuple(_decoding(**fields) for fields in content.pop("decodings"))
            return Trace(decodings=decodings, **content)
        except (ValueError, KeyError, TypeError) as error:
            raise InvalidRequest(f"{name} holds no trace ({error}): record it again.") from error


def _decoding(
    prompt: Iterable[int],
    tokens: Iterable[int],
    log_probs: Iterable[float],
    margins: Iterable[float],
    divergences: dict[str, Iterable[int]],
    draft_log_probs: Iterable[float],
    continuation_log_probs: dict[str, Iterable[float]],
    **fields: str | int | float | None,
) -> Decoding:
    """Restore what JSON has no words for: tuples, and integers as keys."""
    return Decoding(
        prompt=tuple(prompt),
        tokens=tuple(tokens),
        log_probs=tuple(log_probs),
        margins=tuple(margins),
        divergences={int(position): tuple(alone) for position, alone in divergences.items()},
        draft_log_probs=tuple(draft_log_probs),
        continuation_log_probs={
            int(position): tuple(alone) for position, alone in continuation_log_probs.items()
        },
        **fields,  # type: ignore[arg-type]
    )


def window_digest(recording: Recording, start_frame: int) -> str:
    """Name the audio under a window, whatever recording it is in and however it arrived."""
    return hashlib.blake2b(recording.window_samples(start_frame).tobytes(), digest_size=16).hexdigest()
