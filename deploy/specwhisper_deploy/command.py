"""Command ``specwhisper serve``: run targets, draft servers and gateways under Ray until a signal."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep
from typing import Any

# Ray reads these when it is imported. Ray executes code for every client that reaches its ports.
os.environ.setdefault("RAY_AUTH_MODE", "token")
os.environ.setdefault("RAY_DEDUP_LOGS", "0")  # replicas' log lines differ only in structured fields

import psutil
import ray
import yaml
from pydantic import ValidationError
from ray import serve
from ray.exceptions import AuthenticationError, RayError
from ray.serve.exceptions import RayServeException
from ray.serve.schema import (
    ApplicationStatus,
    ApplicationStatusOverview,
    DeploymentStatus,
    ServeApplicationSchema,
    ServeDeploySchema,
)
from rich.console import Console

from specwhisper.errors import InvalidRequest, SpecWhisperError, TargetUnavailable, Unauthenticated
from specwhisper.rpc.addresses import port_error, split_address
from specwhisper.settings.command_line import reading
from specwhisper_deploy import compat, serve_app
from specwhisper_deploy.forced_end import Signals
from specwhisper_deploy.placement import Flags, node_ips, port_choices, with_node_host

DEMO = Path(__file__).with_name("serve.yaml")
START_TIMEOUT_S = 600.0  # large models take minutes to load
POLL_S = 0.25
END_MARGIN_S = 30.0  # after the replicas' drain timeout, until Serve has killed them
LOGS = "/tmp/ray/session_latest/logs"
ADDRESSES_TIMEOUT_S = 10.0
CONNECT_TIMEOUT_S = 5.0  # to a cluster's head; Ray itself would try for minutes
FAILED = (DeploymentStatus.DEPLOY_FAILED, DeploymentStatus.UNHEALTHY)
RAY_ERRORS = (RayError, RayServeException, OSError, RuntimeError, ValueError)  # raised by Ray
RAYLET = "raylet"  # the parent of all of Ray's processes whose command line begins with:
TITLE = "ray::"


def read_schema(path: Path) -> ServeDeploySchema:
    try:
        with path.open() as file:  # YAML's errors name it
            return ServeDeploySchema.model_validate(yaml.safe_load(file))
    except OSError as error:
        raise InvalidRequest(f"{path} cannot be read: {error.strerror}.") from error
    except yaml.YAMLError as error:
        raise InvalidRequest(f"{path} is not valid YAML: {on_one_line(str(error))}") from error
    except ValidationError as error:
        raise InvalidRequest(
            f"{path} is not a configuration of Ray Serve: {invalid_fields(error)}"
        ) from error


def check_flags(schema: ServeDeploySchema, *, runs_here: bool = True) -> None:
    """Check the arguments of our applications by building them.

    A missing file that a flag names is an error only if the applications run on this machine.
    """
    for application, builder in _own_applications(schema):
        if not callable(build := getattr(serve_app, builder, None)):
            raise InvalidRequest(f"Application '{application.name}': there is no {application.import_path}.")
        try:
            build(application.args)
        except InvalidRequest as error:
            if runs_here or not _is_missing_file(error):
                raise InvalidRequest(f"Application '{application.name}': {error}") from error


def check_hosts(schema: ServeDeploySchema, node_ips: Collection[str]) -> None:
    """Refuse hosts that other nodes cannot reach; otherwise a replica would report them minutes later."""
    for application, builder in _own_applications(schema):
        part, settings = serve_app.SETTINGS[builder]
        flags = application.args.get(part) or {}
        try:
            with_node_host(
                settings, flags, min(node_ips, default=""), node_ips, may_be_local=part == "gateway"
            )
        except SpecWhisperError as error:
            if not _is_missing_file(error):
                raise type(error)(f"Application '{application.name}': {error}") from error


def check_ports(schema: ServeDeploySchema) -> None:
    """Refuse ports of this machine that are taken, before Ray starts.

    A replica may take any port of a range, so a range is refused only if all of its ports are taken.
    """
    parts = [part for each in schema.applications for part in each.args.values() if isinstance(part, dict)]
    for flags in parts:
        errors = [_port_error(choice) for choice in port_choices(flags)]
        taken = [error for error in errors if error is not None]
        if len(taken) == len(errors):
            raise taken[0]


def _own_applications(schema: ServeDeploySchema) -> Iterator[tuple[ServeApplicationSchema, str]]:
    """Yield the applications of this package, each with the name of its builder."""
    for application in schema.applications:
        module, _, builder = application.import_path.partition(":")
        if module == serve_app.__name__:
            yield application, builder


def _is_missing_file(error: SpecWhisperError) -> bool:
    return isinstance(error.__cause__, FileNotFoundError)


def _port_error(flags: Flags) -> InvalidRequest | None:
    """Return why a replica with these flags cannot listen, or ``None``."""
    for prefix in ("", "metrics-"):
        host, port = str(flags.get(f"{prefix}host", "127.0.0.1")), int(str(flags.get(f"{prefix}port") or 0))
        if (error := port_error(host, port)) is not None:
            return error
    return None


def invalid_fields(error: ValidationError) -> str:
    fields = (f"{'.'.join(map(str, each['loc'])) or 'the file'}: {each['msg']}" for each in error.errors())
    return on_one_line("; ".join(fields))


def on_one_line(text: Any) -> str:
    return " ".join(str(text).split())


def deploy(schema: ServeDeploySchema) -> None:
    """Start Serve and apply a configuration; replicas that it does not change keep running."""
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
    """Wait until all applications run, or until a signal."""
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
    """Return the messages of an application's failed deployments, or its own if they have none."""
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
    """Raise if nothing listens at ``HOST:PORT``; addresses of another form are left to Ray."""
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
    """Return the last line of a text. In a traceback it names the error."""
    return on_one_line((text.strip().splitlines() or [""])[-1])


def run(config: Path | None, address: str | None) -> None:
    """Serve a configuration file until SIGTERM or SIGINT, then drain; a second signal ends at once.

    After an error, applications that already ran keep running.
    """
    with reading():
        schema = read_schema(config or DEMO)
        check_flags(schema, runs_here=address is None)
    names = [application.name for application in schema.applications]
    console = Console()
    if address is None:
        if orphans := find_orphans():
            console.print(describe_orphans(orphans), style="yellow", highlight=False, soft_wrap=True)
        check_ports(schema)
    with Signals() as signals, cluster(address):
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
            end(to_end, signals, console, is_all=address is None)


def is_orphan(command_line: str, ancestors: Sequence[str]) -> bool:
    """Return whether a process's raylet has ended; ``ancestors`` are names, the parent's first."""
    return command_line.startswith(TITLE) and RAYLET not in ancestors


def find_orphans() -> dict[int, str]:
    """Return command lines by process id, for example after ``kill -9`` of ``specwhisper serve``."""
    orphans = {}
    for process in psutil.process_iter():
        try:
            command_line = " ".join(process.cmdline()).strip()
            if is_orphan(command_line, [parent.name() for parent in process.parents()]):
                orphans[process.pid] = command_line
        except psutil.Error:  # it has ended, or belongs to another user
            continue
    return orphans


def describe_orphans(orphans: Mapping[int, str]) -> str:
    names = ", ".join(dict.fromkeys(orphans.values()))
    pids = " ".join(map(str, orphans))
    # These processes ignore SIGTERM.
    return f"An earlier Ray on this machine was killed and has left {names}. End them by: kill -9 {pids}"


def already_running(names: Iterable[str]) -> str:
    return (
        f"Ray Serve runs already: {', '.join(sorted(names))}. An earlier `specwhisper serve` that was killed "
        "may have left them. Applications that this file names are updated, and end with this command; "
        "others end now. To end all of them by hand: RAY_AUTH_MODE=token serve shutdown --yes"
    )


def end(names: Sequence[str], signals: Signals, console: Console, *, is_all: bool) -> None:
    """Drain and end applications in reverse order: those that clients call end first.

    An application that never ran has no sessions, so its end isn't awaited. One that doesn't end in time is
    reported and left to ``serve.shutdown``.

    ``is_all``: whether Serve runs nothing else, so that it is shut down as well.
    """
    states = serve.status().applications
    running = [name for name in names if name in states and states[name].status == ApplicationStatus.RUNNING]
    for name in reversed(names):
        within_s = max(compat.graceful_shutdown_timeouts(name), default=0.0) + END_MARGIN_S
        compat.start_deleting(name)
        if name not in running:
            continue
        if not wait_until_gone(name, within_s, signals) and not signals.is_forced:
            console.print(
                f"Application '{name}' has not ended within {within_s:g} s; see the logs in {LOGS}.",
                highlight=False,
            )
    if is_all and len(running) == len(names) and not signals.is_forced:
        serve.shutdown()  # otherwise ray.shutdown ends Ray's processes


def wait_until_gone(name: str, within_s: float, signals: Signals) -> bool:
    """Return whether Serve has ended an application in time; a second signal ends the wait."""
    until_s = monotonic() + within_s
    while is_there := name in serve.status().applications:
        if monotonic() > until_s or signals.is_forced:
            break
        sleep(POLL_S)
    return not is_there


def main(config: Path | None, address: str | None) -> None:
    try:
        run(config, address)
    except (RayError, RayServeException, ConnectionError, TimeoutError) as error:
        reason = f"{type(error).__name__}: {last_line(str(error))}"
        raise TargetUnavailable(
            f"Ray was lost, or does not answer ({reason}); its logs are in {LOGS}."
        ) from error
