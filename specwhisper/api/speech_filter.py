"""Leave silence out of a call's recordings; restore transcripts' times."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from specwhisper.audio.files.damage import Warnings
from specwhisper.audio.inputs import Source
from specwhisper.audio.speech import SpeechMap, placed
from specwhisper.audio.vad_filter import find_speech, only_speech
from specwhisper.options import DecodingOptions
from specwhisper.transcription.transcription import Transcription
from specwhisper.types import TimeOrder


class NoSpeech(Exception):
    """Is in the place of a recording without speech, which is not decoded."""


class SpeechFilter:
    """The speech of each recording of one call; without ``vad_filter`` all of it.

    It also keeps the warnings about each recording.
    """

    def __init__(self, options: DecodingOptions) -> None:
        self._options = options
        # By index, of recordings under way:
        self._speech: dict[int, SpeechMap] = {}
        self._warnings: dict[int, Warnings] = {}

    def filtered(self, sources: Iterable[Source | Exception]) -> Iterator[Source | Exception]:
        """Yield sources that decode to speech only, or errors in their places."""
        for index, source in enumerate(sources):
            if isinstance(source, Source):
                self._warnings[index] = source.warnings
                source.warnings.is_strict = self._options.strict
                source = replace(source, selection=self._options)
            if self._options.vad is not None and isinstance(source, Source):
                try:
                    speech = self._speech[index] = find_speech(source.decode(), self._options.vad)
                    if not speech.spans:
                        raise NoSpeech
                    source = source.through(only_speech(source.decode, speech))
                except Exception as error:
                    source = error
            yield source

    def placed(self, index: int, outcome: Transcription | Exception) -> Transcription | Exception:
        """Return a recording's transcription with its own times and its warnings."""
        speech, warnings = self._speech.pop(index, None), self._warnings.pop(index, Warnings())
        if speech is not None and isinstance(outcome, NoSpeech):
            outcome = Transcription.without_speech(self._options, speech.duration_s)
            return replace(outcome, warnings=warnings.sentences)
        if isinstance(outcome, Exception):
            return outcome
        outcome = replace(outcome, warnings=(*warnings.sentences, *outcome.warnings))
        if speech is None:
            return outcome
        return replace(
            outcome,
            segments=TimeOrder()(placed(outcome.segments, speech)),
            duration_s=speech.duration_s,
            duration_after_vad_s=speech.speech_s,
        )
