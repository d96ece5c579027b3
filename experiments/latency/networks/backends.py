"""Three networks with one interface: proxy, TUN emulator and netem."""

from __future__ import annotations

import fcntl
import os
import shutil
import struct
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Protocol

from experiments.latency.networks.conditions import MAX_QUEUE_S, Conditions
from experiments.latency.networks.shaping_process import ShapingProcess
from specwhisper.errors import InvalidRequest, UnsupportedOption

PROXY, EMULATOR = "experiments.latency.networks.proxy", "experiments.latency.networks.emulator"
NEAR_HOST, FAR_HOST = (f"10.77.{os.getpid() % 256}.{host}" for host in (1, 2))
PREFIX_BITS = 30
PACKET_BYTES, UNLIMITED_PACKETS = 1500, 100_000
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


class NetemNetwork:
    """Two network namespaces with a veth pair that the kernel's netem shapes.

    Runs are not reproducible: ``tc`` takes no seed for netem (iproute2 6.1), so each loses other packets.
    """

    name = "netem"
    far_host = FAR_HOST

    def __init__(self, stack: ExitStack) -> None:
        namespace = stack.enter_context(_namespace())
        self.far_prefix: Sequence[str] = ("ip", "netns", "exec", namespace)
        ends = [f"{namespace}-{end}" for end in "ab"]
        _run("ip", "link", "add", ends[0], "type", "veth", "peer", "name", ends[1])
        stack.callback(_try, "ip", "link", "delete", ends[0])
        _connect(namespace)
        self._ends = [((), ends[0]), (self.far_prefix, ends[1])]
        try:
            self.apply(Conditions())
        except UnsupportedOption as error:
            raise UnsupportedOption(
                f"This kernel has no netem (sch_netem): use --network tun. ({error})"
            ) from None

    def route_to(self, address: str) -> str:
        """Return the address itself: packets are routed through the veth pair."""
        return address

    def apply(self, conditions: Conditions, *, seed: int = 0) -> None:
        """Replace the queueing discipline of both ends; the seed has no effect."""
        for prefix, device in self._ends:
            _run(*prefix, "tc", "qdisc", "replace", "dev", device, "root", *netem_arguments(conditions))

    def cpu_s(self) -> float:
        """Return 0: the kernel assigns this work to no process."""
        return 0.0


def netem_arguments(conditions: Conditions) -> list[str]:
    """Return the arguments of ``tc qdisc`` for one of the two directions.

    Jitter is netem's normal distribution, whose packets overtake each other; reordering needs a delay.
    A narrow line's limit counts packets, those in transit too.
    """
    if conditions.stall_s:
        raise UnsupportedOption("netem does not stall: use --network tun.")
    limit = UNLIMITED_PACKETS
    if conditions.bytes_per_s:
        held_s = MAX_QUEUE_S + conditions.round_trip_s / 2 + conditions.jitter_s
        limit = 1 + round(held_s * conditions.bytes_per_s / PACKET_BYTES)
    words = ["netem", "limit", f"{limit}", "delay", f"{5e5 * conditions.round_trip_s:.0f}us"]
    if conditions.jitter_s:
        words += [f"{1e6 * conditions.jitter_s:.0f}us", "distribution", "normal"]
    if conditions.loss:
        words += ["loss", f"{100 * conditions.loss:g}%"]
    if conditions.reordering:
        words += ["reorder", f"{100 * conditions.reordering:g}%"]
    if conditions.bytes_per_s:
        words += ["rate", f"{8 * conditions.bytes_per_s:.0f}bit"]
    return words


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
    if shutil.which("ip") is None or shutil.which("tc") is None:
        raise UnsupportedOption(
            "Network namespaces need ip and tc (package iproute2): or use --network proxy."
        )
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
    "netem": NetemNetwork,
}


@contextmanager
def open_network(name: str) -> Iterator[Network]:
    """Set up a network, at first without delay; take it down at the end."""
    if name not in NETWORKS:
        raise InvalidRequest(f"There is no network '{name}': choose one of {', '.join(NETWORKS)}.")
    with ExitStack() as stack:
        yield NETWORKS[name](stack)
