"""When a stream has a resume point."""

from types import SimpleNamespace

import pytest

from specwhisper.errors import InvalidRequest
from specwhisper.live import LivePosition
from specwhisper.types import SAMPLE_RATE
from specwhisper.wire import codec
from specwhisper_draft_server.responses import ResumePoints


def test_silence_has_one_as_often_as_its_session_reports():
    """At each multiple of five seconds: a session reports no other ones."""
    session = SimpleNamespace(target=SimpleNamespace(weights_digest="weights"))
    points, sent = ResumePoints(session), []
    for second in (0, 3, 6, 8, 10, 14, 15):
        session.position = LivePosition(second * SAMPLE_RATE)
        if (point := points.take(has_finals=False)) is not None:
            sent.append(point.start_sample // SAMPLE_RATE)
    assert sent == [0, 6, 10, 15]
    assert points.take(has_finals=True) is not None


def test_a_start_that_no_session_has_is_named():
    point = codec.resume_point_to_proto(LivePosition(), "weights")
    point.start_sample = 7
    with pytest.raises(InvalidRequest, match=r"start_sample is 7: .* multiple of 320"):
        codec.resume_point_from_proto(point, "weights", vocabulary_size=8)
