"""Decode the open utterance again at each step; stable text becomes final.

The oldest utterance that is not complete is in one of these states:

=============  =========================  ============================  ====================================
State          ``Progress`` has           The next window               Its text
=============  =========================  ============================  ====================================
new            no ``decoded_to``          begins where speech begins    none (of a session that continues:
                                                                        the final text of its position)
tentative      no ``language``            to the newest step            may change, its language too
partly final   a ``language``             the same, or from where the   final text stays, and the language;
                                          last window was cut           the rest may change
exhausted      ``is_exhausted``           its last frames               final; the window reports the end
=============  =========================  ============================  ====================================

A complete window, a step, ends in one of these ways:

===================================  ===========  =====================================================
The step                             Outcome      Then
===================================  ===========  =====================================================
is good by the thresholds            ``KEPT``     stable text becomes final
is good, and its audio is not        ``KEPT``     all of its text becomes final
decoded again (*)
is silence, or of an exhausted       ``SKIPPED``  no text becomes final
utterance
failed, and speech continues         ``SKIPPED``  the next step decodes the audio again
failed (*), a temperature is left    ``RETRIED``  the window is decoded again at the next temperature
failed (*), no temperature is left   ``KEPT``     all of its text becomes final
===================================  ===========  =====================================================

(*) The utterance ends with it, or the window is full (30 s). What stable means is in ``stability.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from specwhisper.errors import InvalidRequest
from specwhisper.live import LiveOptions
from specwhisper.options import DecodingOptions
from specwhisper.transcription.fallback import judge
from specwhisper.transcription.prompting import PromptText
from specwhisper.transcription.segments import shift_timestamps
from specwhisper.transcription.sequential_windows import SequentialWindows
from specwhisper.transcription.several_languages.search import Voice
from specwhisper.transcription.several_languages.windows import LanguageWindows
from specwhisper.transcription.stability import agreed, continuation
from specwhisper.transcription.utterances import Utterance, Utterances
from specwhisper.transcription.vocabulary import Vocabulary
from specwhisper.transcription.windows import (
    ClosedWindow,
    Extent,
    PredictedWindow,
    TokenLimit,
    WhisperWindows,
    Windows,
)
from specwhisper.types import (
    FRAMES_PER_TIMESTAMP,
    HOP_SAMPLES,
    SAMPLE_RATE,
    WINDOW_FRAMES,
    AudioChunk,
    Commit,
    Outcome,
    Step,
    Window,
)

# No speech is faster: a model that writes more repeats itself.
MAX_TOKENS = 32
MAX_TOKENS_PER_S = 25
FRAMES_PER_S = SAMPLE_RATE // HOP_SAMPLES
MS_PER_FRAME = 1000 // FRAMES_PER_S


@dataclass(slots=True)
class Progress:
    """How far the oldest utterance that is not complete has been decoded.

    Attributes
    ----------
    final : text tokens that are final and lie in the next window.
    hypothesis : text tokens after them, by the last step.
    decoded_to : frame that the last step reached; ``None`` before the first step.
    language : of the speech; ``None`` until some text is final.
    is_exhausted : whether the utterance ends in audio that was cut.
    """

    final: tuple[int, ...] = ()
    hypothesis: tuple[int, ...] = ()
    decoded_to: int | None = None
    language: str | None = None
    is_exhausted: bool = False

    @property
    def is_new(self) -> bool:
        """Whether no step of the utterance has been decoded."""
        return self.decoded_to is None


class LiveWindows(WhisperWindows):
    """Decides which audio is decoded during speech; silence is never decoded.

    A window reaches from where the utterance begins, or was cut, to the newest step, and is decoded as if it
    were a recording of its own. It depends on voice marks and samples only: the same steps give the same
    text, with any candidates.
    """

    is_live = is_clip = True

    def __init__(
        self,
        vocabulary: Vocabulary,
        options: DecodingOptions,
        words: PromptText | None = None,
        *,
        max_new_tokens: TokenLimit | None = None,
        follows: bool = False,
        voice: Voice | None = None,
    ) -> None:
        super().__init__(vocabulary, options, words, max_new_tokens=max_new_tokens, follows=follows)
        self._live = options.live or LiveOptions()
        self._step_samples = self._live.step_ms * SAMPLE_RATE // 1000
        position = self._live.position
        if not follows:
            _check_final_tokens(position.final_tokens, vocabulary)
        self._utterances = Utterances(position.start_sample, position.num_utterances)
        self._progress = Progress(final=position.final_tokens)
        self._common_language = self.language  # of all utterances; ``None`` if each may have another
        self.next_frame = position.start_sample // HOP_SAMPLES

    @property
    def num_final(self) -> int:
        """Text tokens of the next window's audio that are final already."""
        return len(self._progress.final)

    def append_audio(self, chunk: AudioChunk, end_sample: int) -> None:
        """Follow the voice marks of a chunk; the next window does not begin in silence."""
        self._utterances.append_audio(end_sample, chunk.marks, is_last=chunk.is_last)
        self._skip_silence()

    def ready_frames(self, audio: Extent) -> int | None:
        """Return the frames of the next step; ``None`` while there is none, 0 at the end."""
        utterance = self._utterances.current
        if utterance is None:
            return 0 if self._utterances.is_complete else None
        if self._retry is not None:
            return self._retry.num_frames
        num_frames, end_frame = self._step(utterance, audio)
        if utterance.end_sample is not None:
            return max(num_frames, 1)
        return num_frames if num_frames > 0 and end_frame > (self._progress.decoded_to or 0) else None

    def open(self, num_frames: int) -> Window:
        """Open a step's window."""
        window = super().open(num_frames)
        limit = MAX_TOKENS + num_frames * MAX_TOKENS_PER_S // FRAMES_PER_S
        limit = 1 if self._progress.is_exhausted else limit
        return replace(window, max_new_tokens=min(window.max_new_tokens, limit))

    def close(
        self,
        window: Window,
        tokens: Sequence[int],
        log_probs: Sequence[float] = (),
        no_speech_prob: float | None = None,
    ) -> ClosedWindow:
        """Close a step, and make its stable text final.

        At the end of the utterance, all of its text becomes final.
        """
        utterance = self._utterances.current
        if utterance is None:
            raise RuntimeError(f"Window {window.id} was closed without an utterance.")
        decoded_to = self._progress.decoded_to = window.start_frame + window.num_frames
        is_last = utterance.end_sample is not None and decoded_to >= utterance.end_sample // HOP_SAMPLES
        ends_audio = is_last or window.num_frames == WINDOW_FRAMES  # this audio is not decoded again
        outcome = judge(tokens, log_probs, no_speech_prob, self._options, self._vocabulary)
        outcome = self._decide(outcome, window, ends_audio=ends_audio)
        if outcome is Outcome.RETRIED:
            self._retry = window
            return ClosedWindow(outcome, (), tuple(tokens) if self._live.reuses_candidates else ())
        kept = tokens if outcome is Outcome.KEPT else ()
        final_start, final_end = self._make_final(kept, ends_audio=ends_audio)
        step = Step(utterance.number, final_start, final_end, is_last)
        opening: tuple[int, ...] = ()
        if is_last:
            self._finish(window)
        else:
            opening = self._cut(window, kept, step)
        num_kept = len(kept) - len(opening)
        self.language = self._common_language or self._progress.language  # None: detect it with more audio
        if not self._live.reuses_candidates:
            return ClosedWindow(outcome, (), (), step, num_kept=num_kept)
        firm = self._vocabulary.without_ending(opening)
        return ClosedWindow(outcome, (), firm, step, ending=opening[len(firm) :], num_kept=num_kept)

    @property
    def needed_from(self) -> int:
        """First sample of the open window, or of one that may open: the draft needs it."""
        start_sample = self.next_frame * HOP_SAMPLES
        return min(start_sample, self._utterances.needed_from) if self._progress.is_new else start_sample

    def on_window_opened(self, window: Window) -> None:
        """Follow the target to a window that it has opened."""
        super().on_window_opened(window)
        self._progress.decoded_to = window.start_frame + window.num_frames

    def on_commit(self, commit: Commit) -> None:
        """Follow the target's commits; one that ends an utterance finishes it here too."""
        if commit.step is None or not commit.step.is_last or self._followed is None:
            return
        if self._utterances.current is not None:
            self._finish(self._followed)

    def predict_next(self, tokens: Sequence[int], audio: Extent) -> PredictedWindow | None:
        """Return the next step's window as soon as its audio has arrived.

        Its prompt is that of the last window. So the first window of a session is not predicted, nor the
        first one of an utterance if its prompt is the text before.
        """
        last, utterance = self._followed, self._utterances.current
        if last is None or utterance is None:
            return None
        is_new = self._progress.is_new
        if is_new and self._options.condition_on_previous_text:
            return None
        num_frames, _ = self._step(utterance, audio)
        if num_frames <= (0 if is_new else last.num_frames):
            return None
        reuses = self._live.reuses_candidates and not is_new
        return PredictedWindow(
            self._after(last, self.next_frame, num_frames),
            self._vocabulary.without_ending(tokens) if reuses else (),
        )

    def _step(self, utterance: Utterance, audio: Extent) -> tuple[int, int]:
        """Return the frames of a window up to the newest step, and its end frame."""
        end_frame = utterance.step_end(audio.received_samples, self._step_samples) // HOP_SAMPLES
        return min(end_frame - self.next_frame, WINDOW_FRAMES), end_frame

    def _decide(self, outcome: Outcome, window: Window, *, ends_audio: bool) -> Outcome:
        """Return a step's outcome by the second table of this module.

        Parameters
        ----------
        outcome : by the thresholds alone.
        """
        if self._progress.is_exhausted:
            return Outcome.SKIPPED
        if outcome is not Outcome.RETRIED:
            return outcome
        if not ends_audio:
            return Outcome.SKIPPED  # the next step decodes this audio again
        has_temperature_left = window.attempt + 1 < len(self._options.temperatures)
        return Outcome.RETRIED if has_temperature_left else Outcome.KEPT

    def _make_final(self, tokens: Sequence[int], *, ends_audio: bool) -> tuple[int, int]:
        """Make stable text final; return the positions between which tokens became final."""
        progress = self._progress
        text = self._vocabulary.text_tokens(tokens)
        positions = [i for i, token in enumerate(tokens) if token < self._vocabulary.end_of_text]
        start = min(continuation(progress.final, text, self._may_begin), len(text))
        new = text[start:]
        count = len(new) if ends_audio else agreed(progress.hypothesis, new, self._may_begin)
        progress.final += new[:count]
        if progress.final and progress.language is None:
            progress.language = self.language
        progress.hypothesis = new[count:]
        return (positions[start], positions[start + count - 1] + 1) if count else (0, 0)

    def _may_begin(self, token: int) -> bool:
        return self._vocabulary.may_begin_word(token, self.language)

    def _finish(self, window: Window) -> None:
        """Complete the utterance and turn to the next one."""
        self._remember(self._progress.final, window)
        self._utterances.finish_current()
        if self._options.languages:
            self._language_before = self.language
        self._progress = Progress()
        self.language = self._common_language
        self._skip_silence()

    def _skip_silence(self) -> None:
        """Move the next window to where speech begins, unless an utterance is open."""
        progress, utterances = self._progress, self._utterances
        if progress.final and utterances.has_fallen_silent:
            progress.final = ()  # the session continued in an utterance that had already ended
            utterances.skip()
        if progress.is_new and not progress.final:
            self.next_frame = max(self.next_frame, utterances.needed_from // HOP_SAMPLES)
        end_sample = utterances.current.end_sample if utterances.current is not None else None
        if end_sample is not None and end_sample // HOP_SAMPLES <= self.next_frame:
            progress.is_exhausted = True
            # The last window only reports the end, but must hold some audio.
            self.next_frame = min(self.next_frame, (utterances.received_samples - 1) // HOP_SAMPLES)

    def _remember(self, text: tuple[int, ...], window: Window) -> None:
        self._previous.append([text] if text else [], window.temperature)

    def _cut(self, window: Window, tokens: Sequence[int], step: Step) -> tuple[int, ...]:
        """Cut a window that has become long.

        Return the tokens with which the next one will likely begin.
        """
        cut, advance_frames = self._cut_point(window, tokens, step.final_end)
        if advance_frames:
            final = self._progress.final
            num_cut = self._num_final_before(cut, tokens, step)
            self._remember(final[:num_cut], window)
            self._progress.final = final[num_cut:]
            self.next_frame = window.start_frame + advance_frames
        return shift_timestamps(tokens[cut:], advance_frames, self._vocabulary)

    def _num_final_before(self, cut: int, tokens: Sequence[int], step: Step) -> int:
        """Count the final text tokens whose audio lies before a cut.

        Parameters
        ----------
        cut : position in the step's tokens.
        """
        text, final = self._vocabulary.text_tokens, self._progress.final
        num_after = len(text(tokens[cut : step.final_end]))
        if num_after <= len(text(tokens[step.final_start : step.final_end])):
            return len(final) - num_after  # all of them have just become final, as the step words them
        # The step may word older final text differently, so the place is found by the closest match.
        return continuation(text(tokens[:cut]), final, self._may_begin)

    def _cut_point(self, window: Window, tokens: Sequence[int], final_end: int) -> tuple[int, int]:
        """Return the position and the frame of a cut; 0 and 0 for none.

        A full window is cut after all of its text, a long one after the last sentence that is final.
        """
        if window.num_frames == WINDOW_FRAMES:
            return len(tokens), WINDOW_FRAMES
        if window.num_frames * MS_PER_FRAME <= self._live.trim_ms:
            return 0, 0
        is_time = [self._vocabulary.is_timestamp(token) for token in tokens[:final_end]]
        pairs = (i for i in range(final_end - 1, 0, -1) if is_time[i - 1] and is_time[i])
        cut = next(pairs, 0)
        frames = (tokens[cut] - self._vocabulary.timestamp_begin) * FRAMES_PER_TIMESTAMP if cut else 0
        return (cut, frames) if 0 < frames <= window.num_frames else (0, 0)


def follow_windows(vocabulary: Vocabulary, options: DecodingOptions) -> Windows:
    """Return windows for a draft, which follow those of its target."""
    return kind_of(options)(vocabulary, options, follows=True)


def kind_of(options: DecodingOptions) -> type[WhisperWindows]:
    """Return the kind of windows that a session has."""
    if options.live is not None:
        return LiveWindows
    return LanguageWindows if options.languages else SequentialWindows


def _check_final_tokens(tokens: Sequence[int], vocabulary: Vocabulary) -> None:
    if max(tokens, default=0) >= vocabulary.end_of_text:
        raise InvalidRequest("The final tokens of a position are text: one of them is not.")
    if len(tokens) > vocabulary.max_length:
        raise InvalidRequest(
            f"A position has {len(tokens)} final tokens: a window of this model holds "
            f"{vocabulary.max_length}."
        )
