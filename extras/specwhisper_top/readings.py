"""Read servers' metrics as Prometheus does; locators list more servers."""

from __future__ import annotations

import json
import ssl
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from http.client import BadStatusLine, HTTPException, RemoteDisconnected
from time import time

from prometheus_client.parser import text_string_to_metric_families

from specwhisper.errors import SpecWhisperError
from specwhisper.observe.metrics import TARGETS_PATH
from specwhisper.rpc.addresses import split_address
from specwhisper.rpc.channels import Credentials, check_credentials
from specwhisper.rpc.tls import http_connection

TIMEOUT_S = 2.0
MAX_BYTES = 4 * 1024 * 1024  # a hundred times what a server exports

Samples = Mapping[tuple[str, frozenset[tuple[str, str]]], float]  # by name and labels


@dataclass(frozen=True, slots=True)
class Reading:
    """The metrics of a server at one time.

    Attributes
    ----------
    at_s : seconds since 1970.
    error : why there are no samples; empty if there are.
    """

    address: str
    at_s: float
    samples: Samples = field(default_factory=dict)
    error: str = ""


def read_all(addresses: Sequence[str], credentials: Credentials) -> list[Reading]:
    """Read all servers at once; a server that does not answer in time has an error."""
    with ThreadPoolExecutor(max(1, len(addresses))) as threads:
        return list(threads.map(partial(_read, credentials=credentials), addresses))


def check_addresses(addresses: Sequence[str], credentials: Credentials) -> None:
    """Refuse an invalid address, and a token that would be sent unencrypted."""
    for address in addresses:
        check_credentials(address, credentials)


def _read(address: str, credentials: Credentials) -> Reading:
    at_s = time()
    try:
        return Reading(address, at_s, parse(_fetch(address, "/metrics", credentials)))
    except (OSError, HTTPException, ValueError) as error:
        return Reading(address, at_s, error=_reason(error))


def find_targets(locator: str, credentials: Credentials) -> tuple[list[str], Reading | None]:
    """Return the metrics addresses that a locator lists, or none and the failed reading."""
    at_s = time()
    try:
        groups = json.loads(_fetch(locator, TARGETS_PATH, credentials))
        found = [str(address) for group in groups for address in group["targets"]]
        check_addresses(found, credentials)
        return found, None
    except (OSError, HTTPException, ValueError, LookupError, TypeError, SpecWhisperError) as error:
        return [], Reading(locator, at_s, error=_reason(error))


def parse(text: str) -> Samples:
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def _fetch(address: str, path: str, credentials: Credentials) -> str:
    headers = {} if credentials.token is None else {"Authorization": f"Bearer {credentials.token}"}
    with closing(http_connection(*split_address(address), credentials.tls, TIMEOUT_S)) as connection:
        connection.request("GET", path, headers=headers)
        reply = connection.getresponse()
        if reply.status != HTTPStatus.OK:
            raise HTTPException(f"answers {reply.status} {reply.reason}")
        return reply.read(MAX_BYTES).decode()


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return f"no answer in {TIMEOUT_S:g} s"
    if isinstance(error, ConnectionRefusedError):
        return "no server answers"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return f"no encrypted connection: {error}"
    if isinstance(error, ConnectionResetError | RemoteDisconnected):
        return "closes the connection: does it need encryption?"
    if isinstance(error, BadStatusLine):
        return "does not speak HTTP: name the port of --metrics-port"
    if isinstance(error, ValueError | LookupError | TypeError):
        return "its answer is not metrics"
    return str(error) or type(error).__name__
