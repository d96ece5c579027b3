"""Programs of different protocols refuse each other, and resume points of others."""

import pytest

from specwhisper.errors import PairMismatch
from specwhisper.wire import PROTOCOL_VERSION, check_protocol
from specwhisper.wire.codec.resume_points import resume_point_from_proto
from specwhisper.wire.v1.resume_point_pb2 import ResumePointState
from specwhisper.wire.v1.transcription_pb2 import ResumePoint


def test_only_the_own_protocol_is_spoken():
    check_protocol("The draft server", 2, "9", here="this target", own=2)
    for version in (0, 1, 3):
        expected = rf"specwhisper 9\) speaks protocol {version}, this target .* speaks 2: install"
        with pytest.raises(PairMismatch, match=expected):
            check_protocol("The draft server", version, "9", here="this target", own=2)


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
