"""A target reports NOT_SERVING while its engine hangs, and SERVING after it."""

from specwhisper.engine import target_engine
from specwhisper.errors import TargetUnavailable
from specwhisper.wire.status import error_from_rpc
from specwhisper.wire.v1 import verification_pb2 as pb
from tests.rpc.gated import Gated
from tests.rpc.health import NOT_SERVING, SERVING, until
from tests.rpc.hostile import hello, session, whole
from tests.rpc.services import VERIFICATION, all_free, error_of, recording, target_alone, target_server


async def test_health_follows_an_engine_that_hangs_and_continues(fast_health_checks, caplog):
    caplog.set_level("INFO")
    model = Gated()
    async with target_server(model, reports_engine_health=True) as target:
        await until(target.address, SERVING, VERIFICATION)
        async with session(target, hello(), *whole(recording(1.0))) as waiting:
            await until(target.address, NOT_SERVING, VERIFICATION)
            model.gate.set()
            await until(target.address, SERVING, VERIFICATION)
            assert await waiting.finish() == target_alone(1.0).window_tokens
        await all_free(target)
    assert {"engine does not answer", "engine answers again"} <= set(caplog.messages)


async def test_a_hanging_encoder_is_noticed_while_the_engine_answers(fast_health_checks, monkeypatch):
    monkeypatch.setattr(target_engine, "HANGS_AFTER_S", 0.2)
    model = Gated("encode")
    async with target_server(model, reports_engine_health=True) as target:
        await until(target.address, SERVING, VERIFICATION)
        async with session(target, hello(), *whole(recording(1.0))) as waiting:
            await until(target.address, NOT_SERVING, VERIFICATION)
            error = error_from_rpc(await waiting.error(), "the target")
            assert type(error) is TargetUnavailable
        assert type(await error_of(target.stub.Locate(pb.LocateRequest()))) is TargetUnavailable
        model.gate.set()
        await until(target.address, SERVING, VERIFICATION)
        async with session(target, hello(), *whole(recording(1.0))) as later:
            assert await later.finish() == target_alone(1.0).window_tokens
        await all_free(target)
