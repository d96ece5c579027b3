"""Our responses to live audio, as Riva's clients read them."""

import pytest
from google.protobuf.duration_pb2 import Duration
from hypothesis import given
from hypothesis import strategies as st

from specwhisper.wire.v1 import transcription_pb2 as pb
from specwhisper_riva.replies import (
    MAX_FINAL_TOKENS,
    LiveReplies,
    alternative,
    recognize_response,
    with_trailing_space,
)

RECEIVED = Duration(seconds=2, nanos=500_000_000)


def final(text, *, ends=False, num_tokens=1, confidence=0.5):
    said = pb.SpeechRecognitionAlternative(
        transcript=text, tokens=range(num_tokens), confidence=confidence, words=[pb.WordInfo(word=text)]
    )
    return pb.SpeechRecognitionResult(
        alternatives=[said], is_final=True, stability=1, language_code="en", is_utterance_end=ends
    )


def interim(text, stability):
    said = pb.SpeechRecognitionAlternative(transcript=text)
    return pb.SpeechRecognitionResult(alternatives=[said], stability=stability)


def verified(text):
    return interim(text, 0.6)


def drafted(text):
    return interim(text, 0.1)


def sent(replies, *results):
    """Return the responses for one update: (stability, text) each, stability ``None`` for a final result."""
    response = pb.StreamingRecognizeResponse(results=results, audio_received=RECEIVED)
    answers = replies.take(response)
    assert all(result.audio_processed == 2.5 for answer in answers for result in answer.results)
    return [
        [
            (None if r.is_final else round(r.stability, 1), r.alternatives[0].transcript)
            for r in answer.results
        ]
        for answer in answers
    ]


kinds = st.tuples(st.sampled_from([final, verified, drafted]), st.sampled_from([" a", " b", "c", ""]))


@given(st.lists(st.tuples(st.lists(kinds, max_size=3), st.booleans()), max_size=12))
def test_text_that_is_agreed_on_only_grows(responses):
    replies, agreed = LiveReplies(interim_results=True), ""
    for results, ends in responses:
        finals = [final(text) for of, text in results if of is final] + [final("d", ends=True)] * ends
        others = [of(text) for of, text in results if of is not final]
        for answer in sent(replies, *finals, *others):
            ((stability, text),) = answer
            assert text.startswith(agreed)
            agreed = "" if stability is None else text if stability == 0.9 else agreed


LONG = MAX_FINAL_TOKENS
UTTERANCES = {
    "an interim result holds all text": [
        ([drafted(" He")], [[(0.1, "He")]]),
        ([verified(" Hello"), drafted(" their")], [[(0.1, "Hello their")]]),
        ([final(" Hello"), verified(" there")], [[(0.6, "Hello there")]]),
        ([drafted(" bye")], [[(0.1, "Hello bye")]]),
        ([], [[(0.9, "Hello")]]),
    ],
    "two final results": [
        ([final(" there")], [[(0.9, "there")]]),
        ([final(".", ends=True), drafted(" Next")], [[(None, "there. ")], [(0.1, "Next")]]),
    ],
    "a long one in parts": [
        ([final(" Hello", num_tokens=LONG)], [[(0.9, "Hello")]]),
        ([final(" there"), verified(" Bob")], [[(None, "Hello there ")], [(0.6, "Bob")]]),
        ([final(" Bob", ends=True)], [[(None, "Bob ")]]),
    ],
    "two that end together": [
        ([final(" One.", ends=True), final(" Two.", ends=True)], [[(None, "One. ")], [(None, "Two. ")]])
    ],
    "unchanged text": [
        ([verified(" Hello")], [[(0.6, "Hello")]]),
        ([verified(" Hello")], []),
        ([final(" Hello")], [[(0.9, "Hello")]]),
        ([], []),
    ],
    "a noise with interim text": [
        ([drafted(" Oh")], [[(0.1, "Oh")]]),
        ([], []),
        ([final("", ends=True)], [[(None, "")]]),
    ],
}


@pytest.mark.parametrize("name", UTTERANCES)
def test_utterances_become_responses(name):
    replies = LiveReplies(interim_results=True)
    for results, expected in UTTERANCES[name]:
        assert sent(replies, *results) == expected


def test_an_end_that_the_client_asked_for_is_answered_without_text():
    replies = LiveReplies(interim_results=True)
    replies.expect_end()
    assert sent(replies, final("", ends=True)) == [[(None, "")]]
    assert sent(replies, final("", ends=True)) == []


def test_without_interim_results_only_utterances_are_sent():
    replies = LiveReplies(interim_results=False)
    assert sent(replies, final(" Hello"), verified(" there")) == []
    assert sent(replies, final(" there.", ends=True)) == [[(None, "Hello there. ")]]


@pytest.mark.parametrize(
    "response",
    [
        pb.StreamingRecognizeResponse(model=pb.ModelInfo(target="large")),
        pb.StreamingRecognizeResponse(speech_event=pb.SPEECH_EVENT_BEGIN, speech_event_offset=RECEIVED),
    ],
)
def test_responses_without_a_counterpart_are_left_out(response):
    replies = LiveReplies(interim_results=True)
    sent(replies, final(" Hello"), drafted(" there"))
    assert replies.take(response) == []
    assert sent(replies, drafted(" there")) == []


def test_words_and_confidence_of_joined_results():
    pieces = [final(" One", num_tokens=3, confidence=1.0), final(" two.", num_tokens=1, confidence=0.2)]
    whole = alternative(pieces)
    assert whole.transcript == "One two. "
    assert [word.word for word in whole.words] == ["One", "two."]
    assert whole.confidence == pytest.approx(0.8)
    assert list(whole.language_code) == ["en"]
    assert [with_trailing_space(text) for text in ("こんにちは", "", " ")] == ["こんにちは", "", ""]


def test_a_recording_is_one_result():
    response = pb.RecognizeResponse(results=[final(" One."), final(" Two.")], audio_duration=RECEIVED)
    (result,) = recognize_response(response).results
    assert result.alternatives[0].transcript == "One. Two. "
    assert result.audio_processed == 2.5
    assert not recognize_response(pb.RecognizeResponse(audio_duration=RECEIVED)).results
