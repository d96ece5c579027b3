"""Sessions of a target engine in this process."""

from functools import partial

import pytest

from experiments.common.models.scripted import ScriptedModel, recording
from specwhisper.engine.target_engine import TargetEngine
from specwhisper.errors import InvalidRequest
from specwhisper.options import DecodingOptions
from specwhisper.types import AudioChunk, Finished, Limits, Mode


async def test_an_id_in_use_is_refused_and_its_session_continues():
    engine = TargetEngine(ScriptedModel(2), limits=Limits(max_sessions=2))
    options = DecodingOptions.greedy(language="en")
    async with engine.session("one", Mode.TARGET_ONLY, options) as events:
        with pytest.raises(InvalidRequest, match="Session 'one' exists already"):
            async with engine.session("one", Mode.TARGET_ONLY, options):
                pass
        chunk = AudioChunk(0, recording(1.0), is_last=True)
        engine.thread.post(partial(engine.verifier.submit, "one", chunk))
        while not isinstance(await events.get(), Finished):
            pass
    async with engine.session("one", Mode.TARGET_ONLY, options):
        pass  # the id can be used again
    await engine.stop()
