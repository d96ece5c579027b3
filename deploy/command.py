"""``specwhisper serve``: targets, draft servers and gateway under Ray, until a signal."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep
from typing import Any

# Read when Ray is imported. Whoever reaches its ports can have it run anything.
os.environ.setdefault("RAY_AUTH_MODE", "token")
os.environ.setdefault("RAY_DEDUP_LOGS", "0")  # what replicas log is no repetition

import ray
import yaml
from pydantic import ValidationError
from ray import serve
from ray.serve.context import _get_global_client
from ray.serve.schema import ApplicationStatus, ServeDeploySchema
from rich.console import Console

from specwhisper.errors import InvalidRequest, SpecWhisperError, TargetUnavailable

DEMO = Path(__file__).with_name("serve.yaml")
START_TIMEOUT_S = 600.0  # large models take minutes to load
LOOK_S = 0.25


def read_schema(path: Path) -> ServeDeploySchema:
    """Read a configuration file of Serve."""
    try:
        return ServeDeploySchema.model_validate(yaml.safe_load(path.read_text()))
    except OSError as error:
        raise InvalidRequest(f"{path} cannot be read: {error.strerror}.") from error
    except (yaml.YAMLError, ValidationError) as error:
        raise InvalidRequest(f"{path} is no configuration of Ray Serve: {error}") from error


def deploy(schema: ServeDeploySchema) -> None:
    """Have Serve run what a file says; replicas that it does not change go on.

    That is what ``serve run FILE`` does. Ray's documented calls would start every replica anew.
    """
    serve.start(proxy_location=schema.proxy_location, logging_config=schema.logging_config)
    _get_global_client().deploy_apps(schema, _blocking=False)


def wait_until_running(
    schema: ServeDeploySchema, stopped: threading.Event, timeout_s: float = START_TIMEOUT_S
) -> None:
    """Wait until all applications run, or nobody wants them to; an error tells which one does not."""
    until_s = monotonic() + timeout_s
    names = {application.name for application in schema.applications}
    while not stopped.wait(LOOK_S):
        told = serve.status().applications
        for name in names & told.keys():
            if told[name].status == ApplicationStatus.DEPLOY_FAILED:
                raise TargetUnavailable(f"Application '{name}' did not start: {told[name].message}")
        if all(name in told and told[name].status == ApplicationStatus.RUNNING for name in names):
            return
        if monotonic() > until_s:
            states = {name: str(told[name].status) for name in names & told.keys()}
            raise TargetUnavailable(f"Not all applications run within {timeout_s:g} s: {states}")


def addresses(schema: ServeDeploySchema) -> dict[str, str]:
    """Ask each application where it is reached."""
    return {
        application.name: serve.get_app_handle(application.name).where.remote().result(timeout_s=10)
        for application in schema.applications
    }


@contextmanager
def cluster(address: str | None) -> Iterator[None]:
    """Connect to Ray; without an address, run it on this machine for as long as this lasts."""
    settings: dict[str, Any] = {"address": address} if address else {"include_dashboard": False}
    ray.init(namespace="serve", log_to_driver=not address, logging_level=logging.WARNING, **settings)
    try:
        yield
    finally:
        ray.shutdown()


def run(config: Path | None, address: str | None) -> None:
    """Serve what a file says until SIGTERM or SIGINT; then drain, and end it."""
    schema = read_schema(config or DEMO)
    stopped = threading.Event()
    console = Console()
    with cluster(address):
        for number in (signal.SIGTERM, signal.SIGINT):  # Ray has put handlers of its own there
            signal.signal(number, lambda *_: stopped.set())
        try:
            deploy(schema)
            wait_until_running(schema, stopped)
            if not stopped.is_set():
                for name, where in addresses(schema).items():
                    console.print(f"[bold]{name}[/] at {where}", highlight=False)
                console.print("Ready; Ctrl-C lets open sessions end, and stops.")
            stopped.wait()
        finally:
            end(schema, is_all=address is None)


def end(schema: ServeDeploySchema, *, is_all: bool) -> None:
    """Drain and end what was started, clients' side first; on a cluster of others, nothing else."""
    for application in reversed(schema.applications):
        serve.delete(application.name, _blocking=False)
        while application.name in serve.status().applications:  # Serve kills what overstays its grace
            sleep(LOOK_S)
    if is_all:
        serve.shutdown()


def main(config: Path | None, address: str | None) -> None:
    """Run the command."""
    try:
        run(config, address)
    except SpecWhisperError as error:
        sys.exit(f"specwhisper serve: {error}")
