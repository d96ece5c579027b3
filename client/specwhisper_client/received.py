"""Results so far of a recording or a stream, over all its calls."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from specwhisper.speculation.statistics import SpeculationStatistics
from specwhisper.transcription.transcription import ModelInfo
from specwhisper.wire.v1 import transcription_pb2 as pb
from specwhisper_client.codec import model_from_proto, update_from_proto
from specwhisper_client.updates import Update

OPEN_TEXT = ("verified_text", "stable_text", "tentative_text", "settled_text")


@dataclass(slots=True)
class Received:
    """The sum of all responses so far.

    Attributes
    ----------
    model : ``None`` until a server has named it.
    language, language_name, language_probs : the spoken language; the last response of a call has it.
    statistics, received_s : the draft's figures, and seconds of received audio, over all calls.
    is_complete : whether the last response of the current call was received.
    """

    model: ModelInfo | None = None
    language: str = ""
    language_name: str = ""
    language_probs: Mapping[str, float] = field(default_factory=dict)
    statistics: SpeculationStatistics = field(default_factory=SpeculationStatistics)
    received_s: float = 0.0
    is_complete: bool = False
    _earlier: SpeculationStatistics = field(default_factory=SpeculationStatistics)  # earlier calls'
    _shown: Update = field(default_factory=lambda: Update(()))  # the last one
    _is_blank: bool = True  # whether the current call has had no text

    def begin_call(self) -> None:
        self._earlier = self.statistics
        self.is_complete = False
        self._is_blank = True

    def add(self, response: pb.StreamingRecognizeResponse) -> Update:
        """Add a response; return its update, with the totals of all calls."""
        update = update_from_proto(response)
        # A call that resumes sends again the audio that was not final.
        self.received_s = max(self.received_s, update.received_s)
        update = replace(update, received_s=self.received_s)
        if update.statistics is not None:
            self.statistics = self._earlier.followed_by(update.statistics)
            update = replace(update, statistics=self.statistics)
        if response.HasField("model"):
            self.model = model_from_proto(response.model)
        if response.HasField("language"):
            self.is_complete = True
            self.language, self.language_name = response.language.code, response.language.name
            self.language_probs = dict(response.language.probabilities)
        self._is_blank &= not (update.text or update.segments or self.is_complete)
        if self._is_blank:  # the text of the call before will come again
            update = replace(update, **{name: getattr(self._shown, name) for name in OPEN_TEXT})
        self._shown = update
        return update


def only_names_models(response: pb.StreamingRecognizeResponse) -> bool:
    """Return whether a response only names models, and so must not replace shown text."""
    return response.HasField("model") and not response.HasField("audio_received")
