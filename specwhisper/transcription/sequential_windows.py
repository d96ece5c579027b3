"""Windows of recordings: Whisper's sequential decoding, as in transformers, and in several languages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from specwhisper.transcription.hallucinations import review, spoken_segments
from specwhisper.transcription.language_search import (
    Probs,
    Search,
    among,
    cuts,
    has_enough,
    join_short,
    search,
)
from specwhisper.transcription.segments import shift_timestamps, split_window
from specwhisper.transcription.windows import (
    ClosedWindow,
    Extent,
    MaxLength,
    WhisperWindows,
    judge,
)
from specwhisper.types import HOP_SAMPLES, WINDOW_FRAMES, Outcome, Span, Window, WordAlignment

BLOCK_BYTES = 160_000  # 5 s, in which speech is looked for


class SequentialWindows(WhisperWindows):
    """Opens each window where the text of the last one ended."""

    def _may_need_speech(self) -> bool:
        if self.language is not None or self._options.multilingual:
            return False
        return self._voice is not None or self.is_clip

    def find_speech(self, pcm: bytes, num_frames: int) -> None:
        """Detect the language again after a window without speech."""
        blocks = (pcm[at : at + BLOCK_BYTES] for at in range(0, len(pcm), BLOCK_BYTES))
        has_speech = self._voice is None or any(map(self._voice, blocks))
        self.needs_speech, self._redetects = False, not has_speech

    def resume(self, window: Window, previous: Sequence[int] = ()) -> None:
        """Take over a window of another target, and count on from its id."""
        self._next_id = window.id + 1
        self.next_frame = window.start_frame
        if isinstance(self._limit, MaxLength):
            self._limit = MaxLength(len(window.prompt) + window.max_new_tokens)
        self._previous.resume(previous)
        # It may have been detected, once for all windows.
        self.language = self._vocabulary.prompt_language(window.prompt) or self.language
        self.needs_speech = False

    def close(
        self,
        window: Window,
        tokens: Sequence[int],
        log_probs: Sequence[float] = (),
        no_speech_prob: float | None = None,
    ) -> ClosedWindow:
        """Judge a complete window: decode it again, or cut it into segments and move on."""
        outcome = judge(tokens, log_probs, no_speech_prob, self._options, self._vocabulary)
        if outcome is Outcome.RETRIED:
            if window.attempt + 1 < len(self._options.temperatures):
                self._retry = window
                return ClosedWindow(outcome, (), tuple(tokens))
            outcome = Outcome.KEPT  # no temperature is left
        if window.redetects:
            self.language = None
            self.needs_speech = self._may_need_speech()
        if outcome is Outcome.SKIPPED:
            self.next_frame = window.start_frame + window.num_frames
            self._previous.append((), window.temperature)
            return ClosedWindow(outcome, (), ())
        result = split_window(window, tokens, self._vocabulary)
        self.next_frame = window.start_frame + min(result.advance_frames, window.num_frames)
        if not self.reviews:
            self._previous.append([segment.tokens for segment in result.segments], window.temperature)
        discarded: tuple[int, ...] = ()
        num_kept = len(tokens)
        if result.discarded:  # the next window will likely begin with them
            begin = self._vocabulary.timestamp_begin
            discarded = (begin, *shift_timestamps(result.discarded, result.advance_frames, self._vocabulary))
            num_kept -= len(result.discarded) + (tokens[-1] in self._vocabulary.ends)
        return ClosedWindow(outcome, result.segments, discarded, num_kept=num_kept)

    def review(
        self,
        closed: ClosedWindow,
        window: Window,
        tokens: Sequence[int],
        log_probs: Sequence[float],
        words: Sequence[WordAlignment],
    ) -> ClosedWindow:
        """Leave out what was probably invented, and place the next window."""
        threshold_s = self._options.hallucination_silence_threshold or 0.0
        spoken = spoken_segments(window, closed.segments, words, tokens, log_probs, self._vocabulary)
        ends_silent = split_window(window, tokens, self._vocabulary).ends_silent
        num_segments, next_frame = review(window, spoken, threshold_s, ends_silent=ends_silent)
        kept = closed.segments[:num_segments]
        self._previous.append([segment.tokens for segment in kept], window.temperature)
        num_transcribed = sum(len(segment.tokens) for segment in kept)
        if next_frame is None or next_frame == self.next_frame:
            return replace(closed, segments=kept, num_transcribed=num_transcribed)
        self.next_frame = next_frame  # the tokens after it have other times there
        return ClosedWindow(
            closed.outcome, kept, (), num_kept=num_transcribed, num_transcribed=num_transcribed
        )

    def predict_first(self, language: str | None, audio: Extent) -> Window | None:
        """Return the first window; only the target can open one with words of the caller."""
        num_frames, options = self.ready_frames(audio), self._options
        language = self.language or language
        only_target = self.is_clip or options.has_words
        if self.has_followed or only_target or language is None or not num_frames:
            return None
        prompt = self._vocabulary.prompt(options, language)
        return Window(
            id=0,
            start_frame=0,
            num_frames=num_frames,
            prompt=prompt,
            max_new_tokens=self._room(prompt),
            temperature=options.temperatures[0],
        )


class LanguageWindows(SequentialWindows):
    """Ends windows at pauses: where another language begins, or at the last one.

    Each is encoded as a recording of its own. Its end and its language follow from its audio and the language
    before it, so another target finds the same. Without VAD each window of 30 s has a language.
    """

    is_clip = True
    _search: Search | None = None
    _piece: tuple[int, int] | None = None  # whose language is to be detected
    _end_frame = 0  # end of the audio in the language, once there is one

    def ready_frames(self, audio: Extent) -> int | None:
        """Return the frames up to where the language ends, once that is known."""
        num_frames = super().ready_frames(audio)
        end_frame = -(-audio.received_samples // HOP_SAMPLES)  # no window is padding alone
        if self.language is not None:
            end_frame = min(end_frame, self._end_frame)
        return num_frames and max(0, min(num_frames, end_frame - self.next_frame))

    def find_speech(self, pcm: bytes, num_frames: int) -> None:
        """Find the pieces of the next window, and begin with the first."""
        start, end = self.next_frame, self.next_frame + num_frames
        spoken = [
            Span(start + first // HOP_SAMPLES, min(end, start + -(-stop // HOP_SAMPLES)))
            for first, stop in (self._voice(pcm) if self._voice else ())
        ]
        if num_frames == WINDOW_FRAMES and len(spoken) > 1 and spoken[-1].stop == end:
            end = cuts(spoken)[-1]  # speech continues after the window
            del spoken[-1]
        rest = (
            spoken[:1] if start < self._end_frame and not has_enough(spoken) else []
        )  # what the last window left
        spoken, before = [*rest, *join_short(spoken[len(rest) :])], self.language_before
        detects_first = before is None or self._voice is None or has_enough(spoken)
        self._search = search([start, *cuts(spoken), end], before, detects_first=detects_first)
        self.needs_speech = False
        self._send(None)

    def language_span(self, num_frames: int | None) -> tuple[int, int] | None:
        """Return the piece whose language is to be detected."""
        return self._piece

    def detected(self, probs: Probs) -> Probs:
        """Take the probabilities of a piece; the last one settles the language."""
        return self._send(among(probs, self._options.languages))

    def _send(self, probs: Probs | None) -> Probs:
        try:
            self._piece = self._search.send(probs)  # type: ignore[union-attr, arg-type]
        except StopIteration as ended:
            self.language, self._end_frame, probs = ended.value
            self.language_before, self._piece = self.language, None
        return probs or {}

    def resume(self, window: Window, previous: Sequence[int] = ()) -> None:
        """Take over a window of another target, which found its end."""
        super().resume(window, previous)
        self.language_before = self.language
        self._end_frame = window.start_frame + window.num_frames
