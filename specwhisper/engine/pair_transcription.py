"""Build a recording's transcript from the events of a :class:`PairEngine`."""

from __future__ import annotations

from specwhisper.engine.draft_state import Drafted
from specwhisper.engine.pair_engine import Feed, PairEvent, Refused
from specwhisper.transcription.transcript import TranscriptBuilder
from specwhisper.transcription.transcription import Transcription
from specwhisper.transcription.vocabulary import Vocabulary
from specwhisper.types import Failed, Finished


class PairTranscription:
    """The caller's side of one session of a :class:`PairEngine`.

    Attributes
    ----------
    id : the session's id in the engine.
    index : index of the recording in its call.
    builder : the transcript so far.
    error : the error that ended the session, if there is one.
    is_refused : whether the options were refused, not the recording.
    has_ended : whether no event follows.
    """

    def __init__(self, session_id: str, index: int, feed: Feed, vocabulary: Vocabulary) -> None:
        self.id = session_id
        self.index = index
        self.feed = feed
        self.builder = TranscriptBuilder(vocabulary)
        self.error: Exception | None = None
        self.is_refused = False
        self.has_ended = False
        self._transcript: Transcription | None = None

    @property
    def transcript(self) -> Transcription:
        """The whole transcript, once the session has finished."""
        if self._transcript is None:
            raise RuntimeError(f"Session '{self.id}' has not finished.")
        return self._transcript

    def observe(self, event: PairEvent) -> None:
        """Take an event of the session."""
        self.builder.num_samples = self.feed.num_samples
        match event:
            case Drafted():
                self.builder.statistics.observe(event.report)
                if event.candidates is not None:
                    self.builder.observe(event.candidates)
            case Finished():
                self._transcript = self.builder.finish()
                self.has_ended = True
            case Failed(error=error) | Refused(error=error):
                self.error, self.is_refused = error, isinstance(event, Refused)
                self.has_ended = True
            case _:
                self.builder.observe(event)
