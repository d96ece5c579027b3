"""Checks of a Serve configuration before Ray sees it: Ray reports mistakes late, as tracebacks."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError
from ray.serve.schema import ServeApplicationSchema, ServeDeploySchema

from specwhisper.errors import InvalidRequest, SpecWhisperError
from specwhisper.rpc.addresses import bind_error, listen_error
from specwhisper_deploy import serve_app
from specwhisper_deploy.placement import Flags, port_choices, with_node_host


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
        except ValidationError as error:
            raise InvalidRequest(f"Arguments of '{application.name}': {invalid_fields(error)}") from error
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
        if port and (error := bind_error(host, port)) is not None:
            return listen_error(host, port, error)
    return None


def invalid_fields(error: ValidationError) -> str:
    fields = (f"{'.'.join(map(str, each['loc'])) or 'the file'}: {each['msg']}" for each in error.errors())
    return on_one_line("; ".join(fields))


def on_one_line(text: Any) -> str:
    return " ".join(str(text).split())
