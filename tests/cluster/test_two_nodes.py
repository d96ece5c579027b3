"""A cluster of two nodes with an address each: replicas listen where other nodes reach them."""

import asyncio
from collections.abc import Iterator

import pytest
import ray
from ray import serve
from ray.cluster_utils import Cluster
from ray.serve.schema import ServeDeploySchema

from specwhisper.rpc.addresses import split_address
from specwhisper.rpc.channels import OPEN
from specwhisper_client.resolving import list_draft_servers
from specwhisper_deploy.command import addresses, deploy, wait_until_running
from specwhisper_deploy.forced_end import Signals
from tests.cluster.conftest import START_TIMEOUT_S, application, serve_config, stop_ray

SECOND = "127.0.0.2"  # on Linux, every address of 127.0.0.0/8 is this machine

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(400)]


@pytest.fixture(scope="module")
def nodes() -> Iterator[set[str]]:
    """The addresses of a cluster's nodes: this machine's, and another."""
    stop_ray()
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 4, "include_dashboard": False})
    try:
        cluster.add_node(num_cpus=4, node_ip_address=SECOND)
        ray.init(address=cluster.address, namespace="serve", log_to_driver=False)
        yield {node["NodeManagerAddress"] for node in ray.nodes()}
        serve.shutdown()
    finally:
        ray.shutdown()
        cluster.shutdown()


def drafts(model: str, **flags: object) -> ServeDeploySchema:
    """Configure a draft server on each node, and their locator."""
    args = {"draft": {"draft-model": model, "port": 0} | flags, "locator": {"port": 0}}
    one_on_each = {"name": "Draft", "num_replicas": 2, "max_replicas_per_node": 1}
    return serve_config(application("drafts", args, one_on_each))


def test_replicas_advertise_the_address_of_their_node(nodes, checkpoints):
    assert len(nodes) == 2
    schema = drafts(str(checkpoints[1]), insecure=True)
    deploy(schema)
    wait_until_running(schema, Signals(), START_TIMEOUT_S)
    locator = addresses(schema)["drafts"].removeprefix("locator:///")
    listed = asyncio.run(list_draft_servers(locator, OPEN))
    assert {split_address(address)[0] for address in listed} == nodes
    assert split_address(locator)[0] in nodes
