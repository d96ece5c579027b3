"""Two networks with one interface: TUN emulator and proxy."""

from __future__ import annotations

import fcntl
import os
import shutil
import struct
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Protocol

from experiments.latency.networks.conditions import Conditions
from experiments.latency.networks.shaping_process import ShapingProcess
from specwhisper.errors import InvalidRequest, UnsupportedOption

PROXY, EMULATOR = "experiments.latency.networks.proxy", "experiments.latency.networks.emulator"
NEAR_HOST, FAR_HOST = (f"10.77.{os.getpid() % 256}.{host}" for host in (1, 2))
PREFIX_BITS = 30
TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 0x0001, 0x1000


class Network(Protocol):
    """A network between near processes, which start as usual, and far processes.

    Attributes
    ----------
    name : as in ``--network``.
    far_host : address on which far processes listen.
    far_prefix : first words of a far process's command.
    """

    name: str
    far_host: str
    far_prefix: Sequence[str]

    def route_to(self, address: str) -> str:
        """Return the address at which near processes reach a far server that listens at ``address``."""

    def apply(self, conditions: Conditions, *, seed: int = 0) -> None:
        """Apply conditions from now on, to open connections too."""

    def cpu_s(self) -> float:
        """Return the CPU time of the network's own process, or 0 without one."""


class ProxyNetwork:
    """Delaying TCP proxies on the loopback interface; see :mod:`experiments.latency.networks.proxy`."""

    name = "proxy"
    far_host = "127.0.0.1"
    far_prefix: Sequence[str] = ()

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._proxies: list[ShapingProcess] = []
        self._conditions = Conditions()

    def route_to(self, address: str) -> str:
        """Start a proxy for the address and return the proxy's own."""
        host, _, port = address.rpartition(":")
        proxy = ShapingProcess(PROXY, host, port)
        self._stack.callback(proxy.stop)
        self._proxies.append(proxy)
        proxy.apply(self._conditions)
        return f"127.0.0.1:{proxy.ready['port']}"

    def apply(self, conditions: Conditions, *, seed: int = 0) -> None:
        """Apply conditions to all proxies."""
        if conditions.needs_packets:
            raise UnsupportedOption(
                "A proxy carries bytes, which are never lost or reordered: use --network tun."
            )
        self._conditions = conditions
        for proxy in self._proxies:
            proxy.apply(conditions, seed=seed)

    def cpu_s(self) -> float:
        """Return the CPU time of all proxies."""
        return sum(proxy.cpu_s() for proxy in self._proxies)


class TunNetwork:
    """Two network namespaces with an emulator between their TUN devices."""

    name = "tun"
    far_host = FAR_HOST

    def __init__(self, stack: ExitStack) -> None:
        namespace = stack.enter_context(_namespace())
        self.far_prefix: Sequence[str] = ("ip", "netns", "exec", namespace)
        near = stack.enter_context(_tun(f"{namespace}-a"))
        far = stack.enter_context(_tun(f"{namespace}-b"))
        _connect(namespace)
        self._emulator = ShapingProcess(EMULATOR, str(near), str(far), files=(near, far))
        stack.callback(self._emulator.stop)

    def route_to(self, address: str) -> str:
        """Return the address itself: packets are routed through the emulator."""
        return address

    def apply(self, conditions: Conditions, *, seed: int = 0) -> None:
        """Apply conditions to the emulator."""
        self._emulator.apply(conditions, seed=seed)

    def cpu_s(self) -> float:
        """Return the emulator's CPU time."""
        return self._emulator.cpu_s()


def _connect(namespace: str) -> None:
    """Move the second device into the namespace, assign addresses and bring both up."""
    near, far = f"{namespace}-a", f"{namespace}-b"
    _run("ip", "link", "set", far, "netns", namespace)
    _run("ip", "addr", "add", f"{NEAR_HOST}/{PREFIX_BITS}", "dev", near)
    _run("ip", "-n", namespace, "addr", "add", f"{FAR_HOST}/{PREFIX_BITS}", "dev", far)
    _run("ip", "link", "set", near, "up")
    for device in (far, "lo"):
        _run("ip", "-n", namespace, "link", "set", device, "up")


@contextmanager
def _namespace() -> Iterator[str]:
    """Create a network namespace; delete it at the end."""
    if shutil.which("ip") is None:
        raise UnsupportedOption("Network namespaces need ip (package iproute2): or use --network proxy.")
    name = f"sw{os.getpid()}"
    _run("ip", "netns", "add", name)
    try:
        yield name
    finally:
        _try("ip", "netns", "delete", name)


@contextmanager
def _tun(name: str) -> Iterator[int]:
    """Open a TUN device; closing its descriptor removes it."""
    try:
        device = os.open("/dev/net/tun", os.O_RDWR)
    except OSError as error:
        raise UnsupportedOption(f"/dev/net/tun cannot be opened ({error}): use --network proxy.") from error
    try:
        fcntl.ioctl(device, TUNSETIFF, struct.pack("16sH", name.encode(), IFF_TUN | IFF_NO_PI))
        yield device
    finally:
        os.close(device)


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise UnsupportedOption(
            f"'{' '.join(command)}' failed: {done.stderr.strip()} "
            "(namespaces need root; --network proxy needs nothing)."
        )


def _try(*command: str) -> None:
    subprocess.run(command, capture_output=True)


NETWORKS: dict[str, Callable[[ExitStack], Network]] = {
    "proxy": ProxyNetwork,
    "tun": TunNetwork,
}


@contextmanager
def open_network(name: str) -> Iterator[Network]:
    """Set up a network, at first without delay; take it down at the end."""
    if name not in NETWORKS:
        raise InvalidRequest(f"There is no network '{name}': choose one of {', '.join(NETWORKS)}.")
    with ExitStack() as stack:
        yield NETWORKS[name](stack)
