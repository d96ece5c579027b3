"""Targets of two checkpoints on one cluster, each with a locator of its own, encryption and tokens."""

import asyncio
from pathlib import Path

import grpc
import grpc.aio
import pytest
import trustme

from experiments.common.models.checkpoints import Shape, save_checkpoint
from specwhisper.model.checkpoints.checkpoint import load_checkpoint
from specwhisper.rpc.channels import Credentials, open_channel
from specwhisper.rpc.tls import ClientTls
from specwhisper.wire.v1 import verification_pb2 as pb
from specwhisper.wire.v1 import verification_pb2_grpc
from specwhisper_deploy.command import deploy
from tests.certificates import save
from tests.cluster.clients import Client, expected
from tests.cluster.conftest import application, are_running, serve_config, until
from tests.rpc.services import draft_server

TOKEN = "0123456789abcdef-cluster"

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(400)]


def targets(name: str, model: Path, port: int, security: dict[str, object]) -> dict[str, object]:
    flags = {"model": str(model), "threads": 1, "max-sessions": 4, "metrics-port": 0, **security}
    args = {"target": flags, "locator": {"port": port}}
    return application("targets", args, {"name": "Target", "num_replicas": 1}, name)


async def test_each_locator_leads_to_its_own_targets_and_needs_a_token(
    shared_ray, tmp_path, checkpoints, unused_tcp_port_factory
):
    target, draft = checkpoints
    other = save_checkpoint(Shape(d_model=32, max_target_positions=100, seed=7), tmp_path / "other")
    certificate = save(trustme.CA(), tmp_path, "server")
    (tmp_path / "tokens").write_text(f"anna {TOKEN}\n")
    security: dict[str, object] = {
        "grpc-use-ssl": True,
        "grpc-server-cert": str(certificate.certificate),
        "grpc-server-key": str(certificate.key),
        "tokens-file": str(tmp_path / "tokens"),
    }
    ports = [unused_tcp_port_factory() for _ in range(2)]
    deploy(
        serve_config(targets("one", target, ports[0], security), targets("other", other, ports[1], security))
    )
    await until(lambda: are_running("one", "other"))
    tls = ClientTls(tmp_path / "roots.pem")
    texts = []
    for model, port in zip((target, other), ports, strict=True):
        locator = f"127.0.0.1:{port}"
        async with open_channel(locator, Credentials(tls)) as channel:
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await verification_pb2_grpc.VerificationStub(channel).Locate(pb.LocateRequest())
            assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED
        with_token = Credentials(tls, TOKEN)
        async with draft_server(
            locator, None, load_checkpoint(str(draft)), target_credentials=with_token
        ) as server:
            clients = [Client(server, seed) for seed in range(2)]
            await asyncio.gather(*(client.begin() for client in clients))
            results = await asyncio.gather(*(client.finish() for client in clients))
            assert results == [expected((model, draft), client.seed) for client in clients]
            texts.append(results)
    assert texts[0] != texts[1]
