"""Requirements of a session for its target."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from specwhisper.errors import PairMismatch
from specwhisper.transcription.transcriber import TargetDescription


@dataclass(frozen=True, slots=True)
class Requirements:
    """Requirements of a session for its target; by default none.

    Attributes
    ----------
    vocabulary_digest : vocabulary of the session's draft; empty for any.
    weights_digest : weights that wrote the session's text so far; empty for any.
    unusable : digests of vocabularies that the draft cannot use, and the reasons.
    """

    vocabulary_digest: str = ""
    weights_digest: str = ""
    unusable: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, target: TargetDescription | None, *, same_weights: bool) -> Requirements:
        """Return the requirements of a session that was set up for a target."""
        if target is None:
            return cls()
        return cls(target.vocabulary.digest, target.weights_digest if same_weights else "")

    def are_met_by(self, target: TargetDescription) -> bool:
        """Return whether a target meets them."""
        return (
            self.vocabulary_digest in ("", target.vocabulary.digest)
            and self.weights_digest in ("", target.weights_digest)
            and target.vocabulary.digest not in self.unusable
        )

    def check(self, address: str, target: TargetDescription) -> None:
        """Raise :class:`PairMismatch` unless a target meets them."""
        if (reason := self.unusable.get(target.vocabulary.digest)) is not None:
            raise PairMismatch(reason)
        if self.vocabulary_digest not in ("", target.vocabulary.digest):
            raise PairMismatch(
                f"Target {address} ('{target.model}') has another vocabulary than the one the draft was set "
                "up for: restart the draft server, or connect it to the target it was set up for."
            )
        if self.weights_digest not in ("", target.weights_digest):
            raise PairMismatch(
                f"Target {address} ('{target.model}') has other weights than those the session began on: "
                "keep a target with those until their sessions have ended."
            )


ANY = Requirements()
