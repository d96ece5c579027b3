"""``specwhisper serve``: targets, draft servers and gateways under Ray, until a signal."""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
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
from ray.exceptions import AuthenticationError, RayError
from ray.serve.context import _get_global_client
from ray.serve.exceptions import RayServeException
from ray.serve.schema import (
    ApplicationStatus,
    ApplicationStatusOverview,
    DeploymentStatus,
    ServeDeploySchema,
)
from rich.console import Console

from specwhisper.errors import InvalidRequest, SpecWhisperError, TargetUnavailable, Unauthenticated
from specwhisper.rpc.addresses import bind_error, cannot_listen, split_address
from specwhisper_deploy import leftovers, serve_app
from specwhisper_deploy.nodes import node_ips, reachable_flags
from specwhisper_deploy.ports import Flags, port_choices

DEMO = Path(__file__).with_name("serve.yaml")
START_TIMEOUT_S = 600.0  # large models take minutes to load
LOOK_S = 0.25
END_MARGIN_S = 30.0  # behind the grace of an application's replicas, until Serve has killed them
LOGS = "/tmp/ray/session_latest/logs"
ASK_S = 10.0
CONNECT_S = 5.0  # to a cluster's head; Ray itself would try for minutes
FAILED = (DeploymentStatus.DEPLOY_FAILED, DeploymentStatus.UNHEALTHY)
OF_RAY = (RayError, RayServeException, OSError, RuntimeError, ValueError)  # what its calls raise


def read_schema(path: Path) -> ServeDeploySchema:
    """Read a configuration file of Serve."""
    try:
        return ServeDeploySchema.model_validate(yaml.safe_load(path.read_text()))
    except OSError as error:
        raise InvalidRequest(f"{path} cannot be read: {error.strerror}.") from error
    except yaml.YAMLError as error:
        raise InvalidRequest(f"{path} is no YAML: {in_a_line(str(error))}") from error
    except ValidationError as error:
        raise InvalidRequest(f"{path} is no configuration of Ray Serve: {fields_in(error)}") from error


class Signals:
    """Counts SIGTERM and SIGINT: the first one stops, another one hurries.

    A number that is looked at, and no event: a handler runs amid whatever it interrupts, which may hold the
    event's lock.
    """

    def __init__(self) -> None:
        self._number = 0

    def catch(self) -> None:
        """Be told of them from now on."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._count)

    def stop(self) -> None:
        """Take it that the first one has come: the next one hurries."""
        self._number = max(self._number, 1)

    @property
    def is_stopped(self) -> bool:
        """Whether one has come."""
        return self._number > 0

    @property
    def is_hurried(self) -> bool:
        """Whether another one has come since."""
        return self._number > 1

    def _count(self, *_: object) -> None:
        self._number += 1


def check(schema: ServeDeploySchema, *, is_here: bool = True) -> None:
    """Have our applications say what is wrong with their flags, before Ray says it with its tracebacks.

    Parameters
    ----------
    is_here : whether they are to run on this machine; else files that flags name may be on others.
    """
    for application in schema.applications:
        module, _, builder = application.import_path.partition(":")
        if module == serve_app.__name__:
            if not callable(build := getattr(serve_app, builder, None)):
                raise InvalidRequest(
                    f"Application '{application.name}': there is no {application.import_path}."
                )
            try:
                build(application.args)
            except ValidationError as error:
                raise InvalidRequest(f"Arguments of '{application.name}': {fields_in(error)}") from error
            except InvalidRequest as error:
                if is_here or not isinstance(error.__cause__, FileNotFoundError):
                    raise InvalidRequest(f"Application '{application.name}': {error}") from error


def check_hosts(schema: ServeDeploySchema, ips: Collection[str]) -> None:
    """Refuse hosts of ours that the cluster's other machines do not reach; replicas say so after minutes.

    Parameters
    ----------
    ips : the addresses of the cluster's machines.
    """
    for application in schema.applications:
        module, _, builder = application.import_path.partition(":")
        if module != serve_app.__name__:
            continue
        part, read = serve_app.READS[builder]
        flags = application.args.get(part) or {}
        try:
            reachable_flags(read, flags, min(ips, default=""), ips, may_be_local=part == "gateway")
        except SpecWhisperError as error:
            if not isinstance(error.__cause__, FileNotFoundError):  # else it may be on the other machines
                raise type(error)(f"Application '{application.name}': {error}") from error


def check_ports(schema: ServeDeploySchema) -> None:
    """Have nobody wait for a port of this machine that somebody else has; to be asked before Ray runs."""
    parts = [part for each in schema.applications for part in each.args.values() if isinstance(part, dict)]
    for flags in parts:
        errors = [_port_error(choice) for choice in port_choices(flags)]
        taken = [error for error in errors if error is not None]
        if len(taken) == len(errors):  # else a replica finds a free one in its range
            raise taken[0]


def _port_error(flags: Flags) -> InvalidRequest | None:
    """Return why a replica cannot listen at its ports, if it cannot."""
    for prefix in ("", "metrics-"):
        host, port = str(flags.get(f"{prefix}host", "127.0.0.1")), int(flags.get(f"{prefix}port") or 0)
        if port and (error := bind_error(host, port)) is not None:
            return cannot_listen(host, port, error)
    return None


def deploy(schema: ServeDeploySchema) -> None:
    """Have Serve run what a file says; replicas that it does not change go on.

    Raises :class:`TargetUnavailable` where Ray does not do it.
    """
    try:
        serve.start(proxy_location=schema.proxy_location, logging_config=schema.logging_config)
        # As `serve run FILE` does it; Ray is pinned below 3. Its public calls take applications, all of whose
        # replicas they start anew, or go by HTTP to its dashboard, which need not run.
        _get_global_client().deploy_apps(schema, _blocking=False)
    except OF_RAY as error:
        raise TargetUnavailable(
            f"Ray Serve does not take the configuration: {in_a_line(str(error))}"
        ) from error


def wait_until_running(
    schema: ServeDeploySchema, signals: Signals, timeout_s: float = START_TIMEOUT_S
) -> None:
    """Wait until all applications run, or nobody wants them to; an error tells which one does not."""
    until_s = monotonic() + timeout_s
    names = {application.name for application in schema.applications}
    while not signals.is_stopped:
        sleep(LOOK_S)
        told = serve.status().applications
        for name in names & told.keys():
            if told[name].status == ApplicationStatus.DEPLOY_FAILED:
                raise TargetUnavailable(
                    f"Application '{name}' did not start: {why_not(told[name])}; "
                    f"Ray's logs in {LOGS} have more."
                )
        if all(name in told and told[name].status == ApplicationStatus.RUNNING for name in names):
            return
        if monotonic() > until_s:
            states = {name: str(told[name].status) for name in names & told.keys()}
            raise TargetUnavailable(
                f"Not all applications run within {timeout_s:g} s: {states}; is there room for them?"
            )


def why_not(application: ApplicationStatusOverview) -> str:
    """Return why an application did not start: what its deployments say, where they say more than itself."""
    failed = {
        name: deployment.message
        for name, deployment in application.deployments.items()
        if deployment.status in FAILED and deployment.message
    }
    said = [f"{name}: {last_line(message)}" for name, message in failed.items()]
    return "; ".join(said) or last_line(application.message)


def addresses(schema: ServeDeploySchema) -> dict[str, str]:
    """Ask each application where it is reached: all replicas that clients may call."""
    told = {}
    for application in schema.applications:
        asked = serve.get_app_handle(application.name).broadcast("where")
        told[application.name] = ", ".join(sorted(asked.results(timeout_s=ASK_S)))
    return told


@contextmanager
def cluster(address: str | None) -> Iterator[None]:
    """Connect to Ray; without an address, run it on this machine for as long as this lasts."""
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
            f"There is no token for {where}, or another one: give the cluster's as RAY_AUTH_TOKEN or in "
            "~/.ray/auth_token."
        ) from error
    except OF_RAY as error:
        raise TargetUnavailable(
            f"There is no way to {where} ({last_line(str(error))}); `ray status` tells whether it runs."
        ) from error
    try:
        yield
    finally:
        ray.shutdown()


def check_reachable(address: str) -> None:
    """Raise :class:`TargetUnavailable` where nothing listens at ``HOST:PORT``; else Ray knows best."""
    if "://" in address or ":" not in address:
        return
    try:
        socket.create_connection(split_address(address), timeout=CONNECT_S).close()
    except OSError as error:
        raise TargetUnavailable(
            f"No Ray cluster answers at '{address}' ({error}): give what `ray start --head` has printed."
        ) from error


def fields_in(error: ValidationError) -> str:
    """Tell what is wrong with which fields, on a line."""
    fields = (f"{'.'.join(map(str, each['loc'])) or 'all of it'}: {each['msg']}" for each in error.errors())
    return in_a_line("; ".join(fields))


def in_a_line(text: str) -> str:
    """Put a text of several lines on one."""
    return " ".join(text.split())


def last_line(text: str) -> str:
    """Give what a traceback ends with, or a text's only line."""
    return in_a_line((text.strip().splitlines() or [""])[-1])


def run(config: Path | None, address: str | None) -> None:
    """Serve what a file says until SIGTERM or SIGINT; then drain, and end it. Another one hurries.

    Where an error ends it, applications that ran before are left to Ray.
    """
    schema = read_schema(config or DEMO)
    check(schema, is_here=address is None)
    names = [application.name for application in schema.applications]
    signals, console = Signals(), Console()
    if address is None:
        if left := leftovers.left_over(leftovers.processes()):
            console.print(leftovers.sentence(left), style="yellow", highlight=False, soft_wrap=True)
        check_ports(schema)
    with cluster(address):
        check_hosts(schema, node_ips())
        signals.catch()  # Ray has put handlers of its own there
        ran_before = serve.status().applications.keys()
        if ran_before:
            console.print(left_running(ran_before), style="yellow", highlight=False, soft_wrap=True)
        to_end = [name for name in names if name not in ran_before]
        try:
            deploy(schema)
            wait_until_running(schema, signals)
            if not signals.is_stopped:
                for name, where in addresses(schema).items():
                    console.print(f"[bold]{name}[/] at {where}", highlight=False)
                console.print("Ready; Ctrl-C lets open sessions end, and stops; another one does not wait.")
            else:
                console.print("Stopping; what runs already lets open sessions end.")
            while not signals.is_stopped:
                sleep(LOOK_S)
            to_end = names
        finally:
            signals.stop()  # also where an error ends it
            end(to_end, signals, console, is_all=address is None)


def left_running(names: Iterable[str]) -> str:
    """Say which applications run before this file is deployed, and what becomes of them."""
    return (
        f"Ray Serve runs already: {', '.join(sorted(names))}. An earlier `specwhisper serve` that was killed "
        "may have left them. Those that this file names are updated, and end with this command; others end "
        "now. To end all of them by hand: RAY_AUTH_MODE=token serve shutdown --yes"
    )


def end(names: Sequence[str], signals: Signals, console: Console, *, is_all: bool) -> None:
    """Drain and end what was started, clients' side first; on a cluster of others, nothing else.

    What has never run has no sessions, and is not waited for. An application that Serve does not end in time
    is told of and left: shutting down ends it, or nobody does.
    """
    told = serve.status().applications
    running = [name for name in names if name in told and told[name].status == ApplicationStatus.RUNNING]
    for name in reversed(names):
        within_s = longest_grace_s(name) + END_MARGIN_S
        serve.delete(name, _blocking=False)
        if name not in running:
            continue
        if not wait_until_gone(name, within_s, signals) and not signals.is_hurried:
            console.print(
                f"Application '{name}' has not ended within {within_s:g} s; {LOGS} may say why.",
                highlight=False,
            )
    if is_all and len(running) == len(names) and not signals.is_hurried:
        serve.shutdown()  # else Ray's processes are simply ended


def longest_grace_s(name: str) -> float:
    """Ask how long the replicas of an application may take to end, until Serve kills them."""
    applications = _get_global_client().get_serve_details()["applications"]  # no public way
    deployments = applications.get(name, {}).get("deployments", {}).values()
    graces = (each["deployment_config"]["graceful_shutdown_timeout_s"] for each in deployments)
    return max(graces, default=0.0)


def wait_until_gone(name: str, within_s: float, signals: Signals) -> bool:
    """Wait until Serve has ended an application, for some time and unless there is a hurry; tell whether."""
    until_s = monotonic() + within_s
    while is_there := name in serve.status().applications:
        if monotonic() > until_s or signals.is_hurried:
            break
        sleep(LOOK_S)
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
