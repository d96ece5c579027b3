"""A recording whose target is lost continues elsewhere, with the same text."""

import pytest

from specwhisper.errors import SpecWhisperError
from specwhisper.types import Mode
from specwhisper.wire import codec
from tests.nightly import NIGHTLY, mostly_nightly
from tests.rpc.draft.test_options import OPTIONS, check_transcribed
from tests.rpc.services import (
    all_free,
    audio_requests,
    draft_server,
    recording,
    refusal,
    streaming_config,
    target_server,
)

MODES = [Mode.TARGET_ONLY, Mode.SYNC, Mode.PIPELINED, Mode.FULL]
pytestmark = pytest.mark.usefixtures("fast_retries")


@pytest.mark.parametrize("mode", mostly_nightly(MODES[::-1]))
async def test_wherever_a_connection_breaks_the_text_is_the_same(mode):
    for first in range(0, 60, 4 if NIGHTLY else 12):
        cuts = [-1, -1, first, first + 1, -1, 0, 1, 2, 3]
        await check_transcribed(OPTIONS["detected language"], mode, cuts)


@pytest.mark.parametrize("name", mostly_nightly(list(OPTIONS)[::-1]))
async def test_every_option_outlives_the_target(name):
    cuts = [1, 5, 13, 0, 2, 21, 0, 0, 1, 1, 8, 34]
    _, num_cut = await check_transcribed(OPTIONS[name], Mode.FULL, cuts)
    assert num_cut > 3


async def test_audio_that_cannot_be_sent_ends_the_session(monkeypatch, caplog):
    """The session does not wait for the audio, nor look for another target."""
    given, write = [], codec.audio_chunk_to_proto

    def fails(chunk, **kwargs):
        given.append(chunk)
        if len(given) > 3:
            raise ArithmeticError("The encoder has failed.")
        return write(chunk, **kwargs)

    monkeypatch.setattr(codec, "audio_chunk_to_proto", fails)
    async with target_server() as target, draft_server(target.address) as server:
        error = await refusal(server, streaming_config(), *audio_requests(recording(40.0)))
        assert type(error) is SpecWhisperError
        await all_free(target, server)
    assert "The encoder has failed" in caplog.text and "target lost" not in caplog.text
