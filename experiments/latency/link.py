"""A link with a round trip: two network namespaces, and an emulator between their TUN devices.

It delays IP packets, so that real TCP reacts: slow start and windows. The emulator is this module as a
process of its own. Its arguments are descriptors of the open devices; each line of its input is a round trip.
"""

from __future__ import annotations

import fcntl
import os
import select
import shutil
import struct
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from experiments.common.servers.usage import cpu_s
from specwhisper.errors import UnsupportedOption

NEAR_HOST, FAR_HOST = (f"10.77.{os.getpid() % 256}.{host}" for host in (1, 2))
PREFIX_BITS = 30
TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
MAX_PACKET_BYTES = 65_536
STOP_TIMEOUT_S = 5.0


class Link:
    """A link between near processes, which start as usual, and far processes.

    Attributes
    ----------
    far_prefix : first words of a far process's command; it listens on :data:`FAR_HOST`.
    """

    def __init__(self, namespace: str, emulator: subprocess.Popen[str]) -> None:
        self.far_prefix = ("ip", "netns", "exec", namespace)
        self._emulator = emulator

    def set_round_trip(self, round_trip_s: float) -> None:
        """Apply a round trip from now on, to open connections too."""
        assert self._emulator.stdin is not None and self._emulator.stdout is not None
        self._emulator.stdin.write(f"{round_trip_s}\n")
        self._emulator.stdin.flush()
        if not self._emulator.stdout.readline():
            raise RuntimeError("The emulator of the link has ended; see its output above.")

    def cpu_s(self) -> float:
        return cpu_s(self._emulator.pid)


@contextmanager
def open_link() -> Iterator[Link]:
    """Set up a link, at first without delay; take it down at the end."""
    with ExitStack() as stack:
        namespace = stack.enter_context(_namespace())
        devices = [stack.enter_context(_tun(f"{namespace}-{end}")) for end in "ab"]
        _connect(namespace)
        command = [sys.executable, "-m", "experiments.latency.link", *map(str, devices)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        emulator = subprocess.Popen(command, text=True, pass_fds=devices, **pipes)
        stack.callback(_stop, emulator)
        yield Link(namespace, emulator)


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
        raise UnsupportedOption("Network namespaces need ip (package iproute2).")
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
        raise UnsupportedOption(f"/dev/net/tun cannot be opened ({error}).") from error
    try:
        fcntl.ioctl(device, TUNSETIFF, struct.pack("16sH", name.encode(), IFF_TUN | IFF_NO_PI))
        yield device
    finally:
        os.close(device)


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise UnsupportedOption(
            f"'{' '.join(command)}' failed: {done.stderr.strip()} (namespaces need root)."
        )


def emulate(near: int, far: int) -> None:
    """Delay IP packets between two devices by half a round trip each way; they keep their order."""
    other, way_s = {near: far, far: near}, 0.0
    packets: deque[tuple[float, int, bytes]] = deque()  # in transit: due, device, packet
    while True:
        while packets and packets[0][0] <= time.monotonic():
            _, device, packet = packets.popleft()
            os.write(device, packet)
        rest_s = max(0.0, packets[0][0] - time.monotonic()) if packets else None
        readable, _, _ = select.select([0, *other], [], [], rest_s)
        for descriptor in readable:
            if descriptor:
                due_s = time.monotonic() + way_s
                if packets:  # on a link that has become faster no packet overtakes
                    due_s = max(due_s, packets[-1][0])
                packets.append((due_s, other[descriptor], os.read(descriptor, MAX_PACKET_BYTES)))
            elif line := sys.stdin.readline():
                way_s = float(line) / 2
                print("applied", flush=True)
            else:
                return


if __name__ == "__main__":
    emulate(int(sys.argv[1]), int(sys.argv[2]))
