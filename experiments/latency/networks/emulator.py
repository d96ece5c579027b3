"""``python -m experiments.latency.networks.emulator NEAR FAR``: carries IP packets between two TUN devices.

Both descriptors are open TUN devices, one in each network namespace. What the kernels send is delayed, lost
or reordered packet by packet, so that real TCP reacts to it: slow start, windows, retransmissions.
"""

from __future__ import annotations

import heapq
import os
import select
import sys
import time
from itertools import count

from experiments.latency.networks.conditions import Conditions, Way
from experiments.latency.networks.machinery import Orders, tell

MAX_PACKET_BYTES = 65_536


class Emulator:
    """Two ways between two devices, and the packets on them, in the order in which they leave."""

    def __init__(self, near: int, far: int) -> None:
        self._other = {near: far, far: near}
        self._ways = {device: Way(Conditions(), 0) for device in self._other}
        self._packets: list[tuple[float, int, int, bytes]] = []
        self._numbers = count()

    def change(self, conditions: Conditions, seed: int) -> None:
        """Treat packets like this that come from now on."""
        for number, device in enumerate(self._other):
            self._ways[device] = Way(conditions, 2 * seed + number)

    def run(self) -> None:
        """Carry packets until nobody will ask for anything any more."""
        orders = Orders(self.change)
        waiting_for = [0, *self._other]
        while True:
            now_s = time.monotonic()
            while self._packets and self._packets[0][0] <= now_s:
                _, _, device, packet = heapq.heappop(self._packets)
                os.write(device, packet)
            rest_s = max(0.0, self._packets[0][0] - time.monotonic()) if self._packets else None
            readable, _, _ = select.select(waiting_for, [], [], rest_s)
            for descriptor in readable:
                if descriptor == 0:
                    if not orders.read():
                        return
                    continue
                packet = os.read(descriptor, MAX_PACKET_BYTES)
                leaves_s = self._ways[descriptor].leaves_s(time.monotonic(), len(packet))
                if leaves_s is not None:
                    entry = (leaves_s, next(self._numbers), self._other[descriptor], packet)
                    heapq.heappush(self._packets, entry)


if __name__ == "__main__":
    emulator = Emulator(int(sys.argv[1]), int(sys.argv[2]))
    tell({"ready": True})
    emulator.run()
