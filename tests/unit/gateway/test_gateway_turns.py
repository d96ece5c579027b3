"""Events of a turn: each item is committed and completed exactly once."""

from specwhisper.types import Segment, VoiceEvent
from specwhisper_client.updates import Update
from specwhisper_gateway.realtime.turn import Items, RealtimeTurn

STARTED, STOPPED, COMMITTED = (
    f"input_audio_buffer.{name}" for name in ("speech_started", "speech_stopped", "committed")
)
COMPLETED = "conversation.item.input_audio_transcription.completed"
INTERIM = "conversation.item.input_audio_transcription.interim"


def speech(event, at_s, stable="", tentative=""):
    return Update((), "", stable, tentative, speech=event, speech_at_s=at_s)


def final_text(text, start_s, end_s, *, is_last=False):
    segment = Segment(start_s, end_s, (1,), text, 0.5, is_utterance_end=is_last)
    return Update((segment,))


def events_of(turn, *updates, end_s=9.0):
    events = [event for update in updates for event in turn.on_update(update)]
    return [*events, *turn.end(end_s)]


def kinds(events, *wanted):
    return [event["type"] for event in events if event["type"] in wanted]


BEGIN, END = VoiceEvent.BEGIN, VoiceEvent.END


def test_a_resumed_stream_repeats_no_event():
    events = events_of(
        RealtimeTurn(Items(), 0.0, detects_speech=True),
        *(speech(BEGIN, 1.0), final_text(" One", 1.0, 1.5), speech(END, 2.0), speech(BEGIN, 3.0)),
        # The connection was lost: the stream resumes after the last final word.
        *(speech(BEGIN, 1.5), speech(END, 2.0), final_text(" two.", 1.5, 2.0, is_last=True)),
        *(speech(BEGIN, 3.0), speech(END, 4.0), final_text(" Three.", 3.0, 4.0, is_last=True)),
    )
    assert kinds(events, STARTED, STOPPED, COMPLETED) == [
        *(STARTED, STOPPED, STARTED),
        *(COMPLETED, STOPPED, COMPLETED),
    ]
    assert [event["transcript"] for event in events if event["type"] == COMPLETED] == ["One two.", "Three."]


def test_an_utterance_whose_beginning_was_lost_has_all_events():
    events = events_of(
        RealtimeTurn(Items(), 10.0, detects_speech=True), final_text(" One.", 1.0, 1.5, is_last=True)
    )
    assert kinds(events, STARTED, STOPPED, COMMITTED, COMPLETED) == [STARTED, STOPPED, COMMITTED, COMPLETED]
    assert events[0]["audio_start_ms"] == 11_000


def test_an_utterance_that_is_open_at_the_end_is_completed():
    events = events_of(RealtimeTurn(Items(), 0.0, detects_speech=True), speech(BEGIN, 1.0), end_s=2.0)
    assert kinds(events, STARTED, STOPPED, COMMITTED, COMPLETED) == [STARTED, STOPPED, COMMITTED, COMPLETED]
    assert events[-1]["transcript"] == ""
    assert events[-1]["usage"]["seconds"] == 1.0


def test_speech_has_no_events_if_the_client_commits():
    turn = RealtimeTurn(Items(), 0.0, detects_speech=False)
    first = [
        *turn.on_update(speech(BEGIN, 0.0)),
        *turn.on_update(final_text(" One.", 0.0, 1.0, is_last=True)),
    ]
    assert kinds(first, STARTED, STOPPED, COMMITTED, COMPLETED) == []
    rest = [*turn.commit(2.0), *turn.on_update(final_text(" Two.", 1.0, 2.0, is_last=True)), *turn.end(2.0)]
    assert kinds(rest, COMMITTED, COMPLETED) == [COMMITTED, COMPLETED]
    assert rest[-1]["transcript"] == "One. Two."
    assert {event["item_id"] for event in (first[0], rest[0], rest[-1])} == {rest[-1]["item_id"]}


def test_an_utterance_is_committed_as_soon_as_the_client_commits():
    turn = RealtimeTurn(Items(), 0.0, detects_speech=True)
    begun = [*turn.on_update(speech(BEGIN, 1.0)), *turn.commit(2.0)]
    assert kinds(begun, STARTED, STOPPED, COMMITTED) == [STARTED, STOPPED, COMMITTED]
    later = events_of(turn, speech(END, 1.9), final_text(" One.", 1.0, 1.9, is_last=True), end_s=2.0)
    assert kinds(later, STOPPED, COMMITTED, COMPLETED) == [COMPLETED]


def test_a_commit_of_silence_is_completed_without_text():
    turn = RealtimeTurn(Items(), 0.0, detects_speech=True)
    assert list(turn.commit(2.0)) == []  # an utterance may have begun that is not reported yet
    assert kinds(turn.end(2.0), COMMITTED, COMPLETED) == [COMMITTED, COMPLETED]


def interim(stable, tentative):
    return Update((), stable_text=stable, tentative_text=tentative)


def test_interim_text_belongs_to_the_item_that_is_written():
    events = events_of(
        RealtimeTurn(Items(), 0.0, detects_speech=True, interim_results=True),
        *(interim(" too", " early"), speech(BEGIN, 1.0), interim("", " On"), interim("", " On")),
        *(
            interim(" One", " two"),
            speech(END, 2.0, " One", " two"),
            final_text(" One two.", 1.0, 2.0, is_last=True),
        ),
        *(speech(BEGIN, 3.0), interim(" Three.", ""), final_text(" Three.", 3.0, 4.0, is_last=True)),
    )
    first, second = (event["item_id"] for event in events if event["type"] == COMPLETED)
    shown = [event for event in events if event["type"] == INTERIM]
    assert [(event["item_id"], event["stable"], event["tentative"]) for event in shown] == [
        (first, "", " On"),
        (first, " One", " two"),
        (second, " Three.", ""),
    ]


def test_interim_text_ends_with_an_empty_event_if_the_client_commits():
    turn = RealtimeTurn(Items(), 0.0, detects_speech=False, interim_results=True)
    events = events_of(turn, interim("", ""), interim(" One", ""), final_text(" One.", 0.0, 1.0))
    assert [event["stable"] for event in events if event["type"] == INTERIM] == [" One", ""]
    assert len({event["item_id"] for event in events if "item_id" in event}) == 1


def test_items_of_several_turns_are_linked():
    items = Items()
    for turn in (
        RealtimeTurn(items, 0.0, detects_speech=False),
        RealtimeTurn(items, 1.0, detects_speech=False),
    ):
        before = items.last_id
        committed = next(iter(turn.commit(1.0)))
        assert committed["previous_item_id"] == before
        assert items.last_id == committed["item_id"]


def test_committed_utterances_are_completed_after_the_rest_is_discarded():
    turn = RealtimeTurn(Items(), 0.0, detects_speech=True, interim_results=True)
    begun = [*turn.on_update(speech(BEGIN, 1.0)), *turn.on_update(speech(END, 2.0))]
    begun += turn.on_update(speech(BEGIN, 3.0))
    assert turn.discard()
    later = events_of(
        *(turn, Update((), "One"), final_text(" One.", 1.0, 2.0, is_last=True)),
        *(speech(END, 4.0), Update((), "Two"), final_text(" Two.", 3.0, 4.0, is_last=True)),
    )
    assert kinds(begun, STARTED, COMMITTED) == [STARTED, COMMITTED, STARTED]
    assert kinds(later, STARTED, STOPPED, COMMITTED, COMPLETED, INTERIM) == [INTERIM, COMPLETED]
    assert not turn.discard()
