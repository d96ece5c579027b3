"""Windows of recordings in several languages, none of which holds two of them."""

from __future__ import annotations

from collections.abc import Sequence

from specwhisper.transcription.sequential_windows import SequentialWindows
from specwhisper.transcription.several_languages.search import (
    Probs,
    Search,
    Speech,
    among,
    cuts,
    has_enough,
    join_short,
    search,
)
from specwhisper.transcription.windows import Extent
from specwhisper.types import HOP_SAMPLES, WINDOW_FRAMES, Window


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
            Speech(start + first // HOP_SAMPLES, min(end, start + -(-stop // HOP_SAMPLES)))
            for first, stop in (self._voice(pcm) if self._voice else ())
        ]
        if num_frames == WINDOW_FRAMES and len(spoken) > 1 and spoken[-1].stop == end:
            end = cuts(spoken)[-1]  # speech continues after the window
            del spoken[-1]
        rest = spoken[:1] if start < self._end_frame and not has_enough(spoken) else []  # of the last window
        spoken, before = [*rest, *join_short(spoken[len(rest) :])], self._language_before
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
            self._language_before, self._piece = self.language, None
        return probs or {}

    def resume(self, window: Window, previous: Sequence[int] = ()) -> None:
        """Take over a window of another target, which found its end."""
        super().resume(window, previous)
        self._language_before = self.language
        self._end_frame = window.start_frame + window.num_frames
