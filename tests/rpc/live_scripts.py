"""Scripted responses to live audio, for tests of the gateway."""

from specwhisper.wire.v1 import transcription_pb2 as pb
from specwhisper_draft_server.responses import duration
from tests.rpc.client_scripts import MODEL, STATISTICS, final, interim


def speech(event: str, at_s: float, text=()) -> pb.StreamingRecognizeResponse:
    """Return a response with a speech event, and the open text."""
    return pb.StreamingRecognizeResponse(
        results=[interim(*each) for each in text],
        speech_event=f"SPEECH_EVENT_{event}",
        speech_event_offset=duration(at_s),
    )


def said(
    text: str, start_s: float, end_s: float, utterance: int = 1, *, is_last: bool = False, ahead=()
) -> pb.StreamingRecognizeResponse:
    """Return a response with final text of an utterance, and interim text after it."""
    result = final(start_s, end_s, text, (1,), 0.5)
    result.utterance, result.is_utterance_end = utterance, is_last
    return pb.StreamingRecognizeResponse(
        results=[result, *(interim(*each) for each in ahead)],
        statistics=STATISTICS,
        audio_received=duration(end_s + 0.5),
    )


OPEN = ((" their", 0.9), (" bye", 0.1))
TWO_UTTERANCES = (
    pb.StreamingRecognizeResponse(model=MODEL),
    speech("BEGIN", 0.1),
    said(" Hello", 0.1, 0.5, ahead=OPEN),
    speech("END", 1.2, OPEN),
    speech("BEGIN", 1.3, OPEN),
    said(" there.", 0.5, 1.2, is_last=True),
    said(" Bye.", 1.3, 2.0, 2, is_last=True),
)
EVERYTHING = (pb.StreamingRecognizeResponse(model=MODEL), said(" Hello there.", 0.0, 2.0, is_last=True))
