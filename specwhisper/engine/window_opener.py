"""The windows of a session, one after the other, with their audio encoded."""

from __future__ import annotations

from collections.abc import Callable

from specwhisper.engine.encodings import AudioSpan, Encodings
from specwhisper.engine.verifier_state import VerifierState
from specwhisper.model.model import Model
from specwhisper.options import DecodingOptions
from specwhisper.transcription.live.windows import kind_of
from specwhisper.transcription.prompting import PromptText
from specwhisper.transcription.several_languages.search import Voice
from specwhisper.transcription.windows import TokenLimit, WhisperWindows
from specwhisper.types import Finished, FromTarget, WindowOpened


class WhisperPlan:
    """Sequential windows for recordings, live windows for live audio.

    Parameters
    ----------
    max_new_tokens : limit of a window's tokens where the options name none.
    voice : finds speech, where that can be done.
    """

    def __init__(self, model: Model, max_new_tokens: TokenLimit | None, voice: Voice | None = None) -> None:
        self._model = model
        self._max_new_tokens = max_new_tokens
        self._voice = voice

    def __call__(self, options: DecodingOptions) -> WhisperWindows:
        """Return a session's windows; raise :class:`UnsupportedOption` for others."""
        words = PromptText(
            initial=self._model.tokenize(options.initial_prompt),
            hotwords=self._model.tokenize(options.hotwords),
            is_carried=options.carry_initial_prompt,
        )
        return kind_of(options)(
            self._model.vocabulary, options, words, max_new_tokens=self._max_new_tokens, voice=self._voice
        )


class WindowOpener:
    """Opens and encodes the windows of a target's sessions.

    Parameters
    ----------
    is_open : returns whether a session has not ended; called on the executor.
    reply : sends an event to a session's draft.
    """

    def __init__(
        self,
        model: Model,
        encodings: Encodings,
        clock: Callable[[], int],
        *,
        is_open: Callable[[VerifierState], bool],
        reply: Callable[[VerifierState, FromTarget], None],
    ) -> None:
        self._model = model
        self._encodings = encodings
        self._clock = clock
        self._is_open = is_open
        self._reply = reply

    def can_advance(self, session: VerifierState) -> bool:
        """Return whether a session can leave its phase without a forward pass.

        A live window is opened only when it is the next to be encoded: later it reaches further.
        """
        if not session.can_advance:
            return False
        if not session.derived.can_open or not session.windows.is_live:
            return True
        return self._encodings.num_live < self._model.max_windows

    def advance(self, session: VerifierState) -> None:
        """Take the result of an encoding, open the next window, or finish."""
        if session.encoding is not None:
            session.end_encoding(self._clock())
        else:
            self._open_next(session)

    def _open_next(self, session: VerifierState) -> None:
        """Open the next window, begin to detect its language, or finish."""
        num_frames = session.ready_frames
        if not num_frames:
            session.finish()
            self._reply(session, Finished())
            return
        windows = session.windows
        span = AudioSpan(windows.next_frame, num_frames)
        if windows.needs_speech:
            self._find_speech(session, span)
            return
        if detected_in := windows.language_span(num_frames):
            self._encode(session, AudioSpan(*detected_in))
            return
        opened = session.begin_window(num_frames, self._clock())
        span = AudioSpan(opened.window.start_frame, opened.window.num_frames)  # of one that is resumed, too
        # Another replica cannot compute the log-mel maximum: it depends on earlier audio.
        log_mel_max = session.recording.log_mel_max(opened.window.start_frame, self._model.num_mel_bins)
        # The slot may hold this audio: from the detection, a failed attempt, or a pause that was the end.
        if session.encoded == span:
            self._model.rollback(session.slot, 0)
            session.ready_ns = self._clock()
        else:
            self._encode(session, span)
        previous = tuple(windows.previous) if session.options.condition_on_previous_text else ()
        opening = opened.ledger.opening
        self._reply(session, WindowOpened(opened.window, log_mel_max, opening, previous))
        for answer in session.offer_early(self._clock()):
            self._reply(session, answer)

    def _find_speech(self, session: VerifierState, span: AudioSpan) -> None:
        """Let the windows listen to the next one, on the executor."""

        def find_speech() -> int:
            session.windows.find_speech(session.recording.pcm(*span), span.num_frames)
            return 0

        session.begin_encoding(None, self._encodings.submit(session.slot, find_speech))

    def _encode(self, session: VerifierState, span: AudioSpan) -> None:
        """Queue the encoding of a window into the session's slot."""

        def encode() -> int:
            if not self._is_open(session):
                return 0
            started_ns = self._clock()
            if session.windows.is_clip:
                self._model.encode(session.slot, session.recording.clip(*span), 0)
            else:
                self._model.encode(session.slot, session.recording, span.start_frame)
            return self._clock() - started_ns

        is_live = session.windows.is_live
        session.begin_encoding(span, self._encodings.submit(session.slot, encode, is_live=is_live))
