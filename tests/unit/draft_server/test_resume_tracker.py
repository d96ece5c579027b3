"""Candidates that no target has received are answered as lost; when a stream has a resume point that fits."""

from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import pytest

from specwhisper.errors import InvalidRequest, PairMismatch
from specwhisper.live import LivePosition
from specwhisper.types import ALL_BLOCKS, SAMPLE_RATE, Candidates, Commit, Window, WindowOpened
from specwhisper.wire import PROTOCOL_VERSION, codec
from specwhisper.wire.codec.resume_points import resume_point_from_proto
from specwhisper.wire.v1.resume_point_pb2 import ResumePointState
from specwhisper.wire.v1.transcription_pb2 import ResumePoint
from specwhisper_draft_server.link.progress import ResumeTracker
from specwhisper_draft_server.responses import StreamingResponses

OPENED = WindowOpened(Window(1, 0, 3_000, prompt=(1, 2), max_new_tokens=50))
NEXT = WindowOpened(Window(2, 2_800, 3_000, prompt=(1, 2), max_new_tokens=50))


def tracker_with_commit() -> ResumeTracker:
    """Return a tracker with two committed tokens and an answered first block."""
    tracker = ResumeTracker(max_ahead_tokens=16)
    tracker.observe(OPENED)
    tracker.observe(Commit(1, 0, (5, 6), answered_block=1, held=2))
    return tracker


def answered(tracker: ResumeTracker, opened: WindowOpened) -> list[tuple[int, int, int]]:
    """Open a window; return window, number and position of blocks answered as lost."""
    answers = [event for event in tracker.observe(opened) if isinstance(event, Commit)]
    assert not any(answer.tokens for answer in answers)
    return [(answer.window_id, answer.answered_block, answer.held) for answer in answers]


def test_candidates_are_lost_with_their_target():
    """Those in flight, and those that are sent until another target has opened the window."""
    tracker = tracker_with_commit()
    tracker.migrate()
    assert answered(tracker, OPENED) == [(1, ALL_BLOCKS, 2)]


def test_candidates_after_the_window_is_reopened_are_not_lost():
    tracker = tracker_with_commit()
    tracker.migrate()
    tracker.observe(OPENED)
    commit = Commit(1, 2, (7,), answered_block=2, held=3, is_final=True)
    assert tracker.observe(commit) == [commit]
    assert answered(tracker, NEXT) == []


def test_candidates_of_a_predicted_window_are_lost():
    tracker = tracker_with_commit()
    tracker.observe(Commit(1, 2, (9,), answered_block=1, held=3, is_final=True))
    tracker.migrate()
    assert answered(tracker, OPENED) == [], "the window is complete: no draft proposes tokens for it"
    assert tracker.observe(Commit(1, 2, (9,), is_final=True)) == [], "the token is known"
    assert answered(tracker, NEXT) == [(2, ALL_BLOCKS, 0)]


def test_a_target_that_repeats_a_last_token_is_sent_an_empty_block():
    """No draft proposes tokens for a window that is complete."""
    tracker = tracker_with_commit()
    tracker.observe(Commit(1, 2, (9,), answered_block=1, held=3, is_final=True))
    tracker.migrate()
    assert tracker.pop_pending_block() is None
    tracker.observe(OPENED)
    assert tracker.pop_pending_block() == Candidates(1, 2, 2, ())
    assert tracker.pop_pending_block() is None
    open_one = tracker_with_commit()
    open_one.migrate()
    open_one.observe(OPENED)
    assert open_one.pop_pending_block() is None, "the draft continues in the open window"


def test_a_detected_language_outlives_a_target_that_has_only_opened_its_window():
    tracker = tracker_with_commit()
    tracker.observe(Commit(1, 2, (9,), answered_block=1, held=3, is_final=True))
    tracker.observe(replace(NEXT, language_probs={"de": 0.9}))
    tracker.migrate()
    assert tracker.resume_point().language_probs == {"de": 0.9}


def test_a_session_without_a_window_begins_anew():
    tracker = ResumeTracker(max_ahead_tokens=16)
    tracker.migrate()
    assert tracker.resume() is None
    assert answered(tracker, OPENED) == []


def test_silence_has_one_as_often_as_its_session_reports():
    """At each multiple of five seconds: a session reports no other ones."""
    session = SimpleNamespace(target=SimpleNamespace(weights_digest="weights"))
    responses, sent = StreamingResponses(session, None, None), []
    for second in (0, 3, 6, 8, 10, 14, 15):
        session.resume_point = partial(LivePosition, second * SAMPLE_RATE)
        if (point := responses._resume_point(has_finals=False)) is not None:
            sent.append(point.start_sample // SAMPLE_RATE)
    assert sent == [0, 6, 10, 15]
    assert responses._resume_point(has_finals=True) is not None


def test_a_start_that_no_session_has_is_named():
    point = codec.resume_point_to_proto(LivePosition(), "weights")
    point.start_sample = 7
    with pytest.raises(InvalidRequest, match=r"start_sample is 7: .* multiple of 320"):
        codec.resume_point_from_proto(point, "weights", vocabulary_size=8)


@pytest.mark.parametrize(
    ("protocol", "weights", "advice"),
    [
        (PROTOCOL_VERSION + 1, "old", "install the same version on all draft servers."),
        (PROTOCOL_VERSION, "new", "keep a target with those until their sessions have ended."),
    ],
)
def test_a_resume_point_that_does_not_fit_says_what_to_do(protocol, weights, advice):
    state = ResumePointState(protocol_version=protocol, weights_digest=weights).SerializeToString()
    with pytest.raises(PairMismatch) as raised:
        resume_point_from_proto(ResumePoint(state=state), "old", vocabulary_size=8)
    assert str(raised.value).endswith(advice)
