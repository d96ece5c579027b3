"""Draft servers refuse targets of another protocol before audio; tests/rpc/target has the reverse."""

import pytest

import specwhisper_draft_server.link.link
import specwhisper_target_server.service
from specwhisper import __version__
from specwhisper.errors import PairMismatch
from specwhisper.rpc.channels import with_true_status
from specwhisper.wire import PROTOCOL_VERSION
from specwhisper.wire.v1 import transcription_pb2 as pb
from tests.rpc.scrapes import collected, value
from tests.rpc.services import (
    RATE,
    Draft,
    Target,
    all_free,
    audio_requests,
    error_of,
    is_one_sentence,
    recording,
    running_pair,
    streaming_config,
)

OTHERS = [PROTOCOL_VERSION - 1, PROTOCOL_VERSION + 1]
SECOND = recording(1.0)


def audio_received_s(target: Target) -> float:
    return value(collected(target.service.metrics.collected), "specwhisper_target_audio_seconds_total")


async def refusals(draft: Draft) -> list[Exception]:
    """Return the errors of both of a client's calls."""
    config = pb.RecognitionConfig(encoding="AUDIO_ENCODING_LINEAR16", sample_rate_hertz=RATE)
    requests = iter([streaming_config(), *audio_requests(SECOND)])
    return [
        await error_of(draft.stub.Recognize(pb.RecognizeRequest(config=config, audio=SECOND))),
        await error_of(with_true_status(draft.stub.StreamingRecognize(requests))),
    ]


@pytest.mark.parametrize("version", OTHERS)
@pytest.mark.parametrize("other", ["target", "draft server"])
async def test_a_draft_server_refuses_targets_of_another_protocol(other, version, monkeypatch):
    changed = specwhisper_target_server.service if other == "target" else specwhisper_draft_server.link.link
    monkeypatch.setattr(changed, "PROTOCOL_VERSION", version)
    versions = (version, PROTOCOL_VERSION)
    of_target, of_draft = versions if other == "target" else versions[::-1]
    async with running_pair() as (target, draft):
        for error in await refusals(draft):
            assert type(error) is PairMismatch
            assert is_one_sentence(error)
            assert (
                f"Target {target.address} (specwhisper {__version__}) speaks protocol {of_target}, this "
                f"draft server (specwhisper {__version__}) speaks {of_draft}"
            ) in str(error)
        assert audio_received_s(target) == 0
        await all_free(target, draft)
