"""Releases understand each other if their protocol ranges overlap."""

from __future__ import annotations

import pytest

from specwhisper.errors import PairMismatch
from specwhisper.wire.codec.resume_points import resume_point_from_bytes
from specwhisper.wire.v1.checkpoint_pb2 import CheckpointState
from specwhisper.wire.versions import CLIENT, LINK, Protocols, check_protocol


@pytest.mark.parametrize(
    ("one", "other", "meet"),
    [
        (Protocols(2, 2), Protocols(2, 2), True),
        (Protocols(2, 2), Protocols(2), True),  # a release that stated no range
        (Protocols(3, 2), Protocols(2), True),
        (Protocols(3, 2), Protocols(2, 1), True),
        (Protocols(3, 3), Protocols(2), False),
        (Protocols(4, 3), Protocols(2, 1), False),
        (Protocols(5, 2), Protocols(9, 5), True),
        (Protocols(2, 2), Protocols(0), False),  # one that states no version
    ],
)
def test_peers_work_together_if_both_support_a_version(one, other, meet):
    assert one.meets(other) is other.meets(one) is meet


def test_a_refusal_names_all_versions():
    with pytest.raises(
        PairMismatch, match=r"specwhisper 9\) speaks protocol 7 to 8, this target .* speaks 2:"
    ):
        check_protocol("The draft server", Protocols(8, 7), "9", here="this target", own=LINK)


@pytest.mark.parametrize("own", [LINK, CLIENT])
def test_the_previous_release_is_understood(own):
    check_protocol("It", Protocols({LINK: 2, CLIENT: 1}[own]), "0", here="this", own=own)


@pytest.mark.parametrize(
    ("protocol", "weights", "advice"),
    [
        (
            LINK.version + 1,
            "old",
            "update the older draft server. Each release works with the one before it.",
        ),
        (LINK.version, "new", "keep a target with those until their sessions have ended."),
    ],
)
def test_a_checkpoint_that_does_not_fit_says_what_a_rolling_update_allows(protocol, weights, advice):
    state = CheckpointState(
        protocol_version=protocol, oldest_protocol_version=protocol, weights_digest=weights
    ).SerializeToString()
    with pytest.raises(PairMismatch) as raised:
        resume_point_from_bytes(state, "old", vocabulary_size=8)
    assert str(raised.value).endswith(advice)
