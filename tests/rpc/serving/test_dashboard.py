"""Dashboard and alerts query only metrics that servers export."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml

from specwhisper.speculation.statistics import SpeculationStatistics
from specwhisper_gateway.metrics import GatewayMetrics
from tests.rpc.services import recording, running_pair, stream

FOLDER = Path(__file__).parents[3] / "deploy" / "observability"
DASHBOARD = json.loads((FOLDER / "grafana-dashboard.json").read_text())
RULES = [
    rule for group in yaml.safe_load((FOLDER / "alerts.yml").read_text())["groups"] for rule in group["rules"]
]
RECORDED = {rule["record"] for rule in RULES if "record" in rule}
PROMETHEUS_METRICS = {"up"}
ADDED_LABELS = {"job", "instance", "le"}
VARIABLES = {"$__rate_interval": "5m", "$instance": ".*"}  # as Grafana replaces them

Names = dict[str, set[str]]  # labels by name


async def names_exported() -> Names:
    """Return the metrics of all servers after a session, including those that are 0."""
    async with running_pair(parity_check_every=1) as (target, draft):
        await stream(draft, recording(1.0), mode="MODE_SYNC")
        gateway = GatewayMetrics()
        gateway.count(SpeculationStatistics(), 1.0)
        registries = [target.service.metrics.collected, draft.service.metrics.collected, gateway.collected]
        samples = [s for each in registries for family in each.collect() for s in family.samples]
    names: Names = {}
    for sample in samples:
        names.setdefault(sample.name, set()).update(sample.labels)
    for registry in registries:  # counters by a label that have no value yet
        for metric, its_names in registry._collector_to_names.items():
            for name in its_names:
                names.setdefault(name, set()).update(getattr(metric, "_labelnames", ()))
    return names


def selectors(query: str) -> list[promql_parser.VectorSelector]:
    """Return every metric that a query reads; an invalid query raises."""
    for variable, value in VARIABLES.items():
        query = query.replace(variable, value)
    found: list[promql_parser.VectorSelector] = []

    def note(node: promql_parser.Expr) -> None:
        if isinstance(node, promql_parser.VectorSelector):
            found.append(node)

    promql_parser.walk(promql_parser.parse(query), note)
    return found


def wrong_in(query: str, names: Names) -> list[str]:
    """Return what a query selects but no server exports."""
    wrong = []
    for selector in selectors(query):
        if selector.name in PROMETHEUS_METRICS | RECORDED:
            continue
        if selector.name not in names:
            wrong.append(f"no server exports {selector.name}")
            continue
        labels = {matcher.name for matcher in selector.matchers.matchers}
        wrong += [f"{selector.name} has no {label}" for label in labels - names[selector.name] - ADDED_LABELS]
    return wrong


def panels() -> list[dict[str, Any]]:
    return [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]


async def test_every_query_reads_exported_metrics():
    names = await names_exported()
    queries = [target["expr"] for panel in panels() for target in panel["targets"]]
    assert len(queries) > 50
    wrong = [
        fault for query in [*queries, *(rule["expr"] for rule in RULES)] for fault in wrong_in(query, names)
    ]
    assert wrong == []
    variables = re.compile(r"\$\w+")
    used = {name for query in queries for name in variables.findall(query)}
    assert used <= VARIABLES.keys()


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
@pytest.mark.parametrize(
    "arguments",
    [
        "check rules alerts.yml",
        "test rules alerts.test.yml",
        "check config --syntax-only prometheus.yml",
        "check config --syntax-only prometheus.kubernetes.yml",
    ],
)
def test_prometheus_accepts_the_files(arguments):
    run = subprocess.run(["promtool", *arguments.split()], cwd=FOLDER, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr
