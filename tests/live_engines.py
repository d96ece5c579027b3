"""Draft and target of live audio, connected in one process, run step by step."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field

from experiments.common.models.scripted import END, ScriptedModel
from specwhisper.audio.recording import Recording
from specwhisper.engine.draft_state import Drafted
from specwhisper.engine.drafter import Drafter
from specwhisper.engine.inline_pair import InlineExecutor
from specwhisper.engine.verifier import Verifier
from specwhisper.live import LiveOptions
from specwhisper.options import DecodingOptions
from specwhisper.speculation.draft_length import DraftLength
from specwhisper.transcription.live.transcript import LiveTranscript
from specwhisper.types import (
    HOP_SAMPLES,
    AudioChunk,
    Candidates,
    Commit,
    Failed,
    Finished,
    Mode,
    Segment,
    VoiceMark,
    Window,
    WindowOpened,
)


def texts_of(segments: Iterable[Segment]) -> dict[int, list[int]]:
    """Return the tokens of final text, by utterance."""
    texts: dict[int, list[int]] = {}
    for segment in segments:
        texts.setdefault(segment.utterance, []).extend(i for i in segment.tokens if i < END)
    return texts


@dataclass(eq=False)
class LiveSession:
    """The results of a session.

    Attributes
    ----------
    windows : each window that was opened, and its tokens.
    positions : for each segment, where another session would resume after it.
    """

    transcript: LiveTranscript
    windows: list[tuple[Window, list[int]]] = field(default_factory=list)
    segments: list[Segment] = field(default_factory=list)
    positions: list[LiveOptions] = field(default_factory=list)
    is_finished: bool = False

    @property
    def texts(self) -> dict[int, list[int]]:
        """Tokens of the final text, by utterance."""
        return texts_of(self.segments)

    @property
    def spans(self) -> list[tuple[int, int]]:
        """First frame and end frame of each window."""
        return [(window.start_frame, window.start_frame + window.num_frames) for window, _ in self.windows]


class LivePair:
    """Both engines, connected; the clock advances only while both wait."""

    def __init__(
        self,
        target: ScriptedModel,
        draft: ScriptedModel | None = None,
        *,
        mode: Mode = Mode.FULL,
        gamma: int = 4,
        drafts_next_window: bool = True,
        edit_block: Callable[[Candidates], Sequence[Candidates]] = lambda block: (block,),
        aligner: Executor | None = None,
    ) -> None:
        self._mode = mode if draft is not None else Mode.TARGET_ONLY
        self._gamma = gamma
        self._edit_block = edit_block
        self._now_ns = 1
        executor = InlineExecutor()
        self.verifier = Verifier(target, executor=executor, aligner=aligner, clock=lambda: self._now_ns)
        self.drafter = Drafter(
            draft or target,
            executor=executor,
            clock=lambda: self._now_ns,
            drafts_next_window=drafts_next_window,
        )
        self.sessions: dict[str, LiveSession] = {}

    def open(self, name: str, options: DecodingOptions) -> LiveSession:
        live = options.live
        assert live is not None
        self.verifier.open(name, self._mode, options)
        if self._mode.drafts:
            length = DraftLength.of(self._mode, self._gamma, 4, None)
            credit = self.verifier.limits.max_ahead_tokens
            self.drafter.open(name, length, options, max_ahead_tokens=credit)
        transcript = LiveTranscript(self.verifier._model.vocabulary, live.position)
        self.sessions[name] = LiveSession(transcript)
        return self.sessions[name]

    def append_audio(self, name: str, pcm: bytes, *marks: VoiceMark, is_last: bool = False) -> None:
        """Submit audio to both engines, the draft first."""
        transcript = self.sessions[name].transcript
        chunk = AudioChunk(transcript.num_samples, pcm, is_last, marks)
        transcript.num_samples += len(pcm) // 2
        if self._mode.drafts:
            self.drafter.submit(name, chunk)
        self.verifier.submit(name, chunk)

    def advance(self) -> bool:
        """Run the draft until it waits, then one target step; return if there was work."""
        draft_had_work = self.drafter.has_work
        while self.drafter.has_work:
            for name, drafted in self.drafter.step():
                self._propose(name, drafted)
        target_had_work = self.verifier.has_work
        for name, event in self.verifier.step():
            self._follow(name, event)
        if not (draft_had_work or target_had_work) and (wait_s := self.verifier.wake_after_s):
            self._now_ns += round(wait_s * 1e9) + 1
            return True
        return draft_had_work or target_had_work

    def settle(self) -> None:
        """Run both engines until they wait for audio."""
        while self.advance():
            pass

    def _propose(self, name: str, drafted: Drafted | Failed) -> None:
        if isinstance(drafted, Failed):
            raise drafted.error
        transcript = self.sessions[name].transcript
        if drafted.belief is not None:
            transcript.update_belief(drafted.belief.window, drafted.belief.tokens)
        if drafted.candidates is not None:
            transcript.observe(drafted.candidates)
            for block in self._edit_block(drafted.candidates):
                self.verifier.submit(name, block)

    def _follow(self, name: str, event: WindowOpened | Commit | Finished | Failed) -> None:
        session = self.sessions[name]
        match event:
            case Failed(error):
                raise error
            case Finished():
                session.is_finished = True
                self.verifier.close(name)
                self.drafter.close(name)
                return
            case WindowOpened(window=window):
                session.windows.append((window, []))
            case Commit():
                session.windows[-1][1].extend(event.tokens)
        segments = session.transcript.observe(event)
        session.segments += segments
        session.positions += [session.transcript.position] * len(segments)
        self.drafter.submit(name, event)


def plain_text(model: ScriptedModel, pcm: bytes, window: Window) -> list[int]:
    """Decode a window on its own, token by token, from its audio and its prompt."""
    clip = Recording()
    start = window.start_sample * 2
    clip.append(AudioChunk(0, pcm[start : start + window.num_frames * HOP_SAMPLES * 2], is_last=True))
    model.encode(0, clip, 0)
    tokens: list[int] = []
    while len(tokens) < window.max_new_tokens and tokens[-1:] != [END]:
        tokens.append(model.next_token(model._audio[0], [*window.prompt, *tokens]))
    return tokens
