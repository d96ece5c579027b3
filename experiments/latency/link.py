"""A link with a round trip between two processes: an emulator of IP packets, or a TCP proxy.

``python -m experiments.latency.link tun NEAR FAR``, with descriptors of open TUN devices in two network
namespaces, delays IP packets, so that real TCP reacts: slow start and windows.
``python -m experiments.latency.link proxy HOST:PORT`` delays bytes, which needs no privileges. Both run
beside the measured processes, and read a new round trip in seconds from each line of standard input.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import select
import selectors
import shutil
import struct
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

from experiments.common.network.proxy import Proxy
from experiments.common.servers.usage import cpu_s
from specwhisper.errors import InvalidRequest, UnsupportedOption

MODULE = "experiments.latency.link"
NEAR_HOST, FAR_HOST = (f"10.77.{os.getpid() % 256}.{host}" for host in (1, 2))
PREFIX_BITS = 30
TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
MAX_PACKET_BYTES = 65_536
STOP_TIMEOUT_S = 5.0


class Link(ABC):
    """A link between near processes, which start as usual, and far processes.

    Attributes
    ----------
    name : as in ``--network``.
    far_host : address on which far processes listen.
    far_prefix : first words of a far process's command.
    """

    name = ""
    far_host = "127.0.0.1"
    far_prefix: Sequence[str] = ()

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._processes: list[subprocess.Popen[str]] = []
        self._round_trip_s = 0.0

    @abstractmethod
    def route_to(self, address: str) -> str:
        """Return the address at which near processes reach a far server that listens at ``address``."""

    def set_round_trip(self, round_trip_s: float) -> None:
        """Apply a round trip from now on, to open connections too."""
        self._round_trip_s = round_trip_s
        for process in self._processes:
            _write(process, round_trip_s)

    def cpu_s(self) -> float:
        return sum(cpu_s(process.pid) for process in self._processes)

    def _start(self, *arguments: str, files: Sequence[int] = ()) -> str:
        """Start a process that shapes traffic; return its first line."""
        process = subprocess.Popen(
            [sys.executable, "-m", MODULE, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            pass_fds=tuple(files),
        )
        self._stack.callback(_stop, process)
        ready = _read(process)
        _write(process, self._round_trip_s)
        self._processes.append(process)
        return ready


class ProxyLink(Link):
    """Delaying TCP proxies: TCP's windows and retransmissions never see the delay."""

    name = "proxy"

    def route_to(self, address: str) -> str:
        """Start a proxy for the address and return the proxy's own."""
        return self._start("proxy", address)


class TunLink(Link):
    """Two network namespaces with an emulator between their TUN devices."""

    name = "tun"
    far_host = FAR_HOST

    def __init__(self, stack: ExitStack) -> None:
        super().__init__(stack)
        namespace = stack.enter_context(_namespace())
        self.far_prefix = ("ip", "netns", "exec", namespace)
        near = stack.enter_context(_tun(f"{namespace}-a"))
        far = stack.enter_context(_tun(f"{namespace}-b"))
        _connect(namespace)
        self._start("tun", str(near), str(far), files=(near, far))

    def route_to(self, address: str) -> str:
        """Return the address itself: packets are routed through the emulator."""
        return address


LINKS: dict[str, Callable[[ExitStack], Link]] = {"proxy": ProxyLink, "tun": TunLink}


@contextmanager
def open_link(name: str) -> Iterator[Link]:
    """Set up a link, at first without delay; take it down at the end."""
    if name not in LINKS:
        raise InvalidRequest(f"There is no network '{name}': choose one of {', '.join(LINKS)}.")
    with ExitStack() as stack:
        yield LINKS[name](stack)


def _read(process: subprocess.Popen[str]) -> str:
    line = process.stdout.readline() if process.stdout is not None else ""
    if not line:
        raise RuntimeError("The process that shapes traffic has ended; see its output above.")
    return line.strip()


def _write(process: subprocess.Popen[str], round_trip_s: float) -> None:
    """Send a round trip, and return when it applies."""
    if process.stdin is None:
        raise RuntimeError("The shaping process has no standard input.")
    process.stdin.write(f"{round_trip_s}\n")
    process.stdin.flush()
    _read(process)


def _stop(process: subprocess.Popen[str]) -> None:
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()
    try:
        process.wait(STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


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
    if shutil.which("ip") is None:
        raise UnsupportedOption("Network namespaces need ip (package iproute2): or use --network proxy.")
    name = f"sw{os.getpid()}"
    _run("ip", "netns", "add", name)
    try:
        yield name
    finally:
        subprocess.run(["ip", "netns", "delete", name], capture_output=True)


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


class Commands:
    """Reads round trips from standard input, in the shaping process."""

    def __init__(self, apply: Callable[[float], None]) -> None:
        self._apply = apply
        self._rest = b""

    def read(self) -> bool:
        """Apply the round trips that have arrived; return ``False`` at the end of input."""
        data = os.read(0, 4096)
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._apply(float(line))
            print("applied", flush=True)
        return bool(data)


class Emulator:
    """Delays IP packets between two devices by half a round trip each way; they keep their order."""

    def __init__(self, near: int, far: int) -> None:
        self._other = {near: far, far: near}
        self._way_s = 0.0
        self._packets: deque[tuple[float, int, bytes]] = deque()  # in transit: due, device, packet

    def _set_round_trip(self, round_trip_s: float) -> None:
        self._way_s = round_trip_s / 2

    def run(self) -> None:
        commands = Commands(self._set_round_trip)
        while True:
            while self._packets and self._packets[0][0] <= time.monotonic():
                _, device, packet = self._packets.popleft()
                os.write(device, packet)
            rest_s = max(0.0, self._packets[0][0] - time.monotonic()) if self._packets else None
            readable, _, _ = select.select([0, *self._other], [], [], rest_s)
            for descriptor in readable:
                if descriptor:
                    due_s = time.monotonic() + self._way_s
                    if self._packets:  # on a link that has become faster no packet overtakes
                        due_s = max(due_s, self._packets[-1][0])
                    packet = os.read(descriptor, MAX_PACKET_BYTES)
                    self._packets.append((due_s, self._other[descriptor], packet))
                elif not commands.read():
                    return


async def serve_proxy(upstream: str) -> None:
    async with Proxy.listening() as proxy:
        proxy.upstream = upstream
        over, loop = asyncio.Event(), asyncio.get_running_loop()

        def set_round_trip(round_trip_s: float) -> None:
            proxy.latency_ms = 1e3 * round_trip_s / 2

        commands = Commands(set_round_trip)
        loop.add_reader(0, lambda: None if commands.read() else over.set())
        print(proxy.address, flush=True)
        await over.wait()
        loop.remove_reader(0)


def main() -> None:
    if sys.argv[1] == "tun":
        print("ready", flush=True)
        Emulator(int(sys.argv[2]), int(sys.argv[3])).run()
        return
    # epoll rounds timeouts to milliseconds, select to microseconds.
    factory = lambda: asyncio.SelectorEventLoop(selectors.SelectSelector())  # noqa: E731
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(serve_proxy(sys.argv[2]))


if __name__ == "__main__":
    main()
