"""Mark where speech begins, pauses and ends, from its probability by frame.

Like silero-vad's own ``VADIterator``, with three additions for live decoding: pauses, which are marked before
it is certain that the utterance has ended; a shortest utterance; and ends that come sooner after a sentence.
"""

from __future__ import annotations

from specwhisper.live import EndpointingOptions
from specwhisper.types import SAMPLE_RATE, VoiceEvent, VoiceMark

FRAME_SAMPLES = 512  # one input of silero-vad: 32 ms
HYSTERESIS = 0.15  # silero-vad's: this much below the threshold, or less, nothing changes
SURE_SILENCE = 0.01  # silero-vad's: below it there is silence, however low the threshold
SAMPLES_PER_MS = SAMPLE_RATE // 1000
# At first the model takes the beginning of a hum for speech, so speech that begins there must last longer.
SETTLING_MS, SETTLED_SPEECH_MS = 320, 250


class Endpointer:
    """Converts probabilities of speech to voice marks.

    Parameters
    ----------
    start_sample : first sample of the first frame.
    settling_ms : time in which the model is not reliable yet, in milliseconds.

    Attributes
    ----------
    sentence_end_sample : up to there the text of the utterance is known, and ends a sentence; ``None`` if it
        does not.
    """

    def __init__(
        self, options: EndpointingOptions, start_sample: int = 0, *, settling_ms: int = SETTLING_MS
    ) -> None:
        self._options = options
        self._settled_from = start_sample + settling_ms * SAMPLES_PER_MS
        self._end_sample = start_sample  # of the last frame
        self._speech_start: int | None = None  # of an utterance, or of a noise that may become one
        self._silence_start: int | None = None
        self._is_speech = False
        self._has_paused = False
        self._begins_from = 0  # after the end of the last utterance
        self.sentence_end_sample: int | None = None

    def on_vad_probability(self, speech_prob: float) -> list[VoiceMark]:
        """Add the probability of the next frame; return the marks that it leads to."""
        frame_start, self._end_sample = self._end_sample, self._end_sample + FRAME_SAMPLES
        if speech_prob >= self._options.threshold:
            return self._on_speech(frame_start)
        if speech_prob < max(self._options.threshold - HYSTERESIS, SURE_SILENCE):
            return self._on_silence(frame_start)
        return []

    def _on_speech(self, frame_start: int) -> list[VoiceMark]:
        self._silence_start = None
        if self._speech_start is None:
            self._speech_start = frame_start
        if self._is_speech:
            if self._has_paused:
                self._has_paused = False
                return [VoiceMark(VoiceEvent.BEGIN, frame_start)]
            return []
        if self._end_sample - self._speech_start < self._min_speech_samples(self._speech_start):
            return []
        self._is_speech = True
        padding = self._options.prefix_padding_ms * SAMPLES_PER_MS
        return [VoiceMark(VoiceEvent.BEGIN, max(self._begins_from, self._speech_start - padding))]

    def _on_silence(self, frame_start: int) -> list[VoiceMark]:
        if not self._is_speech:
            self._speech_start = None
            return []
        if self._silence_start is None:
            self._silence_start = frame_start
        silence = self._end_sample - self._silence_start
        # The utterance reaches a little into the silence, since last sounds are soft.
        end_sample = self._silence_start + self._options.pause_ms * SAMPLES_PER_MS
        marks = []
        if not self._has_paused and silence >= self._options.pause_ms * SAMPLES_PER_MS:
            self._has_paused = True
            marks.append(VoiceMark(VoiceEvent.PAUSE, end_sample))
        if silence >= self._ending_silence_ms(self._silence_start) * SAMPLES_PER_MS:
            self._is_speech = self._has_paused = False
            self._speech_start = self._silence_start = None
            self._begins_from = end_sample + 1
            marks.append(VoiceMark(VoiceEvent.END, end_sample))
        return marks

    def _ending_silence_ms(self, silence_start: int) -> int:
        """Return the silence that ends the utterance."""
        options, known_to = self._options, self.sentence_end_sample
        if options.sentence_silence_ms is None or known_to is None or known_to < silence_start:
            return options.silence_duration_ms
        return options.sentence_silence_ms

    def _min_speech_samples(self, speech_start: int) -> int:
        min_speech_ms = self._options.min_speech_ms
        if speech_start < self._settled_from:
            min_speech_ms = max(min_speech_ms, SETTLED_SPEECH_MS)
        return min_speech_ms * SAMPLES_PER_MS
