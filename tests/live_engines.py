"""Draft and target of live audio, connected in one process, run step by step."""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from itertools import cycle

from experiments.common.models.scripted import END, ScriptedModel
from experiments.common.models.speech import EnergyVad, talk
from specwhisper.audio.endpointing import Endpointer, Vad, VoiceMarker
from specwhisper.audio.recording import Recording
from specwhisper.engine.drafter import Drafter
from specwhisper.engine.verifier import Verifier
from specwhisper.live import EndpointingOptions, LivePosition
from specwhisper.options import DecodingOptions
from specwhisper.speculation.draft_length import DraftLength
from specwhisper.transcription.live_transcript import LiveTranscript
from specwhisper.transcription.live_windows import LiveWindows
from specwhisper.types import (
    CONTEXT_SAMPLES,
    HOP_SAMPLES,
    AudioChunk,
    Candidates,
    Commit,
    Failed,
    Finished,
    Hypothesis,
    Mode,
    Segment,
    VoiceEvent,
    VoiceMark,
    Window,
    WindowOpened,
)

PIECES = EndpointingOptions(max_piece_ms=2_500, min_utterance_ms=1_000, short_silence_ms=600)
PIECE_SAMPLES = 8_192  # that a draft server sends at once
Edit = Callable[[Candidates], Sequence[Candidates]]


TALK = talk(((0.3, 3.1), (4.3, 4.7), (5.9, 9.4)), 10.1)


def texts_of(segments: Iterable[Segment]) -> dict[int, list[int]]:
    """Return the text tokens of segments, by utterance."""
    texts: dict[int, list[int]] = {}
    for segment in segments:
        texts.setdefault(segment.utterance, []).extend(i for i in segment.tokens if i < END)
    return texts


@dataclass(eq=False)
class LiveSession:
    """The results of a session.

    Attributes
    ----------
    follows : windows that follow the target's, as on a draft server.
    start_sample : first sample of its audio.
    windows : each window that was opened, and its tokens after the prefix.
    hypotheses : texts of the draft.
    pcm, marks : all audio so far, and its marks with the sample at which each was known.
    """

    options: DecodingOptions
    follows: LiveWindows
    transcript: LiveTranscript
    start_sample: int = 0
    windows: list[tuple[Window, list[int]]] = field(default_factory=list)
    segments: list[Segment] = field(default_factory=list)
    hypotheses: list[Hypothesis] = field(default_factory=list)
    pcm: bytearray = field(default_factory=bytearray)
    marks: list[tuple[int, VoiceMark]] = field(default_factory=list)
    is_finished: bool = False
    has_draft: bool = True


class LivePair:
    """Both engines, connected; the clock advances only while both wait."""

    def __init__(
        self,
        target: ScriptedModel,
        draft: ScriptedModel | None = None,
        *,
        edit: Edit = lambda block: (block,),
        aligner: Executor | None = None,
    ) -> None:
        self._mode = Mode.FULL if draft is not None else Mode.TARGET_ONLY
        self._edit = edit
        self._now_ns = 1
        self.target = target
        self.verifier = Verifier(target, aligner=aligner, clock=lambda: self._now_ns)
        self.drafter = Drafter(draft or target, clock=lambda: self._now_ns)
        self.sessions: dict[str, LiveSession] = {}

    def open(
        self,
        name: str,
        options: DecodingOptions,
        position: LivePosition = LivePosition(),  # noqa: B008 (it is frozen)
    ) -> LiveSession:
        """Open a session at a position, which the target is sent as by a draft server."""
        self._open_target(name, options, position)
        if self._mode.drafts:
            length, credit = DraftLength(Mode.FULL, 4), self.verifier.limits.max_ahead_tokens
            self.drafter.open(name, length, options, max_ahead_tokens=credit)
        vocabulary = self.target.vocabulary
        transcript = LiveTranscript(vocabulary, position.next_sample)
        transcript.num_samples = position.start_sample
        follows = LiveWindows(vocabulary, options, follows=True)
        follows.begin_at(position)
        self.sessions[name] = LiveSession(options, follows, transcript, position.start_sample)
        return self.sessions[name]

    def _open_target(self, name: str, options: DecodingOptions, position: LivePosition) -> None:
        self.verifier.open(name, self._mode, options)
        if position != LivePosition():
            self.verifier.submit(name, position)

    def _close_target(self, name: str) -> None:
        self.verifier.close(name)
        self.verifier._outbox = [each for each in self.verifier._outbox if each[0] != name]

    def lose_target(self, name: str) -> None:
        """Continue a session on another target, which is sent what it needs in pieces of its own."""
        session = self.sessions[name]
        position, begin = session.follows.position, session.start_sample
        self._close_target(name)
        self._open_target(name, session.options, position)
        session.transcript.lose_target()
        kept = [
            (known, mark)
            for known, mark in session.marks
            if mark.sample + (mark.event is VoiceEvent.BEGIN) > position.next_sample
        ]
        at = max(begin, session.follows.needed_from - CONTEXT_SAMPLES)
        known_to = -1
        while at < session.transcript.num_samples:
            pcm = bytes(session.pcm[(at - begin) * 2 : (at - begin + PIECE_SAMPLES) * 2])
            end = at + len(pcm) // 2
            marks = tuple(mark for known, mark in kept if known_to < known <= end)
            self.verifier.submit(name, AudioChunk(at, pcm, marks=marks))
            at = known_to = end

    def append_audio(self, name: str, pcm: bytes, *marks: VoiceMark, is_last: bool = False) -> None:
        """Submit audio to both engines, the draft first."""
        session = self.sessions[name]
        chunk = AudioChunk(session.transcript.num_samples, pcm, is_last, marks)
        session.transcript.num_samples += len(pcm) // 2
        session.pcm += pcm
        session.marks += [(session.transcript.num_samples, mark) for mark in marks]
        session.follows.append_audio(chunk, session.transcript.num_samples)
        self.drafter.submit(name, chunk)
        self.verifier.submit(name, chunk)

    def advance_draft(self) -> bool:
        """Run one step of the draft; return whether there was work."""
        if not self.drafter.has_work:
            return False
        for name, drafted in self.drafter.step():
            session = self.sessions[name]
            if isinstance(drafted, Failed):
                session.has_draft = False
                continue
            if drafted.hypothesis is not None:
                session.hypotheses.append(drafted.hypothesis)
                session.transcript.show(drafted.hypothesis)
            if drafted.candidates is not None:
                session.transcript.observe(drafted.candidates)
                for block in self._edit(drafted.candidates):
                    self.verifier.submit(name, block)
        return True

    def advance_target(self) -> bool:
        """Run one step of the target; return whether there was work."""
        if not self.verifier.has_work:
            return False
        for name, event in self.verifier.step():
            self._follow(name, event)
        return True

    def settle(self) -> None:
        """Run both engines, the draft first, until they wait for audio."""
        while True:
            while self.advance_draft():
                pass
            if not self.advance_target():
                if not (wait_s := self.verifier.wake_after_s):
                    return
                self._now_ns += round(wait_s * 1e9) + 1

    def close(self, name: str) -> None:
        """Close a session on both sides."""
        self._close_target(name)
        self.drafter.close(name)

    def _follow(self, name: str, event: WindowOpened | Commit | Finished | Failed) -> None:
        session = self.sessions[name]
        match event:
            case Failed(error):
                raise error
            case Finished():
                session.is_finished = True
                self.close(name)
                return
            case WindowOpened(window=window):
                session.windows.append((window, []))
                session.follows.on_window_opened(window)
            case Commit():
                session.windows[-1][1].extend(event.tokens)
                session.follows.on_commit(event)
        session.segments += session.transcript.observe(event)
        self.drafter.submit(name, event)


def transcribe(
    pair: LivePair,
    pcm: bytes,
    options: DecodingOptions,
    *,
    sizes: Sequence[int] = (1_600,),
    pace: Sequence[tuple[int, int]] = (),
    losses: Collection[int] = (),
    breaks: Collection[int] = (),
    endpointing: EndpointingOptions | None = PIECES,
    open_vad: Callable[[], Vad] = EnergyVad,
) -> list[Segment]:
    """Return the final text of audio that comes in chunks of some sizes.

    Parameters
    ----------
    pace : steps of draft and target after each chunk; by default they run until they wait.
    losses : chunks after which the target is lost, and another one continues.
    breaks : chunks after which the session is lost, and another one continues from its position.
    """
    session, voice, silent_to = pair.open("one", options), voice_of(endpointing, LivePosition(), open_vad), 0
    segments: list[Segment] = []
    turns, chunks = cycle(pace or [(0, 0)]), iter(cut(pcm, sizes))
    for number, (start, chunk) in enumerate(chunks):
        pair.append_audio("one", chunk, *voice.append(chunk))
        if session.follows.pieces.current is None:
            silent_to = voice.boundary_sample
        num_draft, num_target = next(turns)
        for _ in range(num_draft):
            pair.advance_draft()
        for _ in range(num_target):
            pair.advance_target()
        if not pace:
            pair.settle()
        if number in losses:
            pair.lose_target("one")
        if number in breaks:
            segments += session.segments
            position = session.follows.position
            if not position.is_speech:
                position = replace(position, next_sample=max(session.follows.final_to, silent_to))
            pair.close("one")
            session, voice = (
                pair.open("one", options, position),
                voice_of(endpointing, position, open_vad),
            )
            again = pcm[position.start_sample * 2 : start * 2 + len(chunk)]
            known = position.next_sample - position.start_sample
            for at, piece in cut(again, (PIECE_SAMPLES,)):
                pair.append_audio("one", piece, *voice.append(piece[max(0, known - at) * 2 :]))
            silent_to = position.next_sample
    pair.append_audio("one", b"", *voice.end_utterance(), is_last=True)
    pair.settle()
    assert session.is_finished
    assert pair.verifier.num_free_slots == pair.target.num_slots
    assert not pair.sessions["one"].transcript.verified_text
    assert not pair.sessions["one"].transcript.tentative_text
    return segments + session.segments


def voice_of(
    options: EndpointingOptions | None, position: LivePosition, open_vad: Callable[[], Vad] = EnergyVad
) -> VoiceMarker:
    """Return what marks utterances, from a position on."""
    return VoiceMarker(Endpointer(options, position.next_sample, is_speech=position.is_speech), open_vad)


def cut(pcm: bytes, sizes: Sequence[int]) -> Iterator[tuple[int, bytes]]:
    """Yield chunks of some numbers of samples, each with its first sample."""
    at = 0
    for size in cycle(sizes):
        if at * 2 >= len(pcm):
            return
        yield at, pcm[at * 2 : (at + size) * 2]
        at += size


def plain_text(model: ScriptedModel, pcm: bytes, window: Window) -> list[int]:
    """Decode a window on its own, token by token, from its audio, prompt and prefix."""
    clip = Recording()
    start = window.start_sample * 2
    clip.append(AudioChunk(0, pcm[start : start + window.num_frames * HOP_SAMPLES * 2], is_last=True))
    model.encode(0, clip, 0)
    tokens = list(window.prefix)
    while len(tokens) < window.max_new_tokens and tokens[-1:] != [END]:
        tokens.append(model.next_token(model._audio[0], [*window.prompt, *tokens]))
    return tokens[len(window.prefix) :]
