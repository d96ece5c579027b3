"""Two nodes with addresses of their own, as two machines have: replicas say where others reach them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
import ray
import ray.util
from ray import serve
from ray.cluster_utils import Cluster
from ray.serve.schema import ServeDeploySchema

from specwhisper.errors import TargetUnavailable
from specwhisper.rpc.addresses import split_address
from specwhisper.rpc.channels import OPEN
from specwhisper_client.resolving import ask_locator
from specwhisper_deploy.command import Signals, addresses, deploy, wait_until_running
from tests.cluster.clients import WAIT_S

SECOND = "127.0.0.2"  # Linux answers there as well

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.timeout(400),
]


@pytest.fixture(scope="module")
def machines() -> Iterator[set[str]]:
    """Run a node at this machine's address and one at another."""
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
    on_each = {"num_replicas": 2, "max_replicas_per_node": 1, "ray_actor_options": {"num_cpus": 0.1}}
    application = {
        "name": "drafts",
        "import_path": "specwhisper_deploy.serve_app:drafts",
        "route_prefix": None,
        "args": {"draft": {"draft-model": model, "port": 0} | flags, "locator": {"port": 0}},
        "deployments": [{"name": "Draft"} | on_each],
    }
    config = {"proxy_location": "Disabled", "applications": [application]}
    return ServeDeploySchema.model_validate(config)


def test_each_replica_says_where_its_node_is_reached(machines, checkpoints):
    assert len(machines) == 2
    schema = drafts(str(checkpoints[1]), insecure=True)
    deploy(schema)
    wait_until_running(schema, Signals(), WAIT_S)
    locator = addresses(schema)["drafts"].removeprefix("locator:///")
    listed = asyncio.run(ask_locator(locator, OPEN))
    assert {split_address(address)[0] for address in listed} == machines
    assert split_address(locator)[0] in machines


def test_a_server_that_is_not_fit_for_a_network_is_refused_with_a_sentence(machines, checkpoints):
    schema = drafts(str(checkpoints[1]))
    deploy(schema)
    with pytest.raises(TargetUnavailable, match=r"cluster has 2 machines, .* needs encryption and tokens"):
        wait_until_running(schema, Signals(), WAIT_S)
