"""Three networks behind one interface: where the far side listens, how it is reached, what lies between."""

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
from experiments.latency.networks.machinery import Machinery
from specwhisper.errors import InvalidRequest, UnsupportedOption

PROXY, EMULATOR = "experiments.latency.networks.proxy", "experiments.latency.networks.emulator"
NEAR_HOST, FAR_HOST = (f"10.77.{os.getpid() % 256}.{host}" for host in (1, 2))
PREFIX_BITS = 30
PACKET_BYTES, UNLIMITED_PACKETS = 1500, 100_000
TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 0x0001, 0x1000


class Network(Protocol):
    """A network between near processes, which are started as they are, and far ones.

    Attributes
    ----------
    name : what it is.
    far_host : where a far process listens.
    far_prefix : what a far process's command begins with.
    """

    name: str
    far_host: str
    far_prefix: Sequence[str]

    def way_to(self, address: str) -> str:
        """Give the address under which near processes reach a far one that listens at ``address``."""

    def apply(self, conditions: Conditions, *, seed: int = 0) -> None:
        """Be like this from now on, for open connections too."""

    def cpu_s(self) -> float:
        """Tell the processor time that the network itself has taken, where it takes any."""


class ProxyNetwork:
    """A delaying TCP proxy on the loopback interface; see :mod:`experiments.latency.networks.proxy`."""

    name = "proxy"
    far_host = "127.0.0.1"
    far_prefix: Sequence[str] = ()

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._proxies: list[Machinery] = []
        self._conditions = Conditions()

    def way_to(self, address: str) -> str:
        """Put a proxy before the address."""
        host, _, port = address.rpartition(":")
        proxy = Machinery(PROXY, host, port)
        self._stack.callback(proxy.stop)
        self._proxies.append(proxy)
        proxy.apply(self._conditions)
        return f"127.0.0.1:{proxy.told['port']}"

    def apply(self, conditions: Conditions, *, seed: int = 0) -> None:
        """Change all proxies."""
        if conditions.needs_packets:
            raise UnsupportedOption(
                "A proxy carries bytes, which are never lost or reordered: use --network tun."
            )
        self._conditions = conditions
        for proxy in self._proxies:
            proxy.apply(conditions, seed=seed)

    def cpu_s(self) -> float:
        """Add up what the proxies have taken."""
        return sum(proxy.cpu_s() for proxy in self._proxies)


class TunNetwork:
    """Two network namespaces and an emulator between their TUN devices."""

    name = "tun"
    far_host = FAR_HOST

    def __init__(self, stack: ExitStack) -> None:
        namespace = stack.enter_context(_namespace())
        self.far_prefix: Sequence[str] = ("ip", "netns", "exec", namespace)
        near = stack.enter_context(_tun(f"{namespace}-a"))
        far = stack.enter_context(_tun(f"{namespace}-b"))
        _connect(namespace)
        self._emulator = Machinery(EMULATOR, str(near), str(far), files=(near, far))
        stack.callback(self._emulator.stop)

    def way_to(self, address: str) -> str:
        """Give the address itself: packets are routed through the emulator."""
        return address

    def apply(self, conditions: Conditions, *, seed: int = 0) -> None:
        """Change the emulator."""
        self._emulator.apply(conditions, seed=seed)

    def cpu_s(self) -> float:
        """Tell what the emulator has taken."""
        return self._emulator.cpu_s()


class NetemNetwork:
    """Two network namespaces and a veth pair, whose ends the kernel's netem shapes.

    Its chance is its own: ``tc`` takes no seed for netem (iproute2 6.1), so that two runs lose other packets.
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

    def way_to(self, address: str) -> str:
        """Give the address itself."""
        return address

    def apply(self, conditions: Conditions, *, seed: int = 0) -> None:
        """Replace the queueing discipline of both ends; the seed is without effect."""
        for prefix, device in self._ends:
            _run(*prefix, "tc", "qdisc", "replace", "dev", device, "root", *netem_arguments(conditions))

    def cpu_s(self) -> float:
        """Tell nothing: what the kernel takes for it is nobody's."""
        return 0.0


def netem_arguments(conditions: Conditions) -> list[str]:
    """Say conditions as tc does, for one of the two ways.

    Jitter is netem's normal distribution there, whose packets overtake each other; reordering needs a delay.
    A narrow line's limit counts packets, those on their way too.
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
    """Move the second device into the namespace, give both an address and bring them up."""
    near, far = f"{namespace}-a", f"{namespace}-b"
    _run("ip", "link", "set", far, "netns", namespace)
    _run("ip", "addr", "add", f"{NEAR_HOST}/{PREFIX_BITS}", "dev", near)
    _run("ip", "-n", namespace, "addr", "add", f"{FAR_HOST}/{PREFIX_BITS}", "dev", far)
    _run("ip", "link", "set", near, "up")
    for device in (far, "lo"):
        _run("ip", "-n", namespace, "link", "set", device, "up")


@contextmanager
def _namespace() -> Iterator[str]:
    """Make a network namespace."""
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
    """Open a TUN device; it is gone when its descriptor is closed."""
    try:
        device = os.open("/dev/net/tun", os.O_RDWR)
    except OSError as error:
        raise UnsupportedOption(
            f"There is no /dev/net/tun to be had ({error}): use --network proxy."
        ) from error
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
    """Set a network up, without any delay at first, and take it down again."""
    if name not in NETWORKS:
        raise InvalidRequest(f"There is no network '{name}': choose one of {', '.join(NETWORKS)}.")
    with ExitStack() as stack:
        yield NETWORKS[name](stack)
