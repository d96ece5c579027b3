"""Run servers with models that recognise synthetic words, and live clients."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from functools import cache
from itertools import pairwise

from experiments.common.models.scripted import END
from experiments.common.models.speech import SPOKEN, EnergyVad, SpeechModel, talk
from specwhisper.audio.endpointing import Endpointer, VoiceMarker, loudness
from specwhisper.audio.recording import Recording
from specwhisper.live import EndpointingOptions, LiveOptions
from specwhisper.options import DecodingOptions
from specwhisper.transcription.live_windows import LiveWindows
from specwhisper.types import SAMPLE_RATE, AudioChunk, Limits, Outcome, Segment
from specwhisper.wire.v1 import transcription_pb2 as pb
from specwhisper_client.streaming import StreamingClient
from specwhisper_client.updates import Update
from tests.live_engines import plain_text
from tests.rpc.services import (
    MAX_SESSIONS,
    Draft,
    Target,
    audio_requests,
    draft_server,
    eventually,
    responses_to,
    scripted_checkpoint,
    streaming_config,
    target_server,
)

STEP_MS = 300
PIECE_BYTES = 3_200  # 100 ms
FOLLOWED_SAMPLES = 3 * SAMPLE_RATE // 10  # sent at once as if they were spoken: as many as a draft's step
# Ten words and a pause, again and again: one utterance, which is cut at its pauses.
LECTURE_S = 26.0
LECTURE = talk(tuple((0.5 + 2.2 * i, 2.5 + 2.2 * i) for i in range(11)), LECTURE_S)
CUT_OFTEN = EndpointingOptions(max_piece_ms=3_000)


def voice_marker(endpointing: EndpointingOptions | None) -> VoiceMarker:
    return VoiceMarker(Endpointer(endpointing), (lambda: loudness) if endpointing is None else EnergyVad)


@cache
def final_text(
    pcm: bytes,
    endpointing: EndpointingOptions | None = EndpointingOptions(),  # noqa: B008 (it is frozen)
    ended_at: tuple[int, ...] = (),
) -> dict[int, list[int]]:
    """Return the words that a target alone writes, by utterance.

    Parameters
    ----------
    ended_at : bytes of the audio at which the client ends an utterance.
    """
    marker = voice_marker(endpointing)
    windows = LiveWindows(SPOKEN, DecodingOptions.greedy(language="en", live=LiveOptions()))
    borders = sorted({*range(0, len(pcm), PIECE_BYTES), len(pcm), *ended_at})
    for start, end in pairwise(borders):
        marks = [*marker.append(pcm[start:end])]
        is_last = end == len(pcm)
        if is_last or end in ended_at:
            marks += marker.end_utterance()
        windows.append_audio(AudioChunk(start // 2, b"", is_last, tuple(marks)), end // 2)
    audio, model = Recording(), SpeechModel()
    audio.append(AudioChunk(0, pcm, is_last=True))
    texts: dict[int, list[int]] = {}
    while num_frames := windows.ready_frames(audio):
        window = windows.open(num_frames)
        new = plain_text(model, pcm, window)
        tokens = [*window.prefix, *new]
        closed = windows.close(window, tokens, [0.0] * len(tokens))
        piece = closed.piece
        assert piece is not None
        kept = new if closed.outcome is Outcome.KEPT else ()
        texts.setdefault(piece.utterance, []).extend(token for token in kept if token < END)
    return texts


def num_empty_ends(pcm: bytes, endpointing: EndpointingOptions | None, ended_at: tuple[int, ...]) -> int:
    """Return how many ends of the client come where nothing was said."""
    marker = voice_marker(endpointing)
    num, before = 0, 0
    for end in ended_at:
        marker.append(pcm[before:end])
        num, before = num + (not marker.end_utterance()), end
    return num


@asynccontextmanager
async def speaking_target(
    *,
    digest: str = "digest of scripted",
    limits: Limits | None = None,
    model: SpeechModel | None = None,
    **kwargs,
) -> AsyncIterator[Target]:
    checkpoint = scripted_checkpoint(vocabulary=SPOKEN, weights_digest=digest)
    limits = limits or Limits(max_sessions=MAX_SESSIONS)
    model = model or SpeechModel(limits.max_sessions)
    async with target_server(model, checkpoint, limits=limits, **kwargs) as target:
        yield target


@asynccontextmanager
async def speaking_draft(
    target: str,
    *,
    error_rate: float = 0.2,
    port: int = 0,
    model: SpeechModel | None = None,
    **settings,
) -> AsyncIterator[Draft]:
    checkpoint = scripted_checkpoint("scripted-draft", vocabulary=SPOKEN)
    model = model or SpeechModel(MAX_SESSIONS, error_rate=error_rate)
    async with draft_server(target, model, checkpoint, port=port, **settings) as draft:
        yield draft


@asynccontextmanager
async def speaking_pair(**kwargs) -> AsyncIterator[tuple[Target, Draft]]:
    async with speaking_target() as target, speaking_draft(target.address, **kwargs) as draft:
        yield target, draft


def config(
    *, disabled=False, interim=False, languages=("en",), live=None, endpointing=None, **more
) -> pb.StreamingRecognizeRequest:
    decoding = {"greedy": True, "languages": languages, "live": live or {}} | more.pop("decoding", {})
    request = streaming_config(interim=interim, decoding=decoding, **more)
    request.streaming_config.endpointing.CopyFrom(pb.Endpointing(disabled=disabled, **endpointing or {}))
    return request


async def listen(draft: Draft, pcm: bytes, piece_bytes: int = 3_200, **kwargs):
    return await responses_to(draft, config(**kwargs), *audio_requests(pcm, piece_bytes))


def final_results(responses) -> list[pb.SpeechRecognitionResult]:
    return [result for response in responses for result in response.results if result.is_final]


def pieces_of(pcm: bytes) -> Iterator[bytes]:
    for start in range(0, len(pcm), PIECE_BYTES):
        yield pcm[start : start + PIECE_BYTES]


def segments_of(updates: Iterable[Update]) -> list[Segment]:
    return [segment for update in updates for segment in update.segments]


def texts_of(results: Iterable) -> dict[int, list[int]]:
    texts: dict[int, list[int]] = {}
    for result in results:
        tokens = (
            result.alternatives[0].tokens if isinstance(result, pb.SpeechRecognitionResult) else result.tokens
        )
        texts.setdefault(result.utterance, []).extend(token for token in tokens if token < END)
    return texts


def letters(tokens: Iterable[int]) -> str:
    """Return words as a hint, in which nothing marks their beginnings."""
    return "".join(chr(ord("a") + token) for token in tokens)


class Listener:
    """Collects a client's updates in a task."""

    def __init__(self, client: StreamingClient) -> None:
        self.updates: list[Update] = []
        self._client = client
        self._task = asyncio.create_task(self._listen(client))

    async def _listen(self, client: StreamingClient) -> None:
        async for update in client:
            self.updates.append(update)

    @property
    def segments(self) -> list[Segment]:
        return segments_of(self.updates)

    @property
    def num_words(self) -> int:
        return sum(len(text) for text in texts_of(self.segments).values())

    @property
    def num_ended(self) -> int:
        """Utterances whose whole text is final."""
        return sum(segment.is_utterance_end for segment in self.segments)

    async def received(self, num_words: int) -> None:
        await eventually(lambda: self._task.done() or self.num_words >= num_words)

    async def shown(self, text: str) -> None:
        """Wait until all of a text is shown, final or not."""
        await eventually(lambda: self._task.done() or text in self.text)

    @property
    def text(self) -> str:
        """All text that a user sees."""
        open_text = self.updates[-1].text if self.updates else ""
        return "".join([*(segment.text for segment in self.segments), open_text])

    async def whole(self, within_s: float = 20) -> None:
        async with asyncio.timeout(within_s):
            await self._task

    async def end(self, pcm: bytes = b"", within_s: float = 20) -> None:
        """Send the rest of the audio, and wait for all of its text."""
        await self._client.send(pcm)
        await self._client.finish()
        await self.whole(within_s)

    def check(self, expected: dict[int, list[int]]) -> None:
        assert texts_of(self.segments) == expected
        assert [s.utterance for s in self.segments if s.is_utterance_end] == list(expected)
        starts = [segment.start_s for segment in self.segments]
        assert starts == sorted(starts)


async def follow(
    client: StreamingClient, target: Target, pcm: bytes, start: int = 0, end: int | None = None
) -> None:
    """Send audio from one sample to another; send more once the target has nothing to do.

    As if it were spoken to fast servers.
    """
    verifier, end = target.service._verifier, len(pcm) // 2 if end is None else end
    for at in range(start, end, FOLLOWED_SAMPLES):
        until = min(at + FOLLOWED_SAMPLES, end)
        await client.send(pcm[at * 2 : until * 2])

        def is_taken(until: int = until) -> bool:
            received = [session.recording.received_samples for session in verifier._sessions.values()]
            return max(received, default=0) >= until and not verifier.has_work

        await eventually(is_taken)


def live_client(
    address: str,
    *,
    step_ms: int = STEP_MS,
    confirm_every_ms: int | None = None,
    disabled: bool = False,
    endpointing: EndpointingOptions | None = None,
    **kwargs,
) -> StreamingClient:
    return StreamingClient(
        address,
        DecodingOptions.greedy(language="en"),
        live=LiveOptions(step_ms=step_ms, confirm_every_ms=confirm_every_ms),
        endpointing=None if disabled else endpointing or EndpointingOptions(),
        **kwargs,
    )
