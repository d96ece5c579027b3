"""Command ``specwhisper serve``: run a Serve configuration under Ray.

It runs targets, draft servers and gateways until a signal.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep
from typing import Any

# Ray reads these when it is imported. Ray executes code for every client that reaches its ports.
os.environ.setdefault("RAY_AUTH_MODE", "token")
os.environ.setdefault("RAY_DEDUP_LOGS", "0")  # log lines of replicas differ only in their facts

import ray
from ray import serve
from ray.exceptions import AuthenticationError, RayError
from ray.serve.exceptions import RayServeException
from ray.serve.schema import (
    ApplicationStatus,
    ApplicationStatusOverview,
    DeploymentStatus,
    ServeDeploySchema,
)
from rich.console import Console

from specwhisper.errors import SpecWhisperError, TargetUnavailable, Unauthenticated
from specwhisper.rpc.addresses import split_address
from specwhisper_deploy import compat
from specwhisper_deploy.config_checks import check_flags, check_hosts, check_ports, on_one_line, read_schema
from specwhisper_deploy.forced_end import ForcedEnd
from specwhisper_deploy.nodes import node_ips
from specwhisper_deploy.orphans import describe_orphans, find_orphans

DEMO = Path(__file__).with_name("serve.yaml")
START_TIMEOUT_S = 600.0  # large models take minutes to load
POLL_S = 0.25
END_MARGIN_S = 30.0  # after the drain timeout of an application's replicas, until Serve has killed them
LOGS = "/tmp/ray/session_latest/logs"
ADDRESSES_TIMEOUT_S = 10.0
CONNECT_TIMEOUT_S = 5.0  # to a cluster's head; Ray itself would try for minutes
FAILED = (DeploymentStatus.DEPLOY_FAILED, DeploymentStatus.UNHEALTHY)
RAY_ERRORS = (RayError, RayServeException, OSError, RuntimeError, ValueError)  # that its calls raise


class Signals:
    """Counts SIGTERM and SIGINT: the first one drains, the second one ends at once.

    A number to poll, not an event: a handler may interrupt code that holds the event's lock.
    """

    def __init__(self) -> None:
        self._number = 0

    def catch(self) -> None:
        """Install the handlers."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._count)

    def stop(self) -> None:
        """Act as if the first signal had come, so that the next one ends at once."""
        self._number = max(self._number, 1)

    @property
    def is_stopped(self) -> bool:
        """Whether a signal has come."""
        return self._number > 0

    @property
    def is_hurried(self) -> bool:
        """Whether a second signal has come."""
        return self._number > 1

    def _count(self, *_: object) -> None:
        self._number += 1


def deploy(schema: ServeDeploySchema) -> None:
    """Start Serve and apply a configuration.

    Replicas that it does not change keep running.

    Raises
    ------
    TargetUnavailable
        where Ray does not accept it.
    """
    try:
        serve.start(proxy_location=schema.proxy_location, logging_config=schema.logging_config)
        compat.apply_config(schema)
    except RAY_ERRORS as error:
        raise TargetUnavailable(
            f"Ray Serve does not accept the configuration: {on_one_line(error)}"
        ) from error


def wait_until_running(
    schema: ServeDeploySchema, signals: Signals, timeout_s: float = START_TIMEOUT_S
) -> None:
    """Wait until all applications run, or until a signal.

    Raises
    ------
    TargetUnavailable
        where one of them cannot start, or does not run in time.
    """
    until_s = monotonic() + timeout_s
    names = {application.name for application in schema.applications}
    while not signals.is_stopped:
        sleep(POLL_S)
        states = {name: state for name, state in serve.status().applications.items() if name in names}
        for name, state in states.items():
            if state.status == ApplicationStatus.DEPLOY_FAILED:
                raise TargetUnavailable(
                    f"Application '{name}' did not start: {start_error(state)}; "
                    f"Ray's logs in {LOGS} have more."
                )
        if states.keys() == names and all(s.status == ApplicationStatus.RUNNING for s in states.values()):
            return
        if monotonic() > until_s:
            found = {name: str(state.status) for name, state in states.items()}
            raise TargetUnavailable(
                f"Not all applications run within {timeout_s:g} s: {found}; is there room for them?"
            )


def start_error(application: ApplicationStatusOverview) -> str:
    """Return why an application did not start.

    These are the messages of its deployments, or its own where they have none.
    """
    messages = [
        f"{name}: {last_line(deployment.message)}"
        for name, deployment in application.deployments.items()
        if deployment.status in FAILED and deployment.message
    ]
    return "; ".join(messages) or last_line(application.message)


def addresses(schema: ServeDeploySchema) -> dict[str, str]:
    """Return the addresses at which clients reach each application, joined by commas."""
    found = {}
    for application in schema.applications:
        replicas = serve.get_app_handle(application.name).broadcast("client_address")
        found[application.name] = ", ".join(sorted(replicas.results(timeout_s=ADDRESSES_TIMEOUT_S)))
    return found


@contextmanager
def cluster(address: str | None) -> Iterator[None]:
    """Connect to a Ray cluster; without an address, run one here meanwhile."""
    where = f"the Ray cluster at '{address}'" if address else "Ray on this machine"
    settings: dict[str, Any] = {"address": address or "local"}
    if address:
        check_reachable(address)
    else:
        settings["include_dashboard"] = False
    try:
        ray.init(namespace="serve", log_to_driver=not address, logging_level=logging.WARNING, **settings)
    except AuthenticationError as error:
        raise Unauthenticated(
            f"The token for {where} is missing or wrong: set RAY_AUTH_TOKEN to the cluster's token, or "
            "write it to ~/.ray/auth_token."
        ) from error
    except RAY_ERRORS as error:
        raise TargetUnavailable(
            f"Cannot connect to {where} ({last_line(str(error))}); check with `ray status` whether it runs."
        ) from error
    try:
        yield
    finally:
        ray.shutdown()


def check_reachable(address: str) -> None:
    """Raise :class:`TargetUnavailable` where nothing listens at ``HOST:PORT``.

    Addresses of another form are left to Ray.
    """
    if "://" in address or ":" not in address:
        return
    try:
        socket.create_connection(split_address(address), timeout=CONNECT_TIMEOUT_S).close()
    except OSError as error:
        raise TargetUnavailable(
            f"No Ray cluster answers at '{address}' ({error}): use the address that `ray start --head` "
            "printed."
        ) from error


def last_line(text: str) -> str:
    """Return the last line of a text, which of a traceback is the error."""
    return on_one_line((text.strip().splitlines() or [""])[-1])


def run(config: Path | None, address: str | None) -> None:
    """Serve a configuration file until SIGTERM or SIGINT, then drain.

    A second signal ends at once. After an error, applications that ran before are left as they are.
    """
    schema = read_schema(config or DEMO)
    check_flags(schema, runs_here=address is None)
    names = [application.name for application in schema.applications]
    signals, console = Signals(), Console()
    if address is None:
        if orphans := find_orphans():
            console.print(describe_orphans(orphans), style="yellow", highlight=False, soft_wrap=True)
        check_ports(schema)
    with ForcedEnd() as forced, cluster(address):
        check_hosts(schema, node_ips())
        signals.catch()  # after ray.init, which installs handlers of its own
        ran_before = serve.status().applications.keys()
        if ran_before:
            console.print(already_running(ran_before), style="yellow", highlight=False, soft_wrap=True)
        to_end = [name for name in names if name not in ran_before]
        try:
            deploy(schema)
            wait_until_running(schema, signals)
            if not signals.is_stopped:
                for name, where in addresses(schema).items():
                    console.print(f"[bold]{name}[/] at {where}", highlight=False)
                console.print("Ready; Ctrl-C drains open sessions and stops; a second Ctrl-C does not wait.")
            else:
                console.print("Stopping; open sessions are drained.")
            while not signals.is_stopped:
                sleep(POLL_S)
            to_end = names
        finally:
            signals.stop()  # also after an error
            forced.count_stop()
            end(to_end, signals, console, is_all=address is None)


def already_running(names: Iterable[str]) -> str:
    """Return a sentence on applications that run before this file is deployed."""
    return (
        f"Ray Serve runs already: {', '.join(sorted(names))}. An earlier `specwhisper serve` that was killed "
        "may have left them. Applications that this file names are updated, and end with this command; "
        "others end now. To end all of them by hand: RAY_AUTH_MODE=token serve shutdown --yes"
    )


def end(names: Sequence[str], signals: Signals, console: Console, *, is_all: bool) -> None:
    """Drain and end applications in reverse order.

    Those which clients call end first. An application that never ran has no sessions and is not waited for.
    One that Serve does not end in time is reported and left to ``serve.shutdown``.

    Parameters
    ----------
    is_all : whether Serve runs nothing else, so that it is shut down as well.
    """
    states = serve.status().applications
    running = [name for name in names if name in states and states[name].status == ApplicationStatus.RUNNING]
    for name in reversed(names):
        within_s = max(compat.graceful_shutdown_timeouts(name), default=0.0) + END_MARGIN_S
        compat.start_deleting(name)
        if name not in running:
            continue
        if not wait_until_gone(name, within_s, signals) and not signals.is_hurried:
            console.print(
                f"Application '{name}' has not ended within {within_s:g} s; see the logs in {LOGS}.",
                highlight=False,
            )
    if is_all and len(running) == len(names) and not signals.is_hurried:
        serve.shutdown()  # otherwise ray.shutdown ends Ray's processes


def wait_until_gone(name: str, within_s: float, signals: Signals) -> bool:
    """Wait until Serve has ended an application; return whether it has.

    A second signal ends the wait.
    """
    until_s = monotonic() + within_s
    while is_there := name in serve.status().applications:
        if monotonic() > until_s or signals.is_hurried:
            break
        sleep(POLL_S)
    return not is_there


def main(config: Path | None, address: str | None) -> None:
    """Run the command."""
    try:
        run(config, address)
    except SpecWhisperError as error:
        sys.exit(f"specwhisper serve: {error}")
    except (RayError, RayServeException, ConnectionError, TimeoutError) as error:
        sys.exit(
            f"specwhisper serve: Ray was lost, or does not answer ({type(error).__name__}: "
            f"{last_line(str(error))}); its logs are in {LOGS}."
        )
