"""Live decoding: each step decodes the open utterance anew, and what is stable of its text becomes final."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from specwhisper.errors import InvalidRequest
from specwhisper.live import LiveOptions, StabilityPolicy
from specwhisper.options import DecodingOptions
from specwhisper.transcription.fallback import judge
from specwhisper.transcription.prompting import PromptText
from specwhisper.transcription.stability import agreed, attended, continuation
from specwhisper.transcription.utterances import Utterances
from specwhisper.transcription.vocabulary import Vocabulary
from specwhisper.transcription.windows import ClosedWindow, Extent, SequentialWindows, in_later_times
from specwhisper.types import (
    FRAMES_PER_TIMESTAMP,
    HOP_SAMPLES,
    SAMPLE_RATE,
    WINDOW_FRAMES,
    AudioChunk,
    Outcome,
    Step,
    Window,
)

# No speech is faster: what writes more than this repeats itself.
MAX_TOKENS = 32
MAX_TOKENS_PER_S = 25
FRAMES_PER_S = SAMPLE_RATE // HOP_SAMPLES
MS_PER_FRAME = 1000 // FRAMES_PER_S


class LiveWindows(SequentialWindows):
    """Decides what is decoded while somebody speaks; silence is never decoded.

    A window reaches from where the utterance begins, or was cut, to the newest step, and is decoded as if it
    were a recording of its own. What follows from marks and samples follows from nothing else: the same steps
    give the same text, whoever proposed candidates.
    """

    is_live = True

    def __init__(
        self,
        vocabulary: Vocabulary,
        options: DecodingOptions,
        words: PromptText | None = None,
        *,
        max_new_tokens: int | None = None,
    ) -> None:
        super().__init__(vocabulary, options, words, max_new_tokens=max_new_tokens)
        self._live = options.live or LiveOptions()
        self._step_samples = self._live.step_ms * SAMPLE_RATE // 1000
        position = self._live.position
        self._utterances = Utterances(position.start_sample, position.num_utterances)
        if max(position.final_tokens, default=0) >= vocabulary.end_of_text:
            raise InvalidRequest("The final tokens of a position are text: one of them is not.")
        if len(position.final_tokens) > vocabulary.max_length:
            raise InvalidRequest(
                f"A position has {len(position.final_tokens)} final tokens: a window of this model holds "
                f"{vocabulary.max_length}."
            )
        self._known_language = self.language  # of all utterances; ``None`` if each may have another
        self._final = position.final_tokens  # text of the open window that is final
        self._hypothesis: tuple[int, ...] = ()  # text behind it, by the last step
        self._decoded_to = 0  # frame; 0 before the first step of an utterance
        self._has_told = False  # whether text of the open utterance is final
        self._is_spent = False  # whether nothing of the open utterance is left to hear
        self.next_frame = position.start_sample // HOP_SAMPLES
        self.attends = self._live.policy is StabilityPolicy.ALIGN_ATT

    @property
    def num_final(self) -> int:
        """Text tokens that lie in the next window and are final already."""
        return len(self._final)

    def hear(self, chunk: AudioChunk, end_sample: int) -> None:
        """Follow the marks; in silence, what was heard is of no more use."""
        self._utterances.hear(end_sample, chunk.marks, is_last=chunk.is_last)
        self._wait_for_speech()

    def ready_frames(self, audio: Extent) -> int | None:
        """Give the frames of the next step; ``None`` while there is none, 0 at the end."""
        utterance = self._utterances.current
        if utterance is None:
            return 0 if self._utterances.is_complete else None
        if self._retry is not None:
            return self._retry.num_frames
        end_frame = utterance.step_end(audio.received_samples, self._step_samples) // HOP_SAMPLES
        num_frames = min(end_frame - self.next_frame, WINDOW_FRAMES)
        if utterance.end_sample is not None:
            return max(num_frames, 1)
        return num_frames if num_frames > 0 and end_frame > self._decoded_to else None

    def open(self, num_frames: int) -> Window:
        """Open a step's window."""
        window = super().open(num_frames)
        most = 1 if self._is_spent else MAX_TOKENS + num_frames * MAX_TOKENS_PER_S // FRAMES_PER_S
        return replace(window, max_new_tokens=min(window.max_new_tokens, most))

    def close(
        self,
        window: Window,
        tokens: Sequence[int],
        log_probs: Sequence[float] = (),
        no_speech_prob: float | None = None,
        attended_ms: Sequence[float] = (),
    ) -> ClosedWindow:
        """Settle what is stable; where the utterance has ended, everything is."""
        utterance = self._utterances.current
        if utterance is None:
            raise RuntimeError(f"Window {window.id} was closed without an utterance.")
        self._decoded_to = window.start_frame + window.num_frames
        end_sample = utterance.end_sample
        is_last = end_sample is not None and self._decoded_to >= end_sample // HOP_SAMPLES
        settles_all = is_last or window.num_frames == WINDOW_FRAMES  # nobody will hear it again
        outcome = judge(tokens, log_probs, no_speech_prob, self._options, self._vocabulary)
        if self._is_spent:
            outcome = Outcome.SKIPPED
        if outcome is Outcome.RETRIED and settles_all:
            if window.attempt + 1 < len(self._options.temperatures):
                self._retry = window
                return ClosedWindow(outcome, (), tuple(tokens) if self._live.recalls else ())
            outcome = Outcome.KEPT  # the last temperature has the last word
        # What failed while somebody speaks is decoded anew soon anyway.
        believed = tokens if outcome is Outcome.KEPT else ()
        positions = [i for i, token in enumerate(believed) if token < self._vocabulary.end_of_text]
        text = tuple(believed[i] for i in positions)
        start = min(continuation(self._final, text, self._may_begin), len(text))
        rest = text[start:]
        count = len(rest) if settles_all else self._num_stable(rest, attended_ms[start:], window)
        self._final += rest[:count]
        self._has_told |= bool(self._final)
        self._hypothesis = rest[count:]
        final_start, final_end = (positions[start], positions[start + count - 1] + 1) if count else (0, 0)
        expected: tuple[int, ...] = ()
        if is_last:
            self._finish(window)
        else:
            expected = self._cut(window, believed, final_end, count)
        if self._known_language is None and not self._has_told:
            self.language = None  # too little was heard to know: listen again
        step = Step(utterance.number, final_start, final_end, is_last)
        kept = Outcome.KEPT if outcome is Outcome.KEPT else Outcome.SKIPPED
        if not self._live.recalls:
            return ClosedWindow(kept, (), (), step)
        firm = self._vocabulary.without_ending(expected)
        return ClosedWindow(kept, (), firm, step, ending=expected[len(firm) :])

    def _num_stable(self, rest: Sequence[int], attended_ms: Sequence[float], window: Window) -> int:
        if self.attends:
            end_ms = window.num_frames * 1000 / FRAMES_PER_S - self._live.margin_ms
            return attended(attended_ms, end_ms, rest, self._may_begin)
        return agreed(self._hypothesis, rest, self._may_begin)

    def _may_begin(self, token: int) -> bool:
        return self._vocabulary.may_begin_word(token, self.language)

    def _finish(self, window: Window) -> None:
        """Be done with the utterance."""
        self._remember(self._final, window)
        self._utterances.finish_current()
        self._final = self._hypothesis = ()
        self._decoded_to = 0
        self._has_told = self._is_spent = False
        self.language = self._known_language
        self._wait_for_speech()

    def _wait_for_speech(self) -> None:
        """Begin the next window where speech does; within an utterance it stays where it was."""
        if self._final and self._utterances.has_fallen_silent:
            self._final = ()  # of an utterance that had ended where the session went on
            self._utterances.skip()
        if not (self._decoded_to or self._final):
            self.next_frame = max(self.next_frame, self._utterances.needed_from // HOP_SAMPLES)
        utterance = self._utterances.current
        end_sample = utterance.end_sample if utterance is not None else None
        if end_sample is not None and end_sample // HOP_SAMPLES <= self.next_frame:
            # It was cut where it ends. A last window tells so; there must be something to hear in it.
            self._is_spent = True
            self.next_frame = min(self.next_frame, (self._utterances.received_samples - 1) // HOP_SAMPLES)

    def _remember(self, text: tuple[int, ...], window: Window) -> None:
        self._previous.append([text] if text else [], window.temperature)

    def _cut(self, window: Window, tokens: Sequence[int], final_end: int, num_fresh: int) -> tuple[int, ...]:
        """Cut a window that has become long, and say what the next one will likely begin with.

        It is cut behind the last sentence that is final, and a full one behind everything. ``num_fresh``
        tokens before ``final_end`` have become final just now: those before them may word it differently.
        """
        vocabulary, advance_frames, cut = self._vocabulary, 0, 0
        if window.num_frames == WINDOW_FRAMES:
            advance_frames, cut = WINDOW_FRAMES, len(tokens)
        elif window.num_frames * MS_PER_FRAME > self._live.trim_ms:
            is_time = [vocabulary.is_timestamp(token) for token in tokens[:final_end]]
            pairs = (i for i in range(final_end - 1, 0, -1) if is_time[i - 1] and is_time[i])
            cut = next(pairs, 0)
            advance_frames = (tokens[cut] - vocabulary.timestamp_begin) * FRAMES_PER_TIMESTAMP if cut else 0
        if 0 < advance_frames <= window.num_frames:
            num_left = sum(token < vocabulary.end_of_text for token in tokens[cut:final_end])
            num_cut = len(self._final) - num_left
            if num_left > num_fresh:
                before = [token for token in tokens[:cut] if token < vocabulary.end_of_text]
                num_cut = continuation(before, self._final, self._may_begin)
            self._remember(self._final[:num_cut], window)
            self._final = self._final[num_cut:]
            self.next_frame = window.start_frame + advance_frames
        else:
            advance_frames = cut = 0
        return in_later_times(tokens[cut:], advance_frames, vocabulary)
