"""A live stream's counts continue over lost calls and changed settings."""

from collections.abc import Sequence

import pytest

from specwhisper.errors import TargetUnavailable
from specwhisper.types import Mode
from specwhisper.wire.v1 import transcription_pb2 as pb
from specwhisper_client.streaming import StreamingClient
from specwhisper_client.updates import ResumePoint
from specwhisper_draft_server.responses import duration
from tests.rpc.client_scripts import FINALS, MODEL, ScriptedTranscription, serving

pytestmark = pytest.mark.usefixtures("fast_retries")


class Calls(ScriptedTranscription):
    """Sends each call its own responses; then all but the last fail, or hang."""

    def __init__(self, *calls: Sequence[pb.StreamingRecognizeResponse], hangs: bool = False) -> None:
        super().__init__(reads_everything=False)
        self._calls = list(calls)
        self._fails = not hangs
        self._waits = hangs

    async def StreamingRecognize(self, request_iterator, context):
        self._responses, *self._calls = self._calls
        is_last = not self._calls
        self._error = None if is_last or not self._fails else TargetUnavailable("The target is gone.")
        self._hangs = self._waits and not is_last
        async for response in super().StreamingRecognize(request_iterator, context):
            yield response


def response(
    received_s: float, position_s: float = 0.0, *, num_ends: int = 0, **counts
) -> pb.StreamingRecognizeResponse:
    return pb.StreamingRecognizeResponse(
        statistics=pb.SpeculationStatistics(**counts),
        audio_received=duration(received_s),
        resume_point=pb.ResumePoint(start_sample=int(position_s * 16_000), num_ends=num_ends),
    )


NAMED = pb.StreamingRecognizeResponse(model=MODEL)
SPEECH = pb.StreamingRecognizeResponse(speech_event=pb.SPEECH_EVENT_BEGIN, speech_event_offset=duration(2.5))
FIRST = (
    NAMED,
    response(1.0, num_forwards=2, num_verified=4),
    response(
        3.0, 2.0, num_forwards=5, num_verified=9, acceptance_histogram=[1, 2], min_round_trip_ns=7, gamma=4
    ),
)
SECOND = (
    NAMED,
    SPEECH,
    response(2.5, 2.0, num_forwards=1),  # it receives again the audio that was not final
    response(4.0, 4.0, num_forwards=6, num_verified=1, acceptance_histogram=[0, 0, 3], min_round_trip_ns=9),
)


def check_totals(updates, stream: StreamingClient) -> None:
    counted = [update.statistics for update in updates if update.statistics is not None]
    assert [each.num_forwards for each in counted] == [2, 5, 6, 11]
    assert [each.num_verified for each in counted] == [4, 9, 9, 10]
    assert [update.received_s for update in updates] == [1.0, 3.0, 3.0, 3.0, 4.0]
    assert (stream.statistics, stream.received_s) == (counted[-1], 4.0)
    assert stream.statistics.acceptance_histogram == [1, 2, 3]
    # A call over another route begins without the measurements of the last.
    assert [each.gamma for each in counted] == [0, 4, 0, 0]
    assert [each.min_round_trip_ns for each in counted] == [0, 7, 7, 9]


@pytest.mark.parametrize("is_lost", [True, False], ids=["a lost connection", "changed settings"])
async def test_another_call_loses_no_count(is_lost):
    server = Calls(FIRST, SECOND, hangs=not is_lost)
    async with serving(server) as address, StreamingClient(address, with_statistics=is_lost) as stream:
        await stream.finish()
        updates = []
        async for update in stream:
            updates.append(update)
            if not is_lost and len(updates) == 2:
                stream.change(mode=Mode.TARGET_ONLY)
        assert stream.num_reconnects == is_lost
    assert server.config.with_statistics == is_lost
    check_totals(updates, stream)


async def test_the_text_shown_stays_until_the_next_server_has_some():
    def shown(*texts: str) -> pb.StreamingRecognizeResponse:
        results = [
            pb.SpeechRecognitionResult(alternatives=[pb.SpeechRecognitionAlternative(transcript=text)])
            for text in texts
        ]
        return pb.StreamingRecognizeResponse(results=results, audio_received=duration(1))

    server = Calls([NAMED, shown(" one two")], [NAMED, SPEECH, shown(" one"), shown()])
    async with serving(server) as address, StreamingClient(address) as stream:
        await stream.finish()
        texts = [update.text async for update in stream]
    assert texts == [" one two", " one two", " one", ""]


async def test_a_response_that_changes_the_models_keeps_its_text():
    """The draft of a running stream may fail; the response that reports it has text, too."""
    target_only = pb.ModelInfo(target="large", target_weights_digest="abc", mode="MODE_TARGET_ONLY")
    changed = pb.StreamingRecognizeResponse(
        model=target_only, results=[FINALS[0]], audio_received=duration(2)
    )
    async with serving(Calls([NAMED, changed])) as address, StreamingClient(address) as stream:
        await stream.finish()
        [update] = [update async for update in stream]
        assert [segment.text for segment in update.segments] == [" Hello there."]
        assert (stream.model.mode, stream.model.draft) == (Mode.TARGET_ONLY, "")


async def test_the_next_server_gets_the_ends_that_are_not_answered():
    class Listening(Calls):
        async def StreamingRecognize(self, request_iterator, context):
            is_last, self.audio, self.ends = len(self._calls) == 1, b"", []
            async for request in request_iterator:
                self.audio += request.audio_content
                if request.ping:
                    yield pb.StreamingRecognizeResponse(ping=request.ping)
                if request.HasField("end_utterance"):
                    self.ends.append(len(self.audio) // 2)
                    if not is_last and len(self.ends) == 2:
                        break
            async for each in super().StreamingRecognize(nothing(), context):
                yield each

    async def nothing():
        for request in ():
            yield request

    server = Listening([NAMED, response(2.0, 1.0, num_ends=1)], [NAMED, response(3.0, 3.0)])
    async with serving(server) as address, StreamingClient(address) as stream:
        for _ in range(2):
            await stream.send(bytes(32_000))
            stream.end_utterance()
        updates = aiter(stream)
        assert (await anext(updates)).received_s == 2.0
        assert server.ends == [16_000, 32_000]
        await stream.send(bytes(32_000))
        await stream.finish()
        assert [update.received_s async for update in updates] == [3.0]
    assert len(server.audio) == 64_000
    assert server.ends == [16_000]  # from its resume point on


async def test_a_stream_that_begins_at_a_resume_point_counts_the_audio_before_it_as_received():
    async with serving(Calls([NAMED, SPEECH])) as address:
        async with StreamingClient(address, resume_point=ResumePoint(b"", 32_000)) as stream:
            await stream.finish()
            assert [update.received_s async for update in stream] == [2.0]
